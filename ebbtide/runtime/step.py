"""One step: stage, decide (one commit to the state), publish (the sink), quarantine.

A crash before the state's commit leaves nothing; after it the step is finished from what the commit holds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.errors import CheckpointMismatchError, QuarantineThresholdError
from ebbtide.ledger.checkpoint import BatchOffsets
from ebbtide.ledger.facts import Head, StepFacts, SwappedTables
from ebbtide.ledger.lease import Lease
from ebbtide.ledger.pauses import refuse_paused
from ebbtide.ledger.transaction import settle_newest
from ebbtide.model.clock import Reading
from ebbtide.model.schema_change import SchemaChange
from ebbtide.model.step import BatchSummary, Frontier, StepKind, ViewPosition, clock_after, next_frontier
from ebbtide.paths import delete, join
from ebbtide.runtime.bad_rows import refuse_too_many
from ebbtide.runtime.belonging import (
    OwnTables,
    refuse_changed,
    refuse_misfits,
    refuse_older_state,
    refuse_other_tables,
    without_its_checkpoint,
)
from ebbtide.runtime.decide import decide, expire, read_before, selected_changes
from ebbtide.runtime.drift import columns_taken_in, refuse_drift
from ebbtide.runtime.finding import RecordsOfBatch
from ebbtide.runtime.fold import fold_state
from ebbtide.runtime.pace import Pace, no_pace
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.progress import StepProgress
from ebbtide.runtime.publish import publish
from ebbtide.runtime.session import code_version
from ebbtide.runtime.stage import Staged, ViewStaging, stage, stage_view
from ebbtide.sources.source import Part, Position, beginning_of, begun_at, n_places
from ebbtide.spec.ddl import ddl_of
from ebbtide.spec.view import MaterializedView
from ebbtide.state_table.layout import FileSizes
from ebbtide.state_table.others import change_of_others
from ebbtide.state_table.staging import Staging

NO_RECORDS = {"records": 0, "quarantined": 0, "other_tables": 0, "ignored_columns": [], "floor_raised": False}
"""Facts of a step that stands where another one stood, and reads nothing."""


class Stepper:
    """Makes the steps of one run, in order; holds the last step's facts between them.

    Args:
        plan: The pipeline.
        lease: Held while the steps are made.
        started_ms: When the run began, epoch ms.
        fresh: A reset comes first: what is stored may be of an older format, or of another spec.
        on_phase: Called with what begins in which step.
        pace: Holds batches back.
    """

    def __init__(
        self,
        plan: Plan,
        lease: Lease,
        started_ms: int,
        *,
        fresh: bool = False,
        on_phase: Callable[[str, int], None] = lambda name, step: None,
        pace: Pace | None = None,
    ) -> None:
        self.plan = plan
        self.lease = lease
        self.spec = plan.spec
        self.started_ms = started_ms
        self._on_phase = on_phase
        self._pace = pace or no_pace()
        self.parts_read = 0
        self.places_read = 0
        last = plan.state.last(older=fresh)
        if plan.spec.spark_makes_sink:
            settle_newest(plan.at("sink"))
        self.head = Head(log.versions(plan.state.path)[-1], None)
        if last is not None:
            version, facts = last
            self.head = Head(version, facts, self._pends(version, facts))
        self.source_path = self.last.source_path if self.last else None
        """Location of the source, for the next step's facts: that of the last step, until a run sets another."""
        self._snapshot = plan.state.snapshot()
        self._unchanged = self.version
        """Newest version of the state that is known to have the rows of the last step."""
        self.tables = OwnTables(plan)

    def refuse_older_state(self) -> None:
        """Refuse a state from which nothing can be repaired.

        Raises:
            TableMismatchError: it was lost, or put back.
        """
        refuse_older_state(self.plan, self.tables, self.head)

    def refuse_other_tables(self) -> None:
        """Refuse tables beside the state that cannot go back together with it.

        Raises:
            TableMismatchError: one was deleted, replaced or put back.
        """
        refuse_other_tables(self.plan, self.tables, self.head)

    @property
    def last_number(self) -> int:
        """Number of the last step that any table has: of a state that was put back, a later one than its own."""
        return max(self.number, self.tables.last_step())

    def refuse_misfits(self) -> None:
        """Refuse tables that do not belong to the stored state.

        Raises:
            TableMismatchError: one was deleted, replaced, put back or changed by others.
        """
        refuse_misfits(self.plan, self.tables, self.head, self.found())

    @property
    def last(self) -> StepFacts | None:
        """Facts of the last step; None before the first."""
        return self.head.facts

    @property
    def version(self) -> int:
        """Version of the state after the last step."""
        return self.head.version

    @property
    def number(self) -> int:
        """Number of the last step, 0 before the first."""
        return self.last.step if self.last else 0

    @property
    def position(self) -> Position | None:
        """Where the source is read up to, of one that is read by position; None before the first step."""
        return self.last.source_position if self.last else None

    @property
    def source_start(self) -> Position | None:
        """Where the first batch began, of a source that is read by position; None before it.

        Steps of an older version do not tell: then what the checkpoint has noted counts, or else what the last batch began with.
        """
        last = self.last
        if last is None or last.source_position is None:
            return None
        return last.source_start or self.plan.noted_start or beginning_of(last.source_position)

    @property
    def source_span(self) -> Position | None:
        """From where to where a source that is read by position was read; None before the first step."""
        start = self.source_start
        if start is None or self.position is None:
            return None
        return start | {"to": self.position["to"]}

    def batch(self, frame: DataFrame, batch_id: int) -> StepProgress:
        """Make the step of one micro-batch, or finish it if its decision stands already."""
        self._refuse_to_begin()
        self._pace.wait(self._refuse_to_begin)
        started = time.monotonic()
        offsets = self.plan.checkpoint.offsets(batch_id)
        decided = self._decided(batch_id, offsets)
        parts = list(self.plan.source.parts_of(offsets.source))
        spark = frame.sparkSession
        n_known_bad = 0
        facts = decided
        if facts is None:
            try:
                self.plan.checkpoint.settle(batch_id)
                position = self.plan.source.position_of(offsets.source, self.position)
                facts, n_known_bad = self._decide(
                    StepKind.BATCH,
                    frame,
                    offsets,
                    parts,
                    batch_id=batch_id,
                    offsets_hash=offsets.hash,
                    source_position=position,
                )
                self._pace.passed(facts.records)
            except QuarantineThresholdError:
                raise  # what was staged shows the reasons
            except BaseException:
                with contextlib.suppress(OSError):  # of a full disk what failed first is reported
                    delete(self.plan.at("staged"))
                raise
        self._on_phase("merging", facts.step)
        # Where another kind of step followed a replayed batch, the batch was published before that step.
        metrics = self.publish(spark) if facts == self.last else {}
        if n_known_bad:
            metrics["redelivered"] = metrics.get("redelivered", 0) + n_known_bad
        delete(self.plan.at("staged"))
        self.fold(spark)
        self.parts_read += len(parts)
        self.places_read += n_places(facts.source_position)
        return self._progress(
            facts,
            kind="replay" if decided else "batch",
            batch_id=batch_id,
            records=facts.records,
            metrics=metrics,
            started=started,
        )

    def _refuse_to_begin(self) -> None:
        """Refuse to begin a batch once another run has taken over, another process needs the lease, or the pipeline is paused."""
        self.lease.check()
        self.lease.make_way()
        refuse_paused(self.spec.name, self.lease.seen)

    def backfill(self, spark: SparkSession, places: Position, reason: str, clock_ms: int) -> StepProgress:
        """Apply records of the source from before where the pipeline stands, as a step; where it stands does not change.

        Args:
            spark: The session.
            places: Where they begin and end.
            reason: Why, kept with the step.
            clock_ms: The time, epoch ms.
        """
        self.lease.check()
        self._pace.wait(self.lease.check)
        started = time.monotonic()
        nothing = spark.range(0)  # the tasks read by themselves
        facts, n_known_bad = self._decide(
            StepKind.BACKFILL,
            nothing,
            BatchOffsets("", clock_ms, places),
            [],
            reread=places,
            reason=reason,
        )
        self._pace.passed(facts.records)
        metrics = self.publish(spark)
        if n_known_bad:
            metrics["redelivered"] = metrics.get("redelivered", 0) + n_known_bad
        delete(self.plan.at("staged"))
        self.fold(spark)
        self.places_read += n_places(places)
        return self._progress(
            facts,
            kind="backfill",
            batch_id=None,
            records=facts.records,
            metrics=metrics,
            started=started,
        )

    def _decide(
        self,
        kind: StepKind,
        frame: DataFrame,
        offsets: BatchOffsets,
        parts: list[Part],
        **given: Any,
    ) -> tuple[StepFacts, int]:
        """Stage records and commit the decision; return its facts, and how many bad records were known already."""
        number = self.number + 1
        clock = self.next_clock(offsets.timestamp_ms)
        self._on_phase("reading", number)
        is_next = kind is StepKind.BATCH
        staged = self._stage(frame, offsets, number, clock.wall_ms, is_next=is_next)
        new_columns = columns_taken_in(self.spec, staged.summary)
        if new_columns:
            self._take_in(frame.sparkSession, new_columns, clock)
            number = self.number + 1
            staged = self._stage(frame, offsets, number, clock.wall_ms, is_next=is_next)
        bad = staged.bad()
        new_bad = self.plan.quarantine.new(bad, read_before(self.plan, self.head))
        refuse_drift(self.spec, new_bad)
        n_known_bad = len(bad) - len(new_bad)
        summary = replace(staged.summary, bad=len(new_bad))
        refuse_too_many(self.plan, summary.bad, summary.records)
        self._on_phase("deciding", number)
        facts = self._facts(kind, clock, summary, **given)
        facts = facts.model_copy(update={"bad_rows": self.plan.quarantine.write(new_bad, facts)})
        facts = self.decide(frame.sparkSession, staged, facts, parts)
        self.plan.source.measured(given.get("source_position"), summary.bytes, self.plan.at("plan.json"))
        return facts, n_known_bad

    def _take_in(self, spark: SparkSession, types: Mapping[str, str], clock: Reading) -> None:
        """Give the tables columns that the source has, as a step of its own: no row of theirs is written again.

        Args:
            spark: The session.
            types: Column to its type, as DDL.
            clock: Of the step.
        """
        before = self.spec.table.columns
        plan = self.plan.with_columns(types)
        plan.sink.refuse_unalterable(self.spec.sink_table.columns)
        self.plan = plan
        self.spec = plan.spec
        facts = self._facts(
            StepKind.MIGRATION,
            clock,
            schema_change=SchemaChange(added=dict.fromkeys(types)),
            columns_before=ddl_of(before),
        )
        definition = plan.state.redefined(self.newest())
        self.commit(facts, definition)
        self.publish(spark)

    def decide(
        self,
        spark: SparkSession,
        staged: Staged,
        facts: StepFacts,
        parts: Sequence[Part] = (),
    ) -> StepFacts:
        """Commit the decision on staged records.

        Args:
            spark: The session.
            staged: The records.
            facts: The step's.
            parts: Parts of the source that are read with it.

        Returns:
            The facts as committed.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        self.lease.check()
        self._snapshot, facts = decide(
            spark,
            self.plan,
            self.head,
            staged,
            facts,
            snapshot=self.newest(),
            parts=parts,
        )
        self.advance_to(facts, self._snapshot.version)
        return facts

    def tick(self, spark: SparkSession, clock_ms: int) -> StepProgress | None:
        """Expire what is due; None if nothing is and nothing else must be written down.

        That is where the source is now, and, where downtime is left out, when the run ended.
        """
        if self.last is None:
            return None
        has_moved = self.source_path != self.last.source_path
        operator = self.plan.operator
        may_be_due = bool(operator.expiry.ttls) or operator.has_named_states
        if not (has_moved or may_be_due):
            return None
        must_commit = has_moved or self.spec.downtime_over is not None
        return self._tick(spark, clock_ms, must_commit=must_commit)

    def accept_loss(self, spark: SparkSession, position: Position, lost: str, clock_ms: int) -> StepProgress | None:
        """Note as a step that records of the source are lost, and where it is read from now on; before the first step that one will tell.

        Args:
            spark: The session.
            position: Begins and ends where the next batch begins.
            lost: What is lost.
            clock_ms: The time, epoch ms.

        Returns:
            The step; None before the first one, when nothing was read.
        """
        if self.last is None:
            known = self._lost_before
            all_lost = lost if known is None else f"{known} {lost}"
            self.plan.checkpoint.note_start(position, self.plan.start_asked, all_lost)
            return None
        return self._tick(spark, clock_ms, must_commit=True, source_position=position, lost=lost)

    @property
    def _lost_before(self) -> str | None:
        """Which records were lost before the first step, as far as that was accepted."""
        noted = self.plan.checkpoint.start
        return None if noted is None else noted.lost

    def _tick(
        self,
        spark: SparkSession,
        clock_ms: int,
        *,
        must_commit: bool,
        **given: Any,
    ) -> StepProgress | None:
        started = time.monotonic()
        self.lease.check()
        self._on_phase("expiring", self.number + 1)
        clock = self.next_clock(clock_ms)
        facts = self._facts(StepKind.TICK, clock, **given)
        decision = expire(
            spark,
            self.plan,
            self.head,
            facts,
            snapshot=self.newest(),
            must_commit=must_commit,
        )
        if decision is None:
            return None
        self._snapshot, facts = decision
        self.advance_to(facts, self._snapshot.version)
        metrics = self.publish(spark)
        self.fold(spark)
        return self._progress(
            facts,
            kind="tick",
            batch_id=None,
            records=0,
            metrics=metrics,
            started=started,
        )

    def reset(
        self,
        spark: SparkSession,
        incarnation: str,
        clock_ms: int,
        lost: str | None = None,
    ) -> None:
        """Start over: a commit that empties the state is the decision; the sink, the quarantine and the checkpoint follow.

        Args:
            spark: The session.
            incarnation: That of the tables from now on.
            clock_ms: The time, epoch ms.
            lost: What cannot be read again, where a user accepted that.
        """
        clock = self.next_clock(clock_ms)
        number = 1 + self.last_number  # over all incarnations: a state may have been lost
        facts = self._facts(
            StepKind.RESET,
            clock,
            incarnation=incarnation,
            step=number,
            lost=lost,
        )
        self.lease.check()
        self._snapshot = self.plan.state.reset(facts, self.found())
        self.advance_to(facts, self._snapshot.version)
        self.publish(spark)

    def maintenance_step(
        self,
        kind: StepKind,
        clock: Reading | None = None,
        batch: BatchSummary | None = None,
        **given: Any,
    ) -> StepFacts:
        """Make the facts of a maintenance job's step.

        Args:
            kind: The job's.
            clock: Of the step. Default: that of the last step, which then does not move on.
            batch: The records that it applies. Default: none.
            **given: Further facts.
        """
        last_clock = self.last.clock if self.last else Reading(0, 0)
        if clock is None:
            clock = last_clock
        return self._facts(kind, clock, batch, **given)

    def rewound(self, earlier: StepFacts, version: int, restores: Mapping[str, int]) -> StepFacts:
        """Make the facts of a step that goes back to an earlier one; mints a new incarnation.

        Args:
            earlier: Facts of that step.
            version: The state's version that holds it.
            restores: The tables beside the state, and the versions that they go back to.
        """
        pending_key_changes = self._pends(version, earlier)
        facts = self.maintenance_step(StepKind.REWIND)
        stands_at = {name: getattr(earlier, name) for name in Frontier.model_fields}
        made_by = {
            "step": 1 + self.last_number,
            "kind": StepKind.REWIND,
            "incarnation": self.lease.renew_incarnation(),
            "pending_key_changes": pending_key_changes,
            "restores": dict(restores),
            "batch_id": None,
            "offsets_hash": None,
            "source_position": earlier.source_position,
            "source_start": earlier.source_start,
        }
        return facts.model_copy(update=stands_at | NO_RECORDS | made_by)

    def turn_to(self, spark: SparkSession, position: Position) -> None:
        """Read another source from here on: that of this run's spec. A step says so, and discards the checkpoint.

        Args:
            spark: The session.
            position: Begins and ends where it is read from.
        """
        facts = self.maintenance_step(
            StepKind.SOURCE,
            source_position=position,
            batch_id=None,
            offsets_hash=None,
        )
        self.commit(facts, [])
        self.publish(spark)

    def swapped(self, taken: Stepper, versions: Mapping[str, int], wall_ms: int) -> StepFacts:
        """Make the facts of a step that puts another run's tables in the place of these; mints a new incarnation.

        Args:
            taken: Of the other run; it has made a step.
            versions: Its tables beside the state, and their versions.
            wall_ms: The wall clock, epoch ms.
        """
        if taken.last is None:
            raise LookupError("no step was made")
        facts = self.maintenance_step(StepKind.SWAP)
        stands_at = {name: getattr(taken.last, name) for name in Frontier.model_fields}
        made_by = {
            "step": 1 + max(self.last_number, taken.last_number),
            "kind": StepKind.SWAP,
            "incarnation": self.lease.renew_incarnation(),
            "paused_ms": self.lease.seen.paused_until(wall_ms),
            "pending_key_changes": taken.head.pending_key_changes,
            "swap": SwappedTables(incarnation=taken.lease.facts.incarnation, versions=dict(versions)),
            "batch_id": None,
            "offsets_hash": None,
            "source_position": taken.position,
            "source_start": taken.source_start,
            "source_path": taken.source_path,
            "evolved": dict(taken.plan.evolved),
        }
        return facts.model_copy(update=stands_at | NO_RECORDS | made_by)

    def commit(self, facts: StepFacts, actions: Sequence[Action]) -> None:
        """Commit a maintenance job's step.

        Args:
            facts: The step's.
            actions: What it changes in the newest version of the state.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        self.lease.check()
        self._snapshot = self.plan.state.commit_files(actions, facts, self._snapshot)
        self.advance_to(facts, self._snapshot.version)

    def fold(self, spark: SparkSession) -> None:
        """Join small files of the tables, now that the last step is published."""
        if self.last is None:
            return
        self.lease.check()
        self._snapshot = fold_state(spark, self.plan, self.last, self.newest())
        self.plan.sink.fold()

    def files_read(self) -> FileSizes:
        """Return the source files that were read, with their bytes."""
        return self.plan.state.files(self.newest().files.values())

    def files_decided(self) -> FileSizes:
        """Return them as the last step left them, whatever others have made of the state since.

        Raises:
            DamagedFileError: a file that describes them is gone or damaged.
            DeltaLogError: the version of the last step is gone.
        """
        state = self.found()
        _, versions = change_of_others(self.version, state)
        if versions[-1] != state.version:
            state = self.plan.state.snapshot(versions[-1])
        return self.plan.state.files(state.files.values())

    def newest(self) -> Snapshot:
        """Return the newest version of the state.

        Raises:
            TableMismatchError: others have changed its rows since the last step.
        """
        newest = self.found()
        if newest.version > self._unchanged:
            refuse_changed(self.plan, self.head, newest)
            self._unchanged = newest.version
        return newest

    def found(self) -> Snapshot:
        """Return the newest version of the state, whatever others have made of it: for what starts over, or brings its rows back."""
        self._snapshot = self._snapshot.advanced()
        return self._snapshot

    def advance_to(self, facts: StepFacts, version: int) -> None:
        """Go on from a step that was committed as `version` of the state."""
        self.head = Head(version, facts, self._pends(version, facts))
        self._unchanged = version

    def _pends(self, version: int, facts: StepFacts) -> bool:
        """Return whether after a step some row waits for a value from under another key."""
        if facts.kind is StepKind.RESET:
            return False
        if facts.kind.reads_records:
            return self.plan.state.counts(version, facts)["pending_key_changes"] > 0
        return facts.pending_key_changes

    def publish(self, spark: SparkSession) -> dict[str, int]:
        """Bring the sink to the last decision; return the step's counts."""
        counts = publish(spark, self.plan, self.head)
        if self.last is not None and self.last.bad_rows:
            self.tables.facts()  # its first bad records made the quarantine: from now on it is missed
        return dict(counts)

    def next_clock(self, wall_ms: int) -> Reading:
        """Read the clock for the next step.

        Args:
            wall_ms: The wall clock, epoch ms.
        """
        paused_ms = self.lease.seen.paused_until(wall_ms)
        return clock_after(self.last, self.plan.rules, wall_ms, self.started_ms, paused_ms)

    def _facts(
        self,
        kind: StepKind,
        clock: Reading,
        batch: BatchSummary | None = None,
        **given: Any,
    ) -> StepFacts:
        """Make the facts of the next step."""
        last = self.last
        checkpoint = self.plan.checkpoint
        made_by = {
            "pipeline": self.spec.name,
            "incarnation": self.lease.facts.incarnation,
            "epoch": self.lease.facts.epoch,
            "query_id": checkpoint.id_to_discard if kind.discards_checkpoint else checkpoint.query_id,
            "state_version": self.version,
            "tables": self.tables.facts(),
            "spec": self.spec.identity,
            "source_path": self.source_path,
            "evolved": dict(self.plan.evolved),
            "code": code_version(),
        }
        if kind not in (StepKind.BATCH, StepKind.RESET):
            made_by["pending_key_changes"] = self.head.pending_key_changes
            made_by["batch_id"] = last.batch_id if last else None
            made_by["offsets_hash"] = last.offsets_hash if last else None
            made_by["source_position"] = self.position
        if kind is not StepKind.RESET:
            position = given.get("source_position", self.position)
            made_by["source_start"] = begun_at(self.source_start, position)
            if last is None:
                made_by["lost"] = self._lost_before
        frontier = next_frontier(last, kind, clock, self.plan.rules, batch)
        facts = dict(frontier) | made_by | given
        return StepFacts(**facts)

    def _decided(self, batch_id: int, offsets: BatchOffsets) -> StepFacts | None:
        """Return the facts of a batch whose decision stands; refuse one that does not follow the last."""
        last_id = self.last.batch_id if self.last else None
        next_id = 0 if last_id is None else last_id + 1
        if batch_id == next_id:
            return None
        if self.last is None or batch_id != last_id:
            stands_at = "none" if last_id is None else last_id
            raise self._mismatch(f"The checkpoint is at batch {batch_id}, the state at {stands_at}.")
        if self.last.offsets_hash != offsets.hash:
            raise self._mismatch(f"Batch {batch_id} was decided from other records than the checkpoint now names.")
        return self.plan.state.batch(batch_id)

    def _mismatch(self, what: str) -> CheckpointMismatchError:
        return CheckpointMismatchError.of(
            what,
            allowed="the checkpoint that wrote this state",
            next_step=without_its_checkpoint(self.plan, self.last),
        )

    def _stage(
        self,
        frame: DataFrame,
        offsets: BatchOffsets,
        number: int,
        wall_ms: int,
        *,
        is_next: bool,
    ) -> Staged:
        """Stage the records of a batch; is_next: they follow on all that was read, so that of a tombstone's key no newer row is known."""
        folder = join(self.plan.at("staged"), str(number))
        if isinstance(self.spec, MaterializedView):
            last = self.last.view if self.last else None
            to = ViewPosition.read(offsets.source, self.plan.checkpoint.path)
            return stage_view(self.plan, frame.sparkSession, ViewStaging(last, to, folder, number, wall_ms))
        decoding = self.plan.decoding
        if not is_next:
            decoding = replace(decoding, doubts_tombstones=False)
        staging = Staging(
            decoding,
            self.plan.stager(folder),
            number,
            wall_ms,
            tracks_offsets=self.plan.tracks_offsets,
        )
        records = self.plan.source.records(frame, offsets.source, decoding.max_record_bytes)
        staged = stage(records, staging)
        if not self.spec.has_transform:
            return staged
        staged = replace(staged, find=RecordsOfBatch(records, decoding, number))
        return selected_changes(frame.sparkSession, self.plan, staged, folder)

    def _progress(
        self,
        facts: StepFacts,
        *,
        kind: str,
        batch_id: int | None,
        records: int,
        metrics: dict[str, int],
        started: float,
    ) -> StepProgress:
        return StepProgress(
            pipeline=self.spec.name,
            step=facts.step,
            kind=kind,
            batch_id=batch_id,
            records=records,
            quarantined=facts.quarantined,
            other_tables=facts.other_tables,
            ignored_columns=[name for name in facts.ignored_columns if name not in self.spec.table.columns.names],
            evolved=dict(self.plan.evolved),
            metrics=metrics,
            now_ms=facts.now_ms,
            watermark_ms=facts.watermark_ms,
            held_ms=facts.held_ms,
            seconds=time.monotonic() - started,
            recomputed=facts.recomputed,
        )
