"""One step: decode and stage, decide (one commit to the state), redo (the sink), quarantine.

A crash before the state's commit leaves nothing; after it the step is finished from what the commit holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.errors import CheckpointMismatchError, QuarantineThresholdError
from ebbtide.ledger.checkpoint import BatchOffsets
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.lease import Lease
from ebbtide.ledger.transaction import write
from ebbtide.model.changelog import ORDER, ORIGIN
from ebbtide.model.clock import Reading
from ebbtide.model.durations import to_ms
from ebbtide.model.entries import SINK_STEP, Step
from ebbtide.model.offsets import OffsetRanges
from ebbtide.paths import delete, join
from ebbtide.runtime.clock import clock_after, clock_of
from ebbtide.runtime.progress import StepProgress
from ebbtide.runtime.session import code_version
from ebbtide.runtime.stage import KINDS, Staged, stage
from ebbtide.runtime.tables import Tables
from ebbtide.sources.files import SizedFile, files_of, read_files
from ebbtide.state_table.columns import column, columns, spark_schema
from ebbtide.state_table.layout import ROW
from ebbtide.state_table.size import TableSize
from ebbtide.state_table.table import LINKED

ROWS_PER_PARTITION = 50_000
"""Changes and entries that one call of the reconciler takes; more make fewer tasks, each with more memory."""
BROADCAST_ROWS = 200_000
"""Touched keys up to which the state is joined without a shuffle."""

QUARANTINE = spark_schema(
    pa.schema(
        [
            ("step", pa.int64()),
            ("reason", pa.string()),
            ("detail", pa.string()),
            ("origin", ORIGIN),
            ("order", ORDER),
            ("raw", pa.binary()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
)
"""Columns of the quarantine."""


class Stepper:
    """Runs the steps of one run, in order; holds the last step's facts between them.

    Args:
        tables: The pipeline's.
        lease: Held while the steps are made.
        started_ms: When the run began, epoch ms.
        fresh: A reset comes first: what is stored may be of an older format, or of another spec.
        on_phase: Called with what begins in which step.
    """

    def __init__(
        self,
        tables: Tables,
        lease: Lease,
        started_ms: int,
        *,
        fresh: bool = False,
        on_phase: Callable[[str, int], None] = lambda name, step: None,
    ) -> None:
        self.tables, self.lease, self.spec, self.started_ms = tables, lease, tables.spec, started_ms
        self._on_phase = on_phase
        self.files_read = 0
        found = tables.state.last(older=fresh)
        self.version = found[0] if found else log.versions(tables.state.path)[-1]
        self.last = found[1] if found else None
        self.pending_key_changes = False if fresh else tables.state.pending_key_changes()
        self.source_path = self.last.source_path if self.last else None
        """What the next step says of the source: as before, until a run says otherwise."""
        self._state_size, self._sink_size = TableSize(tables.state.path), TableSize(tables.sink.path)

    def batch(self, frame: DataFrame, batch_id: int) -> StepProgress:
        """Run the step of one micro-batch, or finish it if its decision stands already."""
        started = time.monotonic()
        self.lease.check()
        offsets = self.tables.checkpoint.offsets(batch_id)
        facts = self._decided(batch_id, offsets)
        replay = facts is not None
        number = facts.step if facts else self.number + 1
        clock = clock_of(facts) if facts else self.clock(offsets.timestamp_ms)
        spark, files = frame.sparkSession, files_of(offsets.source)
        self._on_phase("reading", number)
        summary, staged = self._stage(frame, number, clock.wall_ms)
        redelivered = 0
        if facts is not None:
            summary.bad = facts.quarantined
        else:
            redelivered = self._leave_out_known_bad(summary, staged)
            self._refuse_too_many(summary)
            facts = self._facts("batch", number, clock, summary, batch_id=batch_id, offsets_hash=offsets.hash)
            self._on_phase("deciding", number)
            facts = self._decide(spark, staged, summary, facts, files)
        self._on_phase("merging", number)
        metrics = self.redo(spark) if facts == self.last else {}
        if redelivered:
            metrics["redelivered"] = metrics.get("redelivered", 0) + redelivered
        if summary.bad:
            self._quarantine(staged, facts)
        delete(self.tables.at("staged"))
        self.files_read += len(files)
        kind = "replay" if replay else "batch"
        return StepProgress(
            self.spec.name,
            facts.step,
            kind,
            batch_id,
            summary.records,
            summary.bad,
            metrics,
            facts.now_ms,
            facts.watermark_ms,
            facts.held_ms,
            time.monotonic() - started,
        )

    def tick(self, spark: SparkSession, clock_ms: int) -> StepProgress | None:
        """Expire what is due; None if nothing is and nothing else must be written down.

        That is where the source is now, and, where downtime is left out, when the run ended.
        """
        if self.last is None:
            return None
        is_moved = self.source_path != self.last.source_path
        if not (is_moved or self.tables.state.ages):
            return None
        started = time.monotonic()
        self.lease.check()
        self._on_phase("expiring", self.number + 1)
        facts = self.between("tick", self.clock(clock_ms))
        at = self.at(facts)
        state = self.tables.state
        entries = state.read(spark, self.version)
        due = entries.where(state.due(at))
        keys = due.select(*columns(self.spec.key)).distinct()
        mine = entries.join(keys, [*self.spec.key], "left_semi")
        out = mine.repartition(self._partitions(spark), *columns(self.spec.key)).mapInArrow(
            state.expirer(at, self.spec.max_group_bytes), spark_schema(state.schema, nullable=True)
        )
        # Looked at before the commit. The entries are read as of a version: a lost block is made again alike.
        out = out.localCheckpoint()
        must_say = is_moved or self.spec.downtime_over is not None
        if not must_say and out.where(F.col("_entry") == ROW).isEmpty():
            return None
        self.take(facts, state.commit(out, facts, self.version))
        metrics = self.redo(spark)
        return StepProgress(
            self.spec.name,
            facts.step,
            "tick",
            None,
            0,
            0,
            metrics,
            facts.now_ms,
            facts.watermark_ms,
            facts.held_ms,
            time.monotonic() - started,
        )

    def reset(self, spark: SparkSession, incarnation: str, clock_ms: int) -> None:
        """Start over: a commit that empties the state is the decision; the sink, the quarantine and the checkpoint follow."""
        facts = self._facts("reset", self.number + 1, self.clock(clock_ms), None).model_copy(
            update={
                "incarnation": incarnation,
                "floor": None,
                "positions": {},
                "orphans": False,
                "max_event_ms": None,
                "watermark_ms": None,
                "query_id": self.tables.checkpoint.query_id,
            }
        )
        self.lease.check()
        self.take(facts, self.tables.state.reset(spark, facts, self.version))
        self.pending_key_changes = False
        self.redo(spark)

    def between(self, kind: Literal["tick", "cleanup", "compaction", "migration"], clock: Reading) -> StepFacts:
        """Make the facts of a step that reads no records."""
        last = self.last
        batch_id, offsets_hash = (last.batch_id, last.offsets_hash) if last else (None, None)
        facts = self._facts(kind, self.number + 1, clock, None, batch_id=batch_id, offsets_hash=offsets_hash)
        return facts.model_copy(update={"pending_key_changes": self.pending_key_changes})

    def between_now(self, kind: Literal["cleanup", "compaction", "migration"]) -> StepFacts:
        """Make the facts of a step of maintenance, which goes by the ledger's clock and does not move it on."""
        return self.between(kind, clock_of(self.last) if self.last else Reading(0, 0))

    def at(self, facts: StepFacts) -> Step:
        """Return what an operator may know of a step."""
        return Step(
            facts.step, facts.now_ms, facts.watermark_ms, tuple(facts.floor) if facts.floor else None, facts.orphans
        )

    def take(self, facts: StepFacts, version: int) -> None:
        """Go on from a step that was committed as `version` of the state."""
        self.version, self.last = version, facts

    @property
    def number(self) -> int:
        """Number of the last step, 0 before the first."""
        return self.last.step if self.last else 0

    def redo(self, spark: SparkSession) -> dict[str, int]:
        """Bring the sink to the last decision; done already, it does nothing.

        Returns:
            The step's counts.
        """
        facts = self.last
        if facts is None:
            return {}
        if facts.kind == "reset":
            self._finish_reset(spark, facts)
        if facts.kind in ("reset", "cleanup", "compaction", "migration"):
            return {}
        state, sink = self.tables.state, self.tables.sink
        counts = state.metrics(self.version)
        if facts.kind == "batch":
            self.pending_key_changes = counts["pending_key_changes"] > 0
        writes = counts["updated"] + counts["deleted"] + counts["filled"]
        if (writes or counts["inserted"] or facts.floor_raised) and sink.last_step() < facts.step:
            only_inserts = not writes and not facts.floor_raised
            first = self.spec.table.columns.field(self.spec.key[0])
            bounded = pa.types.is_integer(first.type) or pa.types.is_string(first.type)
            prunes = bounded and not only_inserts and self._sink_size.is_large(spark)
            # By what was decided: a row may change whose key none of the records had.
            bounds = log.bounds(state.path, self.version, first.name) if prunes else None
            sink.take(
                spark,
                state.change_set(spark, self.version),
                facts,
                only_inserts=only_inserts,
                bounds=None if bounds is None else (self.spec.key[0], *bounds),
            )
        if counts["emitted"] or (self.spec.emits_every and facts.floor_raised):
            self.tables.changelog.take(spark, state.emitted(spark, self.version), facts)
        return dict(counts)

    def _finish_reset(self, spark: SparkSession, facts: StepFacts) -> None:
        if self.tables.sink.last_step() < facts.step:
            self.tables.sink.empty(spark, facts)
        if log.versions(self.tables.changelog.path):
            self.tables.changelog.empty(spark, facts)
        delete(self.tables.at("staged"))
        quarantine = self.tables.at("quarantine")
        if log.versions(quarantine):
            none = spark.createDataFrame([], QUARANTINE)
            write(none, quarantine, facts, "quarantine", "overwrite")
        if self.tables.checkpoint.query_id == facts.query_id:
            self.tables.checkpoint.discard()

    def _decided(self, batch_id: int, offsets: BatchOffsets) -> StepFacts | None:
        """Return the facts of a batch whose decision stands; refuse one that does not follow the last."""
        last = self.last.batch_id if self.last else None
        if self.last and last == batch_id:
            if self.last.offsets_hash == offsets.hash:
                return self.tables.state.batch(batch_id)
            raise self._mismatch(f"Batch {batch_id} was decided from other records than the checkpoint now names.")
        if batch_id != (0 if last is None else last + 1):
            raise self._mismatch(
                f"The checkpoint is at batch {batch_id}, the state at {'none' if last is None else last}."
            )
        return None

    def _mismatch(self, what: str) -> CheckpointMismatchError:
        return CheckpointMismatchError.of(
            what,
            allowed="the checkpoint that wrote this state",
            next_step=f"Restore '{self.tables.checkpoint.path}', or run 'ebbtide refresh' to rebuild the sink from the source.",
        )

    def clock(self, wall_ms: int) -> Reading:
        """Read the clock for the next step.

        Args:
            wall_ms: The wall clock, epoch ms.
        """
        return clock_after(self.last, self.spec, wall_ms, self.started_ms)

    def _facts(self, kind: Any, number: int, clock: Reading, summary: Staged | None, **more: Any) -> StepFacts:
        last = self.last
        greatest = last.max_event_ms if last else None
        watermark = None if greatest is None else greatest - to_ms(self.spec.allowed_delay)
        if last and last.watermark_ms is not None:
            watermark = max(watermark if watermark is not None else last.watermark_ms, last.watermark_ms)
        floor = tuple(last.floor) if last and last.floor else None
        raised = summary is not None and summary.truncate is not None and (floor is None or summary.truncate > floor)
        events = [ms for ms in (greatest, summary.max_event_ms if summary else None) if ms is not None]
        return StepFacts(
            pipeline=self.spec.name,
            incarnation=self.lease.facts.incarnation,
            epoch=self.lease.facts.epoch,
            step=number,
            kind=kind,
            query_id=self.tables.checkpoint.query_id,
            **clock._asdict(),
            watermark_ms=watermark,
            max_event_ms=max(events, default=None),
            floor=list(summary.truncate) if raised and summary and summary.truncate else list(floor) if floor else None,
            floor_raised=raised,
            positions=last.positions if last else {},
            orphans=self.spec.leaves_orphans or (last is not None and last.orphans),
            records=summary.records if summary else 0,
            quarantined=summary.bad if summary else 0,
            ignored_columns=sorted(summary.ignored) if summary else [],
            state_version=self.version,
            spec=self.spec.identity,
            source_path=self.source_path,
            code=code_version(),
            **more,
        )

    def _stage(self, frame: DataFrame, number: int, wall_ms: int) -> tuple[Staged, DataFrame]:
        decoding, folder = self.spec.decoding, join(self.tables.at("staged"), str(number))
        staged = stage(
            frame,
            read_files(self.spec.source.path, decoding.max_record_bytes),
            decoding,
            folder,
            step=number,
            wall_ms=wall_ms,
            with_places=self._knows_places,
        )
        if self._knows_places and self.last:
            read = OffsetRanges(self.last.positions)
            staged.truncate = max((o for place, o in staged.truncates.items() if not read.knows(*place)), default=None)
        spark, schema = frame.sparkSession, spark_schema(decoding.schema, nullable=True)
        return staged, spark.read.schema(schema).parquet(*staged.files) if staged.files else spark.createDataFrame(
            [], schema
        )

    @property
    def _knows_places(self) -> bool:
        """Whether a redelivered record is known by its place in the source: by sequence the reconciler knows it by itself."""
        return not self.spec.sequence and self.spec.has_positions

    def _refuse_too_many(self, summary: Staged) -> None:
        limit = self.spec.quarantine.max_rows_per_step
        if summary.bad > limit:
            raise QuarantineThresholdError.of(
                f"Pipeline '{self.spec.name}' met too many bad records in one step; nothing of it was committed.",
                got=f"{summary.bad} of {summary.records}",
                allowed=f"up to {limit} (quarantine.max_rows_per_step)",
                next_step=f"See their reasons in '{self.tables.at('staged')}' (_reason, _detail, _raw), then repair the source or the spec, or raise the limit.",
            )

    def _decide(
        self, spark: SparkSession, staged: DataFrame, summary: Staged, facts: StepFacts, files: list[SizedFile]
    ) -> StepFacts:
        state = self.tables.state
        changes = staged.where(F.col("_kind").isin(KINDS))
        seen = None
        if self._knows_places:
            seen = OffsetRanges(facts.positions)
            facts = facts.model_copy(update={"positions": dict(seen.with_ranges(summary.places).read)})
        linked = self._linked_keys(spark, changes, summary)
        entries = self._entries_of(spark, changes, summary, linked)
        keys = columns(self.spec.key)
        both = (
            changes.unionByName(entries, allowMissingColumns=True)
            if entries is not None
            else _with_columns(changes, spark_schema(state.schema, nullable=True))
        )
        if linked is not None:
            both = both.join(F.broadcast(linked.withColumn(LINKED, F.lit(True))), [*self.spec.key], "left")
            keys = [F.when(F.col(LINKED).isNull(), each) for each in keys]  # the linked ones to one partition
        out = both.repartition(self._partitions(spark, summary.changes), *keys).mapInArrow(
            state.reconciler(self.at(facts), seen, self.spec.max_group_bytes),
            spark_schema(state.schema, nullable=True),
        )
        if files:
            out = out.unionByName(state.file_rows(spark, files, facts.step), allowMissingColumns=True)
        self.lease.check()
        self.take(facts, state.commit(out, facts, self.version))
        return facts

    def _linked_keys(self, spark: SparkSession, changes: DataFrame, summary: Staged) -> DataFrame | None:
        """Return the keys of rows that wait for a value, now or in the state, and the keys that these rows had before.

        None where no row does. They are decided on together: a value may have to be looked for under another key.
        """
        found = [changes] if summary.key_changes else []
        if self.pending_key_changes:
            found.append(self.tables.state.waiting(spark, self.version))
        keys: list[DataFrame] = []
        for rows in found:
            moved = rows.where(F.col("_moved_from").isNotNull())  # all of them, where one of a step left values out
            old_keys = moved.select(F.explode("_moved_from.key").alias("_key")).select("_key.*")
            keys += [moved.select(*columns(self.spec.key)), old_keys]
        return reduce(DataFrame.union, keys).distinct() if keys else None

    def _entries_of(
        self, spark: SparkSession, changes: DataFrame, summary: Staged, linked: DataFrame | None
    ) -> DataFrame | None:
        """Read what is stored under the touched and linked keys; where live entries expire, the sink's rows too."""
        if self.last is None or self.last.kind == "reset":
            return None
        keys = changes.select(*columns(self.spec.key)).distinct()
        entries = self.tables.state.read(spark, self.version)
        if linked is not None:
            keys = keys.union(linked).distinct()
        elif summary.bounds is not None and self._state_size.is_large(spark):
            entries = entries.where(column(self.spec.key[0]).between(*summary.bounds))
        keys = F.broadcast(keys) if summary.changes <= BROADCAST_ROWS else keys
        if self.spec.expires_live:
            sink = self.tables.sink
            stand_in = sink.read(spark, sink.version()).withColumns(
                {
                    "_step": F.lit(SINK_STEP).cast("bigint"),
                    "_stamp_ms": F.lit(0).cast("bigint"),
                }
            )
            entries = entries.unionByName(stand_in, allowMissingColumns=True)
        return entries.join(keys, [*self.spec.key], "left_semi")

    def _partitions(self, spark: SparkSession, rows: int | None = None) -> int:
        most = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
        return most if rows is None else max(min(most, 1 + rows // 5_000), -(-rows // ROWS_PER_PARTITION))

    def _leave_out_known_bad(self, summary: Staged, staged: DataFrame) -> int:
        """Count each bad record once that is delivered again; return how often that was."""
        if not (summary.bad and self.spec.has_positions):
            return 0
        met, summary.bad = summary.bad, self._bad(staged).count()
        return met - summary.bad

    def _bad(self, staged: DataFrame) -> DataFrame:
        """Pick the bad records that are not in the quarantine yet; where records have places, they are known by them."""
        bad = staged.where(F.col("_reason").isNotNull())
        if not self.spec.has_positions:
            return bad
        bad, quarantine = bad.dropDuplicates(["_origin", "_raw"]), self.tables.at("quarantine")
        if not log.versions(quarantine):
            return bad
        known = staged.sparkSession.read.format("delta").load(quarantine)
        known = known.select(F.col("origin").alias("_origin"), F.col("raw").alias("_raw"))
        return bad.join(known, ["_origin", "_raw"], "left_anti")

    def _quarantine(self, staged: DataFrame, facts: StepFacts) -> None:
        rows = self._bad(staged).select(
            F.lit(facts.step).cast("bigint").alias("step"),
            F.col("_reason").alias("reason"),
            F.col("_detail").alias("detail"),
            F.col("_origin").alias("origin"),
            F.col("_order").alias("order"),
            F.col("_raw").alias("raw"),
            F.timestamp_millis(F.lit(facts.now_ms)).alias("at"),
        )
        write(rows, self.tables.at("quarantine"), facts, "quarantine")


def _with_columns(frame: DataFrame, schema: Any) -> DataFrame:
    missing = {f.name: F.lit(None).cast(f.dataType) for f in schema if f.name not in frame.columns}
    return frame.withColumns(missing)
