"""The worker's part of a transform: an `Inputs` reads the rows that its expressions need, a `Finish` writes the selected ones.

In between Spark evaluates the expressions (`ebbtide.expressions._expressions`), so that they mean what Spark's SQL means. Rows come from
drafts of decided entries, from staged changes, or from the state's files. Invariant: both read the same rows in the same order, and
the results are matched to them by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from ebbtide.changelog import ORDER, changelog_schema
from ebbtide.columns import Mask, entry_table, equals, flags
from ebbtide.delta import Action, DataFile, write_files
from ebbtide.operators import Selected
from ebbtide.runtime._workers.deciding import Decided, Decider, read_draft
from ebbtide.runtime._workers.staging import BAD_ROWS, Share, StagedFile, Stager
from ebbtide.tables import EntryKind


class Failed(NamedTuple):
    """Rows that a transform's expressions fail on.

    Attributes:
        n_rows: Their number.
        rows: The reported columns of some of them, and `_order`.
    """

    n_rows: int
    rows: pa.Table


@dataclass(frozen=True)
class Results:
    """Reads the results of expressions.

    Args:
        sink: The sink's columns.
        reported: Columns that are reported of failing rows.
        most: The most failing rows that are reported.
    """

    sink: pa.Schema
    reported: tuple[str, ...]
    most: int

    def selected(self, results: pa.ChunkedArray) -> Selected:
        """Return the selected rows; see `Selected.of`."""
        return Selected.of(results, self.sink)

    def failed(self, rows: pa.Table, selected: Selected, order: str) -> Failed:
        """Return the rows that fail.

        Args:
            rows: (n,) the evaluated rows.
            selected: (n,) their results.
            order: Column with the order of the change that caused each.
        """
        fails = pa.array(selected.fails)
        failing = rows.filter(fails)
        some = failing.slice(0, self.most)
        columns = some.select(list(self.reported))
        order_field = pa.field("_order", ORDER)
        with_orders = columns.append_column(order_field, some[order])
        return Failed(len(failing), with_orders)


@dataclass(frozen=True)
class DraftInputs:
    """Reads the rows of a draft that are evaluated.

    Args:
        names: The columns.
    """

    names: tuple[str, ...]

    def __call__(self, draft: str) -> pa.Table:
        """Return the decided rows."""
        entries = read_draft(draft)
        is_evaluated = pa.array(Selected.asked_of(entries))
        columns = entries.select(list(self.names))
        return columns.filter(is_evaluated)


@dataclass(frozen=True)
class DraftFinish:
    """Writes the entries of a draft, once their rows were selected.

    Args:
        work: Writes files of the state.
        key: The sink's key columns, each with its source column.
        results: Reads the results.
    """

    work: Decider
    key: tuple[tuple[str, str], ...]
    results: Results

    def __call__(self, draft: str, results: pa.ChunkedArray) -> tuple[Decided, Failed]:
        """Return the written files, and the rows that fail."""
        entries = read_draft(draft)
        is_evaluated = Selected.asked_of(entries)
        selected = self.results.selected(results)
        written, counts = selected.into(entries, is_evaluated, self.key)
        rows = self.work.writer.entry_rows(written)
        operator = self.work.operator()
        adds = self.work.writer.write(rows, operator.key)
        evaluated = entries.filter(pa.array(is_evaluated))
        failed = self.results.failed(evaluated, selected, "_changed_by")
        decided = Decided(adds, counts, len(entries))
        return decided, failed


@dataclass(frozen=True)
class StagedInputs:
    """Reads the staged changes that are evaluated: all of them.

    Args:
        names: The columns.
        columns: All columns of a change.
        key: Names of the key's columns.
    """

    names: tuple[str, ...]
    columns: pa.Schema
    key: tuple[str, ...]

    def __call__(self, share: Share) -> pa.Table:
        """Return the columns of all changes."""
        changes = self.changes(share)
        return changes.select(list(self.names))

    def changes(self, share: Share) -> pa.Table:
        """Return all changes, with all columns."""
        return share.changes(self.columns, self.key)


@dataclass(frozen=True)
class StagedFinish:
    """Stages the changes whose rows are selected, under the sink's columns.

    Args:
        inputs: Reads the changes.
        stager: Writes them.
        results: Reads the results.
    """

    inputs: StagedInputs
    stager: Stager
    results: Results

    def __call__(self, share: Share, results: pa.ChunkedArray) -> tuple[StagedFile, Failed]:
        """Return the file, and the changes that fail."""
        changes = self.inputs.changes(share)
        selected = self.results.selected(results)
        staged = self._under_sink_columns(changes, selected)
        file = self.stager.stage([staged])
        failed = self.results.failed(changes, selected, "_order")
        return file, failed

    def _under_sink_columns(self, changes: pa.Table, selected: Selected) -> pa.Table:
        # Staged again: by the sink's key the rows may belong to other slices than by the source's.
        fits = pa.array(selected.fits)
        fitting = changes.filter(fits)
        rows = selected.rows.filter(fits)
        values: dict[str, object] = {}
        for name in changelog_schema(pa.schema([])).names:
            values[name] = fitting[name]
        for number, name in enumerate(rows.type.names):
            values[name] = rows.field(number)
        columns = self.stager.columns
        own_names = set(columns.names)
        of_bad_rows = [field for field in BAD_ROWS if field.name not in own_names]
        schema = pa.schema([*columns, *of_bad_rows])
        return entry_table(schema, values, len(fitting))


def could_be_shown(rows: pa.Table) -> Mask:
    """Mark the rows of a state table that a sink could show."""
    is_entry = equals(rows, "_entry", EntryKind.ROW)
    is_tombstone = flags(rows, "_tombstone")
    is_removed = flags(rows, "_removed")
    is_gone = is_tombstone | is_removed
    return is_entry & ~is_gone


@dataclass(frozen=True)
class StoredInputs:
    """Reads the rows of a state file that are evaluated.

    Args:
        names: The columns.
        table: The state table.
        schema: Its columns.
    """

    names: tuple[str, ...]
    table: str
    schema: pa.Schema

    def __call__(self, add: Action) -> pa.Table:
        """Return the rows that the sink could show."""
        rows = self.rows(add)
        is_evaluated = pa.array(could_be_shown(rows))
        columns = rows.select(list(self.names))
        return columns.filter(is_evaluated)

    def rows(self, add: Action) -> pa.Table:
        """Return all rows, with all columns."""
        file = DataFile(add["add"])
        return file.read(self.table, self.schema)


@dataclass(frozen=True)
class StoredFinish:
    """Rewrites a state file with the selected rows.

    Args:
        inputs: Reads the file.
        key: The sink's key columns, each with its source column.
        bounded: Columns to keep statistics of.
        results: Reads the results.
    """

    inputs: StoredInputs
    key: tuple[tuple[str, str], ...]
    bounded: tuple[str, ...]
    results: Results

    def __call__(self, add: Action, results: pa.ChunkedArray) -> tuple[list[Action], Failed]:
        """Return the actions that add the file, and the rows that fail."""
        rows = self.inputs.rows(add)
        is_evaluated = could_be_shown(rows)
        selected = self.results.selected(results)
        written, _ = selected.into(rows, is_evaluated, self.key)
        file = DataFile(add["add"])
        adds = write_files(
            self.inputs.table,
            written,
            self.bounded,
            data_change=True,
            tags=file.tags_of_rows,
        )
        evaluated = rows.filter(pa.array(is_evaluated))
        failed = self.results.failed(evaluated, selected, "_changed_by")
        return adds, failed
