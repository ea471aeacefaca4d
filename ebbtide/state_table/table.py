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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.errors import LeaseLostError, StoredFormatError
from ebbtide.ledger.facts import STATE_FORMAT, StepFacts
from ebbtide.ledger.transaction import transaction, write
from ebbtide.model.step import StepKind
from ebbtide.operators.operator import Operator
from ebbtide.state_table.columns import column, columns, quoted, spark_schema
from ebbtide.state_table.layout import EMITTED, FILE, ROW, counts, noted_files


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
        kind = pa.field("_entry", pa.string())
        note = pa.field("_note", pa.string())
        return pa.schema([kind, note, *self.operator.schema])

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
        key = map(quoted, self.operator.key)
        filtered_by = ",".join(["_entry", "_step", "_stamp_ms", *key])
        builder = builder.location(self.path).addColumns(spark_schema(self.schema))
        builder = builder.property("delta.dataSkippingStatsColumns", filtered_by)
        builder = builder.property("delta.enableDeletionVectors", "false")
        builder.execute()

    def last(self, *, older: bool = False) -> tuple[int, StepFacts] | None:
        """Return (version, facts) of the newest step; None before the first.

        Args:
            older: Take an older format too, as far as starting over needs it.

        Raises:
            StoredFormatError: another version of Ebbtide wrote it, in a format that is not read.
        """
        for version, facts in log.own_commits(self.path):
            stored_format = facts[log.FACTS]
            if stored_format == STATE_FORMAT:
                return version, StepFacts.model_validate(facts)
            if stored_format < STATE_FORMAT and older:
                return version, StepFacts.of_older(facts)
            raise self._format_error(stored_format)
        return None

    def _format_error(self, stored_format: int) -> StoredFormatError:
        is_older = stored_format < STATE_FORMAT
        age = "an older" if is_older else "a newer"
        refresh = "Run 'ebbtide refresh' to rebuild the sink from the source."
        return StoredFormatError.of(
            f"The state at '{self.path}' was written by {age} Ebbtide.",
            got=f"format {stored_format}",
            allowed=f"format {STATE_FORMAT}",
            next_step=refresh if is_older else "Upgrade Ebbtide.",
        )

    def steps(self) -> Iterator[tuple[int, StepFacts]]:
        """Yield (version, facts) of the steps, the newest first, back to the first of another format."""
        for version, facts in log.own_commits(self.path):
            if facts[log.FACTS] != STATE_FORMAT:
                return
            yield version, StepFacts.model_validate(facts)

    def read(self, spark: SparkSession, version: int, entry: str = ROW) -> DataFrame:
        """Read one kind of rows as of a version."""
        table = spark.read.format("delta").option("versionAsOf", version).load(self.path)
        return table.where(F.col("_entry") == entry)

    def waiting(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the entries of rows that wait for a value from under another key."""
        entries = self.read(spark, version)
        is_waiting = F.col("_moved_from").isNotNull()
        # An entry's newest version decides, but only those of keys that ever waited are looked at.
        key = list(self.operator.key)
        ever_waited = entries.where(is_waiting).select(*columns(key)).distinct()
        versions = entries.join(F.broadcast(ever_waited), key, "left_semi")
        return self._newest(versions).where(is_waiting & ~F.col("_removed"))

    def current(self, spark: SparkSession, version: int, since: int = 0) -> DataFrame:
        """Read the newest version of each entry written after step `since`, dropped ones included (`_removed`)."""
        entries = self.read(spark, version)
        if since:
            entries = entries.where(F.col("_step") > since)
        if self.operator.has_named_states:
            entries = entries.where(F.col("_state").isNotNull())  # the others are rows for the sink
        return self._newest(entries)

    def _newest(self, entries: DataFrame) -> DataFrame:
        """Pick the newest version of each entry."""
        versions = Window.partitionBy(*columns(self.operator.entry_key))
        newest_first = versions.orderBy(F.desc("_step"))
        numbered = entries.withColumn("_newest", F.row_number().over(newest_first))
        return numbered.where("_newest = 1").drop("_newest")

    def kept(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the newest version of each entry that is not dropped."""
        return self.current(spark, version).where(~F.col("_removed"))

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
        is_same = F.col("t._entry") == ROW
        for name in self.operator.entry_key:
            is_same &= column(name, "t") == column(name, "s")
        table = DeltaTable.forPath(spark, self.path).alias("t")
        merge = table.merge(gone.alias("s"), is_same).whenMatchedDelete()
        with transaction(spark, facts, "state"):
            merge.execute()
        return self._committed(facts, read_version)

    def _committed(self, facts: StepFacts, read_version: int) -> int:
        """Return the version under which a step stands in the log; refuse if it is another's."""
        own = json.loads(facts.to_json())
        for version, stored in log.own_commits(self.path):
            if version <= read_version or stored["step"] < facts.step:
                break
            if stored == own:
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
        rows = self._added(spark, version).where(F.col("_entry") == EMITTED)
        return rows.select(
            F.col("_note").alias("_kind"),
            *columns(self.operator.columns.names),
            F.col("_changed_by").alias("_order"),
            F.col("_position").alias("_number"),
        )

    def decided(self, spark: SparkSession, version: int) -> DataFrame:
        """Read all that the sink was ever wanted to take, with its `_step`, as far as a version still holds it."""
        return self._for_sink(self.read(spark, version))

    def _added(self, spark: SparkSession, version: int) -> DataFrame:
        files = log.added(self.path, version)
        return spark.read.schema(spark_schema(self.schema)).parquet(*files)

    def _for_sink(self, rows: DataFrame) -> DataFrame:
        changes = rows.where(F.col("_change").isNotNull())
        if self.operator.has_named_states:
            return changes.select("_step", "_change", "_out.*", "_changed_by")
        return changes

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
        for _, facts in self.steps():
            if facts.kind is StepKind.BATCH and facts.batch_id == batch_id:
                return facts
        raise LookupError(f"no step has decided batch {batch_id}")

    def files(self, spark: SparkSession, version: int) -> dict[str, int | None]:
        """Return the names of all source files read, and the bytes of each; None where only its name was noted."""
        notes = self.read(spark, version, FILE).select("_note")
        return noted_files(notes.toArrow())

    def file_rows(self, spark: SparkSession, files: Sequence[tuple[str, int | None]], step: int) -> DataFrame:
        """Make the rows that remember source files: name and bytes of each."""
        notes = [json.dumps({"name": name, "size": size}, ensure_ascii=False) for name, size in files]
        columns = {
            "_entry": [FILE] * len(notes),
            "_note": notes,
            "_step": pa.array([step] * len(notes), pa.int64()),
        }
        return spark.createDataFrame(pa.table(columns))
