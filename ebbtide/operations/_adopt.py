"""Adopt: an existing table becomes a pipeline's sink, with its rows, its history and its readers.

The table is first put at `ROOT/NAME/sink`. Its rows are then read as a snapshot, `+I` each, before all changes of the source: by
sequence at the value of the row's columns, or at 0 for positions of a log. Steps of at most `ROWS_PER_STEP` rows give them
entries in the state and the sink's reserved columns. Rows that have these are not read again, so an interrupted adoption can
continue. Runs are refused until all rows are adopted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.amounts import amount
from ebbtide.changelog import ORDER, RowKind
from ebbtide.columns import columns_named, entry_table, row_codes
from ebbtide.ddl import as_written, type_ddl
from ebbtide.delta import DataFile, Snapshot
from ebbtide.durations import to_ms
from ebbtide.errors import AdoptionError
from ebbtide.executors import Executor
from ebbtide.faults import Fault
from ebbtide.formats import Decoding
from ebbtide.ledger import Cause, StepFacts
from ebbtide.model import Rewrite
from ebbtide.operations._operation import Report
from ebbtide.runtime import AtRest, Plan, Staged, Stager, Stepper
from ebbtide.spec import Pipeline
from ebbtide.storage import Location
from ebbtide.tables import HashRange, Stored

CAUSE = Cause(what="adopt")
ROWS_PER_STEP = 1_000_000
"""Maximum rows that one step adopts: its change set is in memory."""
ROWS_PER_TASK = 250_000
"""Maximum rows that one task stages."""
CHANGED_BY = "_changed_by"
"""Column of the sink: a row without a value has no entry yet."""
SNAPSHOT = "r"
"""Debezium's operation of a snapshot row."""


def _report(pipeline: str, n_rows: int, steps: Sequence[int] = ()) -> Report:
    """Return the report of an adoption, planned or done.

    Args:
        pipeline: Name of the pipeline.
        n_rows: Rows of the table that have no entry in the state yet.
        steps: Steps that created the entries; empty for a plan.
    """
    rows = amount(n_rows, "row")
    counts = {"rows": n_rows}
    details = {"steps": list(steps)}
    if steps:
        in_steps = amount(len(steps), "step")
        adopted = f"{rows} adopted in {in_steps}. The next run reads the source."
        return Report(pipeline, [adopted], counts, details, steps[-1])
    if not n_rows:
        return Report(pipeline, ["no row to adopt."], counts, details)
    next_step = "To do it: 'ebbtide adopt --apply'."
    return Report(pipeline, [f"{rows} to adopt."], counts, details, next_step=next_step)


def plan(executor: Executor, spec: Pipeline, root: str) -> Report:
    """Return the plan of an adoption. Changes nothing.

    Args:
        root: Folder of all pipelines' tables; the table is at `ROOT/NAME/sink`.

    Raises:
        AdoptionError: the table does not fit the spec, or the pipeline has already made steps.
    """
    tables = Plan.under(root, spec)
    tables.refuse_unable(Rewrite(), "adoption")
    return _report(spec.name, _adoptable(executor, tables))


