"""The state table of a pipeline.

| column | meaning |
|---|---|
| `_entry` | `row`: an entry of the operator; `metrics`: counts of a step, as JSON in `_note`; `file`: a source file read, its name in `_note` |
| `_note` | see `_entry` |
| the operator's columns | see `ebbtide.model.operators.sequence` and `.arrival`; null but in `row` |

Appended to once a step, in one commit with the step's facts in its metadata; the rows of that commit with a `_change`
are the step's change set. Of the versions of an entry the one with the greatest `_step` counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from delta import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ebbtide.errors import LeaseLostError, StoredFormatError
from ebbtide.model.changelog import changelog_schema
from ebbtide.model.entries import LONG_MIN, Reconciled, Step
from ebbtide.model.operators.arrival import ArrivalOperator
from ebbtide.model.operators.sequence import SequenceOperator
from ebbtide.model.positions import Positions
from ebbtide.paths import read_parquet
from ebbtide.store.delta import log
from ebbtide.store.delta.facts import STATE_FORMAT, StepFacts
from ebbtide.store.delta.transaction import transaction

ROW, METRICS, FILE = "row", "metrics", "file"
Operator = SequenceOperator | ArrivalOperator


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
            builder = (
                DeltaTable.createIfNotExists(spark)
                .location(self.path)
                .addColumns(from_arrow_schema(self.schema, prefer_timestamp_ntz=True))
            )
            read_by = ",".join(["_entry", "_step", "_stamp_ms", *(f"`{name}`" for name in self.operator.key)])
            builder = builder.property("delta.dataSkippingStatsColumns", read_by)  # what steps filter by, no more
            builder.property("delta.enableDeletionVectors", "false").execute()

    def last(self) -> tuple[int, StepFacts] | None:
        """Return (version, facts) of the newest step; None before the first.

        Raises:
            StoredFormatError: a newer Ebbtide wrote it.
        """
        for version, facts in log.own_commits(self.path):
            if facts[log.FACTS] > STATE_FORMAT:
                raise StoredFormatError.of(
                    f"The state at '{self.path}' was written by a newer Ebbtide.",
                    got=f"format {facts[log.FACTS]}",
                    allowed=f"up to {STATE_FORMAT}",
                    next_step="Upgrade Ebbtide.",
                )
            return version, StepFacts.model_validate(facts)
        return None

    def read(self, spark: SparkSession, version: int, entry: str = ROW) -> DataFrame:
        """Read one kind of rows as of a version."""
        return spark.read.format("delta").option("versionAsOf", version).load(self.path).where(F.col("_entry") == entry)

    def current(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the newest version of each entry, dropped ones included (`_removed`)."""
        newest = F.row_number().over(Window.partitionBy(*map(_name, self.operator.identity)).orderBy(F.desc("_step")))
        return self.read(spark, version).withColumn("_newest", newest).where("_newest = 1").drop("_newest")

    @property
    def mortal(self) -> Column:
        """Tell of an entry whether it may expire: in sequence mode only tombstones do, unless live entries may too."""
        ttl = self.operator.ttl
        every = isinstance(self.operator, ArrivalOperator) or (ttl is not None and ttl.expire_live)
        return F.lit(ttl is not None) if every or ttl is None else F.col("_tombstone")

    def expired(self, clock_ms: int) -> Column:
        """Tell of an entry whether its time is over at a clock; never without a ttl."""
        due_ms = clock_ms - (self.operator.ttl.ttl_ms if self.operator.ttl else 0)
        return self.mortal & (F.col("_stamp_ms") <= due_ms) if due_ms >= LONG_MIN else F.lit(False)

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
        writer = frame.write.format("delta").mode(mode).option("userMetadata", facts.to_json())
        writer = writer.option("overwriteSchema", "true") if mode == "overwrite" else writer
        writer.option("txnAppId", facts.transaction("state")).option("txnVersion", facts.step).save(self.path)
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
        for name in self.operator.identity:
            same &= F.col(f"t.{_quoted(name)}") == F.col(f"s.{_quoted(name)}")
        merge = DeltaTable.forPath(spark, self.path).alias("t").merge(gone.alias("s"), same).whenMatchedDelete()
        with transaction(spark, facts.transaction("state"), facts.step, facts.to_json()):
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
        schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
        return spark.read.schema(schema).parquet(*log.added(self.path, version)).where(F.col("_change").isNotNull())

    def metrics(self, version: int) -> Counter[str]:
        """Return the counts of the step committed as `version`, read from that commit's files alone."""
        counts: Counter[str] = Counter()
        for location in log.added(self.path, version):
            rows = read_parquet(location, columns=["_entry", "_note"]).filter(pc.field("_entry") == METRICS)
            for note in rows["_note"].to_pylist():
                counts.update(json.loads(note))
        return counts

    def open_moves(self) -> bool:
        """Tell whether, after the last step, some row waits for a value from under another key."""
        for version, facts in log.own_commits(self.path):
            return self.metrics(version)["open_moves"] > 0 if facts["kind"] == "batch" else bool(facts["open_moves"])
        return False

    def batch(self, batch_id: int) -> StepFacts:
        """Return the facts of the step that decided one of the last batches."""
        own = (StepFacts.model_validate(facts) for _, facts in log.own_commits(self.path))
        return next(facts for facts in own if facts.kind == "batch" and facts.batch_id == batch_id)

    def files(self, spark: SparkSession, version: int) -> set[str]:
        """Return the names of all source files read."""
        return {row["_note"] for row in self.read(spark, version, FILE).select("_note").collect()}

    def file_rows(self, spark: SparkSession, names: Iterable[str], step: int) -> DataFrame:
        """Make the rows that remember source files."""
        rows = pa.table(
            {
                "_entry": [FILE] * len(list(names)),
                "_note": list(names),
                "_step": pa.array([step] * len(list(names)), pa.int64()),
            }
        )
        return spark.createDataFrame(rows)

    def reconciler(
        self, at: Step, seen: Positions | None
    ) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that turns a partition of changes (`_kind` set) and entries into rows of this table."""
        operator, schema = self.operator, self.schema

        def reconcile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = _read(batches)
            if rows is None:
                return
            is_change = pc.is_valid(rows["_kind"])
            changes = _shaped(rows.filter(is_change), changelog_schema(operator.columns))
            redelivered = 0
            if seen is not None:
                repeats = seen.repeats(changes)
                redelivered = int(repeats.sum())
                changes = changes.filter(pa.array(~repeats))
            result = operator.apply(changes, _shaped(rows.filter(pc.invert(is_change)), operator.schema), at)
            counts = Counter(result.metrics) + Counter(redelivered=redelivered)
            yield from _rows(schema, Reconciled(result.entries, counts), at)

        return reconcile

    def expirer(self, at: Step) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that turns a partition of entries into the rows that drop the expired ones."""
        operator, schema = self.operator, self.schema

        def expire(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = _read(batches)
            if rows is not None:
                yield from _rows(schema, operator.expire(_shaped(rows, operator.schema), at), at)

        return expire


def _read(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    filled = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(filled) if filled else None


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def _rows(schema: pa.Schema, result: Reconciled, at: Step) -> Iterator[pa.RecordBatch]:
    n = len(result.entries)
    columns: dict[str, Any] = {name: result.entries[name] for name in result.entries.schema.names}
    entries = pa.Table.from_arrays(
        [pa.array([ROW] * n, pa.string()), pa.nulls(n, pa.string()), *columns.values()], schema=schema
    )
    note = {
        "_entry": [METRICS],
        "_note": [json.dumps({k: v for k, v in result.metrics.items() if v})],
        "_step": [at.number],
    }
    metrics = pa.Table.from_arrays([pa.array(note.get(f.name, [None]), f.type) for f in schema], schema=schema)
    yield from entries.to_batches()
    yield from metrics.to_batches()


def _quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _name(column: str) -> Column:
    return F.col(_quoted(column))
