"""The state table of a pipeline.

| column | meaning |
|---|---|
| `_entry` | `row`: an entry of the operator; `metrics`: counts of a step, as JSON in `_note`; `file`: a source file read, `{"name", "size"}` in `_note`, the bare name in older steps; `emitted`: a record emitted, its kind in `_note`, its place in `_changed_by` and `_position` |
| `_note` | see `_entry` |
| the operator's columns | see `ebbtide.operators.sequence`, `.arrival` and `ebbtide.operators.state_rows`; null but in `row`, and the user's in `emitted` |

Appended to once a step, in one commit with the step's facts in its metadata; the rows of that commit with a `_change`
are the step's change set. Of the versions of an entry the one with the greatest `_step` counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.errors import LeaseLostError, StoredFormatError
from ebbtide.ledger.facts import STATE_FORMAT, StepFacts
from ebbtide.ledger.transaction import transaction, write
from ebbtide.model.codes import row_codes
from ebbtide.model.entries import LONG_MIN, Reconciled, Step, entry_table
from ebbtide.model.offsets import OffsetRanges
from ebbtide.model.state.timers import TIMERS
from ebbtide.model.step import StepKind
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic
from ebbtide.operators.operator import Operator
from ebbtide.state_table.columns import column, columns, quoted, spark_schema
from ebbtide.state_table.layout import EMITTED, FILE, METRICS, ROW, counts, noted_files
from ebbtide.state_table.shipping import ship

LINKED = "_linked"
"""Column of the rows that are decided on together although their keys differ."""


@dataclass(frozen=True)
class StateTable:
    """One pipeline's state table.

    Args:
        path: Its location.
        operator: The reconciler whose entries it holds.
    """

    path: str
    operator: Operator

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([pa.field("_entry", pa.string()), pa.field("_note", pa.string()), *self.operator.schema])

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""
        if not log.versions(self.path):
            self._define(DeltaTable.createIfNotExists(spark))

    def reset(self, spark: SparkSession, facts: StepFacts, read_version: int) -> int:
        """Commit a step that starts over: an empty table with this spec's columns and properties, whatever was there.

        Args:
            spark: The session to write in.
            facts: What the commit must say of itself.
            read_version: The version that the step read.

        Returns:
            The commit's version.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        with transaction(spark, facts, "state"):
            self._define(DeltaTable.replace(spark))
        return self._committed(facts, read_version)

    def _define(self, builder: DeltaTableBuilder) -> None:
        read_by = ",".join(["_entry", "_step", "_stamp_ms", *map(quoted, self.operator.key)])
        builder = builder.location(self.path).addColumns(spark_schema(self.schema))
        builder = builder.property("delta.dataSkippingStatsColumns", read_by)  # what steps filter by, no more
        builder.property("delta.enableDeletionVectors", "false").execute()

    def last(self, *, older: bool = False) -> tuple[int, StepFacts] | None:
        """Return (version, facts) of the newest step; None before the first.

        Args:
            older: Take an older format too, as far as starting over needs it.

        Raises:
            StoredFormatError: another version of Ebbtide wrote it, in a format that is not read.
        """
        for version, facts in log.own_commits(self.path):
            found = facts[log.FACTS]
            if found == STATE_FORMAT:
                return version, StepFacts.model_validate(facts)
            if found < STATE_FORMAT and older:
                return version, StepFacts.of_older(facts)
            age, next_step = (
                ("an older", "Run 'ebbtide refresh' to rebuild the sink from the source.")
                if found < STATE_FORMAT
                else ("a newer", "Upgrade Ebbtide.")
            )
            raise StoredFormatError.of(
                f"The state at '{self.path}' was written by {age} Ebbtide.",
                got=f"format {found}",
                allowed=f"format {STATE_FORMAT}",
                next_step=next_step,
            )
        return None

    def steps(self) -> Iterator[tuple[int, StepFacts]]:
        """Yield (version, facts) of the steps, the newest first, back to the first of another format."""
        for version, facts in log.own_commits(self.path):
            if facts[log.FACTS] != STATE_FORMAT:
                return
            yield version, StepFacts.model_validate(facts)

    def read(self, spark: SparkSession, version: int, entry: str = ROW) -> DataFrame:
        """Read one kind of rows as of a version."""
        return spark.read.format("delta").option("versionAsOf", version).load(self.path).where(F.col("_entry") == entry)

    def waiting(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the entries of rows that wait for a value from under another key."""
        entries = self.read(spark, version)
        key = columns(self.operator.key)
        ever = entries.where(F.col("_moved_from").isNotNull()).select(*key).distinct()
        versions = entries.join(F.broadcast(ever), [*self.operator.key], "left_semi")
        return self._newest(versions).where(~F.col("_removed") & F.col("_moved_from").isNotNull())

    def current(self, spark: SparkSession, version: int, since: int = 0) -> DataFrame:
        """Read the newest version of each entry written after step `since`, dropped ones included (`_removed`)."""
        entries = self.read(spark, version)
        entries = entries.where(F.col("_step") > since) if since else entries
        if "_state" in self.schema.names:
            entries = entries.where(F.col("_state").isNotNull())  # the others are rows for the sink
        return self._newest(entries)

    def _newest(self, entries: DataFrame) -> DataFrame:
        """Pick the newest version of each entry."""
        newest = F.row_number().over(Window.partitionBy(*columns(self.operator.entry_key)).orderBy(F.desc("_step")))
        return entries.withColumn("_newest", newest).where("_newest = 1").drop("_newest")

    def kept(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the newest version of each entry that is not dropped."""
        return self.current(spark, version).where(~F.col("_removed"))

    @property
    def ages(self) -> bool:
        """Whether a tick may find something to do."""
        return bool(self.operator.ttls) or "_state" in self.schema.names

    def overdue_ms(self, at: Step, ttls: Mapping[str | None, StateTtlConfig] | None = None) -> Column:
        """Tell how long an entry's time is over at a step, in ms: negative while it lives, null if it never expires.

        Args:
            at: The step.
            ttls: State to time to live. Default: the operator's.
        """
        never = F.lit(None).cast("bigint")
        found = never
        for state, ttl in (self.operator.ttls if ttls is None else ttls).items():
            clock = at.clock_ms(ttl)
            if clock > LONG_MIN:  # there is a watermark
                own = [F.col("_ttl_ms")] if "_ttl_ms" in self.schema.names else []
                over = F.try_subtract(F.lit(clock), F.coalesce(*own, F.lit(ttl.ttl_ms)))
                over = F.try_subtract(over, F.col("_stamp_ms"))
                mine = F.col(self.operator.state_column) == F.lit(state)
                found = over if state is None else F.when(mine, over).otherwise(found)
        is_mortal = [self._is_set(name) for name in self.operator.mortal]
        return F.when(reduce(Column.__or__, is_mortal), found) if is_mortal else found

    def _is_set(self, name: str) -> Column:
        is_flag = pa.types.is_boolean(self.schema.field(name).type)
        return F.coalesce(F.col(name), F.lit(False)) if is_flag else F.col(name).isNotNull()

    def expired(self, at: Step, ttls: Mapping[str | None, StateTtlConfig] | None = None) -> Column:
        """Tell of an entry whether its time is over at a step; arguments as `overdue_ms`."""
        return F.coalesce(self.overdue_ms(at, ttls) >= 0, F.lit(False))

    def spent(self, at: Step) -> Column:
        """Tell of an entry whether it may be deleted: it has expired, and a tick has nothing to do about it."""
        open_ = self.operator.unsettled
        return self.expired(at) if open_ is None else self.expired(at) & ~F.coalesce(F.expr(open_), F.lit(False))

    def due(self, at: Step) -> Column:
        """Tell of an entry whether a tick has to look at its key: it has expired, or is a timer that is due."""
        due = self.expired(at)
        if "_state" in self.schema.names:
            for clock, now in (
                (TimeCharacteristic.PROCESSING_TIME, at.now_ms),
                (TimeCharacteristic.EVENT_TIME, at.watermark_ms),
            ):
                mine = (F.col("_state") == TIMERS) & F.col("_sub").startswith(f"{clock}/")
                due |= mine & (F.col("_position") <= now) if now is not None else F.lit(False)
        return due & ~F.col("_removed")

    def commit(self, frame: DataFrame, facts: StepFacts, read_version: int, mode: str = "append") -> int:
        """Commit a step: the decision.

        Args:
            frame: Rows of this table, evaluated once, here.
            facts: What the commit must say of itself.
            read_version: The version that the step read.
            mode: `append`, or `overwrite` for a table folded or emptied.

        Returns:
            The commit's version.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        write(frame, self.path, facts, "state", mode)
        return self._committed(facts, read_version)

    def purge(self, spark: SparkSession, gone: DataFrame, facts: StepFacts, read_version: int) -> int:
        """Commit a step that deletes entries with all their versions; only files that hold one are rewritten.

        Args:
            spark: The session to write in.
            gone: Their identities, once each.
            facts: What the commit must say of itself.
            read_version: The version that the step read.

        Returns:
            The commit's version.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        same = F.col("t._entry") == ROW
        for name in self.operator.entry_key:
            same &= column(name, "t") == column(name, "s")
        merge = DeltaTable.forPath(spark, self.path).alias("t").merge(gone.alias("s"), same).whenMatchedDelete()
        with transaction(spark, facts, "state"):
            merge.execute()
        return self._committed(facts, read_version)

    def _committed(self, facts: StepFacts, read_version: int) -> int:
        """Return the version under which a step stands in the log; refuse if it is another's."""
        for version, found in log.own_commits(self.path):
            if version <= read_version or found["step"] < facts.step:
                break
            if found == json.loads(facts.to_json()):
                return version
        raise LeaseLostError.of(
            f"Step {facts.step} of '{facts.pipeline}' was committed by another run.",
            next_step="Nothing was written twice; start the run again.",
        )

    def change_set(self, spark: SparkSession, version: int) -> DataFrame:
        """Return the entries that the step committed as `version` wants the sink to take, at most one per key.

        Read from that commit's files alone, and without a literal that changes from step to step: Spark compiles a
        query anew for each.
        """
        return self._for_sink(self._added(spark, version))

    def emitted(self, spark: SparkSession, version: int) -> DataFrame:
        """Return what the step committed as `version` emitted record by record: `_kind`, the user's columns, `_order`, `_number`."""
        own = columns(self.operator.columns.names)
        place = [F.col("_changed_by").alias("_order"), F.col("_position").alias("_number")]
        rows = self._added(spark, version).where(F.col("_entry") == EMITTED)
        return rows.select(F.col("_note").alias("_kind"), *own, *place)

    def decided(self, spark: SparkSession, version: int) -> DataFrame:
        """Read all that the sink was ever wanted to take, with its `_step`, as far as a version still holds it."""
        return self._for_sink(self.read(spark, version))

    def _added(self, spark: SparkSession, version: int) -> DataFrame:
        return spark.read.schema(spark_schema(self.schema)).parquet(*log.added(self.path, version))

    def _for_sink(self, rows: DataFrame) -> DataFrame:
        changes = rows.where(F.col("_change").isNotNull())
        return changes.select("_step", "_change", "_out.*", "_changed_by") if "_out" in self.schema.names else changes

    def metrics(self, version: int) -> Counter[str]:
        """Return the counts of the step committed as `version`, read from that commit's files alone."""
        return counts(self.path, version)

    def pending_key_changes(self) -> bool:
        """Whether, after the last step, some row waits for a value from under another key."""
        for version, facts in log.own_commits(self.path):
            if facts["kind"] == StepKind.BATCH:
                return self.metrics(version)["pending_key_changes"] > 0
            return bool(facts.get("pending_key_changes"))
        return False

    def batch(self, batch_id: int) -> StepFacts:
        """Return the facts of the step that decided one of the last batches."""
        return next(facts for _, facts in self.steps() if facts.kind is StepKind.BATCH and facts.batch_id == batch_id)

    def files(self, spark: SparkSession, version: int) -> dict[str, int | None]:
        """Return the names of all source files read, and the bytes of each; None where only its name was noted."""
        return noted_files(self.read(spark, version, FILE).select("_note").toArrow())

    def file_rows(self, spark: SparkSession, files: Sequence[tuple[str, int | None]], step: int) -> DataFrame:
        """Make the rows that remember source files: name and bytes of each."""
        notes = [json.dumps({"name": name, "size": size}, ensure_ascii=False) for name, size in files]
        rows = pa.table(
            {"_entry": [FILE] * len(notes), "_note": notes, "_step": pa.array([step] * len(notes), pa.int64())}
        )
        return spark.createDataFrame(rows)

    def reconciler(
        self, at: Step, seen: OffsetRanges | None, group_bytes: int | None
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that turns a partition of changes (`_kind` set) and entries into rows of this table.

        Args:
            at: The step.
            seen: Places read before, whose records are repeats.
            group_bytes: About how many bytes of a partition are decided together, whole keys at least; None: all.
        """
        unpack, schema = _shipped(self.operator), self.schema

        def reconcile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            operator = unpack()
            for rows in _groups(batches, operator.key, group_bytes):
                yield from decide(operator, rows)

        def decide(operator: Operator, rows: pa.Table) -> Iterator[pa.RecordBatch]:
            is_change = pc.is_valid(rows["_kind"])
            changes = _shaped(rows.filter(is_change), operator.changes)
            redelivered = 0
            if seen is not None:
                repeats = seen.repeats(changes)
                redelivered = int(repeats.sum())
                changes = changes.filter(pa.array(~repeats))
            result = operator.apply(changes, _shaped(rows.filter(pc.invert(is_change)), operator.schema), at)
            metrics = Counter(result.metrics) + Counter(redelivered=redelivered)
            yield from _rows(schema, replace(result, metrics=metrics), at)

        return reconcile

    def expirer(
        self, at: Step, group_bytes: int | None
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that turns a partition of entries into the rows that drop the expired ones; see `reconciler`."""
        unpack, schema = _shipped(self.operator), self.schema

        def expire(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            operator = unpack()
            for rows in _groups(batches, operator.key, group_bytes):
                yield from _rows(schema, operator.expire(_shaped(rows, operator.schema), at), at)

        return expire


def _shipped(operator: Operator) -> Callable[[], Operator]:
    """Return what gives the operator to a worker, with the user's code that it needs."""
    function = getattr(operator, "function", None)
    if function is None:
        return lambda: operator
    return ship(operator, function.func.__module__).unpack


def _groups(batches: Iterator[pa.RecordBatch], key: Sequence[str], group_bytes: int | None) -> Iterator[pa.Table]:
    """Yield a partition in groups of whole keys: what an operator makes of rows takes many times their bytes."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    rows = pa.Table.from_batches(filled)
    parts = 1 if group_bytes is None else -(-rows.nbytes // group_bytes)
    if parts <= 1:
        yield rows
        return
    part_of = row_codes(rows, key) % parts
    if LINKED in rows.column_names:  # a value may have to be looked for under another key
        part_of[rows[LINKED].fill_null(False).to_numpy()] = 0
    for part in range(parts):
        group = rows.filter(pa.array(part_of == part))
        if len(group):
            yield group


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def _rows(schema: pa.Schema, result: Reconciled, at: Step) -> Iterator[pa.RecordBatch]:
    n = len(result.entries)
    columns: dict[str, Any] = {name: result.entries[name] for name in result.entries.schema.names}
    entries = pa.Table.from_arrays(
        [pa.array([ROW] * n, pa.string()), pa.nulls(n, pa.string()), *columns.values()], schema=schema
    )
    emitted = result.emitted
    if emitted is not None:
        given: dict[str, object] = {name: emitted[name] for name in emitted.column_names}
        given |= {"_entry": [EMITTED] * len(emitted), "_note": given.pop("_kind"), "_changed_by": given.pop("_order")}
        given["_position"] = given.pop("_number")
        given |= {"_step": [at.number] * len(emitted)}
        yield from entry_table(schema, given, len(emitted)).to_batches()
    metrics_by_name = dict(result.metrics) | ({"emitted": len(emitted)} if emitted is not None else {})
    note = {
        "_entry": [METRICS],
        "_note": [json.dumps({k: v for k, v in metrics_by_name.items() if v})],
        "_step": [at.number],
    }
    metrics = pa.Table.from_arrays([pa.array(note.get(f.name, [None]), f.type) for f in schema], schema=schema)
    yield from entries.to_batches()
    yield from metrics.to_batches()