def apply(executor: Executor, spec: Pipeline, root: str, clock_ms: int) -> Report:
    """Adopt the rows; arguments and errors as `plan`.

    Args:
        root: Folder of all pipelines' tables; the table is at `ROOT/NAME/sink`.
        clock_ms: The time, epoch ms.

    Raises:
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    tables.refuse_unable(Rewrite(), "adoption")
    _adoptable(executor, tables)
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    with tables.ledger.lease(lease_ttl_s) as lease:
        lease.settle()
        tables.state.create()
        stepper = Stepper(tables, lease, clock_ms)
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        tables.delta_sink.extend(executor)
        unadopted = _Unadopted(tables)
        n_rows = unadopted.count(executor)  # without rows that the open step of an earlier try has just adopted
        # Counted once: adopted rows have `_changed_by`, so each step reads the next rows without it.
        n_left = n_rows
        steps = []
        while n_left:
            pieces = unadopted.first(ROWS_PER_STEP)
            n_left = max(0, n_left - ROWS_PER_STEP)
            step = _adopt(executor, stepper, pieces, n_left, clock_ms)
            steps.append(step)
        if stepper.last.state.unadopted:
            # Another client has deleted the remaining rows: one more step records that none is left.
            facts = _leaving(stepper.facts(CAUSE), 0)
            stepper.commit(facts, [])
            steps.append(stepper.number)
        return _report(spec.name, n_rows, steps)


def _adopt(
    executor: Executor,
    stepper: Stepper,
    pieces: Sequence[_Piece],
    n_left: int,
    clock_ms: int,
) -> int:
    """Make one step; return its number."""
    tables = stepper.plan
    number = stepper.number + 1
    folder = Location(tables.at("staged")) / str(number)
    operator = tables.operator
    stager = Stager(folder, operator.changes, operator.key, n_slices=executor.slices)
    adopt = _AdoptRows(tables.sink.path, tables.spec.sink_table.columns, tables.decoding, stager, number)
    staged = Staged.of(executor.map(adopt, pieces))
    clock = stepper.next_clock(clock_ms)
    no_records = staged.summary.with_counts(records=0)
    facts = _leaving(stepper.facts(CAUSE, clock, no_records), n_left)
    facts = stepper.apply(executor, staged, facts)
    stepper.publish(executor)
    Location(tables.at("staged")).delete()
    stepper.fold(executor)
    return facts.step


def _leaving(facts: StepFacts, n_left: int) -> StepFacts:
    """Return the facts of a step after which some rows are still to be adopted."""
    return facts.with_state({"unadopted": n_left})


class _Piece(NamedTuple):
    """Some rows to adopt.

    Attributes:
        number: Number of the piece in its step.
        file: The data file that has them.
        positions: (n,) their positions in it.
    """

    number: int
    file: DataFile
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class _AdoptRows:
    """Stages rows of a table as snapshot rows; runs in workers.

    Args:
        table: Location of the table.
        columns: The user's columns.
        decoding: The pipeline's decoding, with the columns of staged rows.
        stager: Writes the staged rows.
        step: The step's number.
    """

    table: str
    columns: pa.Schema
    decoding: Decoding
    stager: Stager
    step: int

    def __call__(self, piece: _Piece) -> str:
        """Return the staged file and its summary, as JSON."""
        rows = piece.file.read(self.table, self.columns, live=False, positions=piece.positions)
        changes = self._changes(rows, piece.number)
        summary = self.decoding.summarize(changes, tracks_offsets=False)
        return self.stager.stage([changes]).to_json([summary])

    def _changes(self, rows: pa.Table, part: int) -> pa.Table:
        schema = self.decoding.schema
        n_rows = len(rows)
        kind = str(RowKind.INSERT)
        orders = []
        for position in range(n_rows):
            order = {"step": self.step, "part": part, "position": position}
            orders.append(order)
        values: dict[str, object] = {name: rows[name] for name in rows.column_names}
        values["_kind"] = [kind] * n_rows
        values["_op"] = [SNAPSHOT] * n_rows
        values["_order"] = orders
        if "_sequence" in schema.names:
            sequence = schema.field("_sequence")
            values["_sequence"] = self._sequences(rows, sequence.type)
        return entry_table(schema, values, n_rows)

    def _sequences(self, rows: pa.Table, type_: pa.StructType) -> pa.StructArray:
        # A row has no position in the database's log: 0 is before all positions.
        no_position = pa.repeat(0, len(rows))
        components = []
        for field in type_:
            component = no_position
            if field.name in rows.column_names:
                component = rows[field.name].combine_chunks()
            components.append(component.cast(field.type))
        return pa.StructArray.from_arrays(components, fields=list(type_))


def _adoptable(executor: Executor, tables: Plan) -> int:
    """Return the number of rows to adopt; refuse a table that does not fit."""
    _refuse_steps(tables)
    spec = tables.spec
    snapshot = Snapshot.read(tables.sink.path, any_features=True)
    if snapshot is None:
        raise AdoptionError.of(
            f"There is no table to adopt for '{spec.name}'.",
            got=f"none at '{tables.sink.path}'",
            next_step="Move or clone the table there first (CREATE TABLE ... DEEP CLONE).",
        )
    if tables.operator.has_named_states:
        raise AdoptionError.of(
            f"The sink of '{spec.name}' is a function's output: its rows do not determine the state.",
            allowed="an upsert pipeline",
        )
    if spec.is_view:
        raise AdoptionError.of(
            f"'{spec.name}' is a materialized view: its rows follow from its query.",
            allowed="an upsert pipeline",
            next_step="Give the view another name, or move the table away.",
        )
    if spec.has_transform:
        raise AdoptionError.of(
            f"The sink of '{spec.name}' is selected by a transform: it does not determine the source's rows.",
            allowed="an upsert pipeline without a transform",
            next_step="Let the pipeline create a sink from the source.",
        )
    tables.delta_sink.refuse_unwritable(snapshot)
    _refuse_other_columns(tables, snapshot)
    _refuse_keys(executor, tables)
    return _Unadopted(tables).count(executor)


def _refuse_steps(tables: Plan) -> None:
    commit = tables.state.last()
    is_adoption = False
    if commit is not None:
        _, last = commit
        is_adoption = last.state.unadopted is not None
    last_step = AtRest.of(tables.spec, tables.all_pipelines).tables.last_step()
    if last_step and not is_adoption:
        raise AdoptionError.of(
            f"'{tables.spec.name}' has already made steps.",
            got=f"step {last_step}",
            allowed="a pipeline that has read nothing yet",
        )


def _refuse_other_columns(tables: Plan, stored: Snapshot) -> None:
    wanted = _types(tables.spec.sink_table.columns)
    found = _types(stored.columns)
    misfits = []
    for name, type_ in wanted.items():
        if name not in found:
            misfits.append(f"{as_written(name)} is missing")
        elif found[name] != type_:
            misfits.append(f"{as_written(name)} {found[name]}")
    unknown = found.keys() - {*wanted, *tables.sink.schema.names}
    misfits += [f"{as_written(name)} is not in the spec" for name in unknown]
    if misfits:
        raise AdoptionError.of(
            f"The table at '{tables.sink.path}' does not have the columns of '{tables.spec.name}'.",
            got="; ".join(sorted(misfits)),
            allowed=", ".join(f"{as_written(name)} {type_}" for name, type_ in wanted.items()),
            next_step="Change the spec's schema, or the table.",
        )


def _types(schema: pa.Schema) -> dict[str, str]:
    """Return the types of columns by name, as DDL: so without what may be null."""
    return {field.name: type_ddl(field.type) for field in schema}


def _refuse_keys(executor: Executor, tables: Plan) -> None:
    """Refuse nulls in key or sequence, and keys of several rows."""
    spec = tables.spec
    own_sequence = [name for name in spec.sequence if name in spec.table.columns.names]
    needed = tuple(dict.fromkeys([*spec.sink_key, *own_sequence]))
    columns = [field.with_nullable(True) for field in columns_named(tables.sink.schema, [*needed, CHANGED_BY])]
    found = _snapshot(tables)
    stored = Stored(tables.sink.path, tuple(found.files.values()), pa.schema(columns), table_id=found.id)
    find = _FindUnfit(stored, tuple(spec.sink_key), needed)
    unfit = executor.map(find, HashRange.covering(stored.n_rows), at=HashRange.middle)
    n_null = sum(each.n_null for each in unfit)
    n_repeated = sum(each.n_repeated for each in unfit)
    if n_null or n_repeated:
        repeated = amount(n_repeated, "key")
        raise AdoptionError.of(
            f"The table at '{tables.sink.path}' has rows without a unique key.",
            got=f"{n_null} with a null in key or sequence, {repeated} with several rows",
            allowed="one row per key, no nulls in key and sequence",
            next_step="Repair them first.",
        )


class _Unfit(NamedTuple):
    """Counts of what cannot be adopted in a range of keys.

    Attributes:
        n_null: Rows with a null in key or sequence.
        n_repeated: Keys of several rows.
    """

    n_null: int
    n_repeated: int


@dataclass(frozen=True)
class _FindUnfit:
    """Counts what cannot be adopted; runs in workers.

    Args:
        stored: The table's data files.
        key: Names of the key's columns.
        needed: Columns that may not be null.
    """

    stored: Stored
    key: tuple[str, ...]
    needed: tuple[str, ...]

    def __call__(self, part: HashRange) -> _Unfit:
        """Count in a range of keys: all rows of a key are in one."""
        stored = self.stored.part(part, self.key)
        rows = stored.filter(pc.is_null(stored[CHANGED_BY]))
        has_null = np.zeros(len(rows), dtype=bool)
        for name in self.needed:
            has_null |= rows[name].is_null().to_numpy()
        _, n_rows = np.unique(row_codes(rows, self.key), return_counts=True)
        return _Unfit(int(has_null.sum()), int((n_rows > 1).sum()))


class _Unadopted:
    """The rows without an entry: those without `_changed_by`.

    Args:
        tables: The pipeline.
    """

    def __init__(self, tables: Plan) -> None:
        self._tables = tables
        self._without: set[str] = set()
        """Data files that have none: they never get one."""

    def count(self, executor: Executor) -> int:
        """Count them."""
        files = list(_snapshot(self._tables).files.values())
        is_little = sum(file.size for file in files) <= executor.LITTLE_BYTES
        return sum(executor.map(_CountUnadopted(self._tables.sink.path), files, is_little=is_little))

    def first(self, most: int) -> list[_Piece]:
        """Return the first of them, in pieces.

        Args:
            most: Maximum number of rows.
        """
        pieces: list[_Piece] = []
        n_left = most
        for file, positions in self._by_file():
            own = positions[:n_left]
            n_left -= len(own)
            for start in range(0, len(own), ROWS_PER_TASK):
                piece = _Piece(len(pieces), file, own[start : start + ROWS_PER_TASK])
                pieces.append(piece)
            if not n_left:
                break
        return pieces

    def _by_file(self) -> Iterator[tuple[DataFile, NDArray[np.int64]]]:
        table = self._tables.sink.path
        for file in _snapshot(self._tables).files.values():
            if file.path in self._without:
                continue
            positions = _unadopted(table, file)
            if not len(positions):
                self._without.add(file.path)
            yield file, positions


@dataclass(frozen=True)
class _CountUnadopted:
    """Counts the rows of a data file that have no entry; runs in workers.

    Args:
        table: Location of the table.
    """

    table: str

    def __call__(self, file: DataFile) -> int:
        """Count those of a file."""
        return len(_unadopted(self.table, file))


def _unadopted(table: str, file: DataFile) -> NDArray[np.int64]:
    """Return the positions of a data file's rows that have no entry."""
    rows = file.read(table, pa.schema([pa.field(CHANGED_BY, ORDER)]), live=False)
    positions = np.flatnonzero(rows[CHANGED_BY].is_null().to_numpy())
    return positions[file.is_live(table, positions)]


def _snapshot(tables: Plan) -> Snapshot:
    """Return the newest version of the table.

    Raises:
        DeltaFeatureError: it has a feature that Ebbtide does not read.
    """
    found = Snapshot.read(tables.sink.path)
    if found is None:
        raise Fault.of("sink", "gone", location=tables.sink.path).error
    return found
