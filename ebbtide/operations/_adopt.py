"""Adopt: an existing table becomes a pipeline's sink, with its rows, its history and its readers.

The table is first put at `ROOT/NAME/sink`. Its rows are then read as a snapshot, `+I` each, before all changes of the source: by
sequence at the value of the row's columns, or at 0 for positions of a log. Steps of at most `ROWS_PER_STEP` rows give them
entries in the state and the sink's reserved columns. Rows that have these are not read again, so an interrupted adoption can
continue. Runs are refused until all rows are adopted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from ebbtide.amounts import amount
from ebbtide.changelog import RowKind
from ebbtide.columns import entry_table
from ebbtide.delta import Snapshot
from ebbtide.durations import to_ms
from ebbtide.errors import AdoptionError
from ebbtide.executors import Executor
from ebbtide.formats import Decoding
from ebbtide.frames import columns, numbered, spark_schema
from ebbtide.ledger import Cause, StepFacts
from ebbtide.model import Rewrite
from ebbtide.operations._operation import Report
from ebbtide.runtime import OwnTables, Plan, Staged, Stager, Stepper
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

CAUSE = Cause(what="adopt")
ROWS_PER_STEP = 1_000_000
"""Maximum rows that one step adopts: its change set is in memory."""
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
    rows = _adoptable(executor, tables)
    n_rows = rows.count()
    return _report(spec.name, n_rows)


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
        n_rows = _unadopted(
            executor, tables
        ).count()  # without rows that the open step of an earlier try has just adopted
        # Counted once: adopted rows have `_changed_by`, so each step reads the next rows without it.
        n_left = n_rows
        steps = []
        while n_left:
            some = _unadopted(executor, tables).limit(ROWS_PER_STEP)
            n_left = max(0, n_left - ROWS_PER_STEP)
            step = _adopt(executor, stepper, some, n_left, clock_ms)
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
    rows: DataFrame,
    n_left: int,
    clock_ms: int,
) -> int:
    """Make one step; return its number."""
    tables = stepper.plan
    number = stepper.number + 1
    folder = Location(tables.at("staged")) / str(number)
    operator = tables.operator
    stager = Stager(folder, operator.changes, operator.key)
    adopted = AdoptedRows(tables.decoding, stager, number, tuple(rows.columns))
    done = numbered(rows).mapInArrow(adopted, "result STRING").collect()
    staged = Staged.of(row["result"] for row in done)
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


@dataclass(frozen=True)
class AdoptedRows:
    """Stages a table's rows as snapshot rows; sent to the workers.

    Args:
        decoding: The pipeline's decoding, with the columns of staged rows.
        stager: Writes the staged rows.
        step: The step's number.
        names: Names of the table's columns, in the order of the rows.
    """

    decoding: Decoding
    stager: Stager
    step: int
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the staged file and its summary, as JSON."""
        staged = []
        summaries = []
        for part, batch in enumerate(batches):
            rows = pa.Table.from_batches([batch]).rename_columns(self.names)
            changes = self._changes(rows, part)
            staged.append(changes)
            summary = self.decoding.summarize(changes, tracks_offsets=False)
            summaries.append(summary)
        if staged:
            file = self.stager.stage(staged)
            yield pa.record_batch({"result": [file.to_json(summaries)]})

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


def _adoptable(executor: Executor, tables: Plan) -> DataFrame:
    """Return the rows to adopt; refuse a table that does not fit."""
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
    stored = executor.spark().read.format("delta").load(tables.sink.path)
    _refuse_other_columns(tables, stored)
    rows = _unadopted(executor, tables)
    _refuse_keys(tables, rows)
    return rows


def _refuse_steps(tables: Plan) -> None:
    commit = tables.state.last()
    is_adoption = False
    if commit is not None:
        _, last = commit
        is_adoption = last.state.unadopted is not None
    last_step = OwnTables(tables).last_step()
    if last_step and not is_adoption:
        raise AdoptionError.of(
            f"'{tables.spec.name}' has already made steps.",
            got=f"step {last_step}",
            allowed="a pipeline that has read nothing yet",
        )


def _refuse_other_columns(tables: Plan, stored: DataFrame) -> None:
    wanted = _types(spark_schema(tables.spec.sink_table.columns))
    reserved = _types(spark_schema(tables.sink.schema))
    found = _types(stored.schema)
    misfits = []
    columns_wanted = []
    for name, type_ in wanted.items():
        columns_wanted.append(f"{name} {type_.simpleString()}")
        stored_type = found.get(name)
        if stored_type is None:
            misfits.append(f"{name} is missing")
        elif stored_type != type_:
            misfits.append(f"{name} {stored_type.simpleString()}")
    known = {*wanted, *reserved}
    unknown = found.keys() - known
    misfits += [f"{name} is not in the spec" for name in unknown]
    if misfits:
        raise AdoptionError.of(
            f"The table at '{tables.sink.path}' does not have the columns of '{tables.spec.name}'.",
            got="; ".join(sorted(misfits)),
            allowed=", ".join(columns_wanted),
            next_step="Change the spec's schema, or the table.",
        )


def _types(schema: StructType) -> dict[str, DataType]:
    """Return the types of columns by name."""
    return {field.name: field.dataType for field in schema.fields}


def _refuse_keys(tables: Plan, rows: DataFrame) -> None:
    """Refuse nulls in key or sequence, and keys of several rows."""
    spec = tables.spec
    own_sequence = [name for name in spec.sequence if name in spec.table.columns.names]
    needed = columns([*spec.sink_key, *own_sequence])
    # The greatest of several booleans is their OR.
    are_null = [column.isNull() for column in needed]
    has_null = F.greatest(*are_null, F.lit(False))
    n_null = rows.where(has_null).count()
    key = columns(spec.sink_key)
    n_rows = F.count("*")
    by_key = rows.groupBy(*key).agg(n_rows.alias("_n"))
    n_repeated = by_key.where("_n > 1").count()
    if n_null or n_repeated:
        repeated = amount(n_repeated, "key")
        raise AdoptionError.of(
            f"The table at '{tables.sink.path}' has rows without a unique key.",
            got=f"{n_null} with a null in key or sequence, {repeated} with several rows",
            allowed="one row per key, no nulls in key and sequence",
            next_step="Repair them first.",
        )


def _unadopted(executor: Executor, tables: Plan) -> DataFrame:
    """Read the rows without an entry: those without `_changed_by`."""
    reader = executor.spark().read.format("delta")
    stored = reader.load(tables.sink.path)
    if "_changed_by" in stored.columns:
        stored = stored.where("_changed_by IS NULL")
    names = tables.spec.sink_table.columns.names
    return stored.select(*columns(names))
