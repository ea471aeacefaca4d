"""The change set of a step, read from the files of its commit alone: in Spark, or in this process without a JVM."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import equals
from ebbtide.delta import Action, DataFile, Log
from ebbtide.operators import Operator
from ebbtide.storage import ParquetFile
from ebbtide.tables._joining import in_groups
from ebbtide.tables._state.layout import EntryKind, columns_by_name, may_have, of_sink, typed
from ebbtide.tables._state.lookup import Stored

PIECE_BYTES = 8 * 2**20
"""Bytes of the state's files whose changes are applied to a sink at a time: the rows of a file are held in memory."""


@dataclass(frozen=True)
class StepChanges:
    """The change set of one step.

    Args:
        table: Location of the state table.
        version: Version of the state that the step made.
        operator: The operator that decided.
    """

    table: str
    version: int
    operator: Operator

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it in this process: `_change` and some columns of the sink, in these types."""
        return pa.concat_tables(piece() for piece in self.pieces(columns))

    def pieces(self, columns: pa.Schema) -> list[ChangePiece]:
        """Return what reads it as `rows`, in parts of whole keys, in workers too; at least one."""
        # A file has the decisions of one task: all changes of some keys. So the task that publishes them needs the indices of these alone.
        of_ranges, of_all_keys = [], []
        for add in Log(self.table).commit(self.version).adds():
            file = DataFile(add)
            if not may_have(file, "_entry", EntryKind.ROW):
                continue
            if file.key_range().is_all:
                of_all_keys.append(add)
            else:
                of_ranges.append([add])
        groups = of_ranges + list(in_groups(of_all_keys, lambda add: int(add["size"]), PIECE_BYTES))
        entries, key = self.operator.schema, tuple(self.operator.key)
        return [ChangePiece(self.table, tuple(adds), entries, key, columns) for adds in groups or [[]]]

    def emitted(self, columns: pa.Schema) -> pa.Table:
        """Read the emissions of the step record by record: `_kind`, the user's columns, `_order`, `_number`.

        Args:
            columns: Columns of the changelog table.
        """
        tables = [columns.empty_table()]
        for add in Log(self.table).commit(self.version).adds():
            rows = _read(self.table, add)
            is_emitted = equals(rows, "_entry", EntryKind.EMITTED)
            emitted = rows.filter(pa.array(is_emitted))
            values = columns_by_name(emitted)
            # Emissions are rows of the state table, which has no columns for these values: three other columns hold them.
            values["_kind"] = emitted["_note"]
            values["_order"] = emitted["_changed_by"]
            values["_number"] = emitted["_position"]
            tables.append(typed(values, columns))
        return pa.concat_tables(tables)


@dataclass(frozen=True)
class ChangePiece:
    """Reads a part of a change set.

    Args:
        table: Location of the state table.
        adds: The files of the step's commit that hold it.
        entries: Columns of the operator's entries.
        key: The state's key.
        columns: Columns of the sink to read.
    """

    table: str
    adds: tuple[Action, ...]
    entries: pa.Schema
    key: tuple[str, ...]
    columns: pa.Schema

    def middle(self) -> int:
        """Return a hash in the middle of those of its keys."""
        middles = [DataFile(add).key_range().middle for add in self.adds]
        return sum(middles) // max(len(middles), 1)

    def __call__(self) -> pa.Table:
        """Read it: `_change` and the columns, in their types."""
        schema = pa.schema([pa.field("_change", pa.string()), *self.columns])
        return pa.concat_tables([schema.empty_table(), *(self._rows_of(add, schema) for add in self.adds)])

    def _rows_of(self, add: Action, schema: pa.Schema) -> pa.Table:
        names = schema.names
        if "_out" in self.entries.names:
            out = self.entries.field("_out")
            reserved = [name for name in names if name not in out.type.names]
            names = [*reserved, "_out"]
        stored = self._just_decided(add, names)
        if stored is None:
            stored = _read(self.table, add, names)
        is_change = pc.is_valid(stored["_change"])
        return of_sink(stored.filter(is_change), schema, {})

    def _just_decided(self, add: Action, names: list[str]) -> pa.Table | None:
        """Return the entries of a file that this process has written for the step, from its local copy; None if there is none.

        A change is on an entry, and the copy has all of these.
        """
        entries = Stored(self.table, (), self.entries, where=("_entry", EntryKind.ROW))
        copies = entries.copies(self.key)
        index = copies.opened(DataFile(add))
        if index is None:
            return None
        n_rows = len(index.rows)
        return index.rows.slice(0, n_rows, names)


def _read(table: str, add: Action, names: list[str] | None = None) -> pa.Table:
    location = Log(table).location_of(add["path"])
    footer = DataFile(add).footer
    return ParquetFile(location).read(names, footer=footer)
