"""The steps of a run that reads its source: batches, records read again, the tick at the end, losses that are accepted.

A batch goes through these phases, one after the other:

| phase | result | module |
|---|---|---|
| begin | whether the lease is held, and the pipeline is not paused | `ledger` |
| read | `SourceBatch`: the records, not read yet, and their places | `sources` |
| stage | `Staged`: decoded records in files of the step's own | `runtime.stage`; in tasks `sources`, `formats` |
| take in | new columns of the records, as a separate step before this one | `runtime.drift` |
| judge | `BadRows`: new bad records, refused or laid ready | `runtime.bad_rows` |
| decide | the state's next version, which holds the decision: from here on the step is made | `runtime.decide`; in tasks `operators` |
| publish | sink, changelog and quarantine have performed their actions | `runtime.publish`, `tables` |
| fold | small files are joined | `runtime.fold` |

A run that died before the decision leaves nothing, and the next one plans a batch from where the last step stands. One that died after it
is finished by the next run, which reads no record for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ebbtide.ddl import ddl_of
from ebbtide.executors import InProcess
from ebbtide.ledger import Beginning, Cause, NoStep, SourceFacts, StepFacts
from ebbtide.model import Alter, Decision, Reading, SchemaChange, Source, ViewPosition
from ebbtide.runtime._bad_rows import BadRows, columns_taken_in
from ebbtide.runtime._decide import selected_changes
from ebbtide.runtime._erasing import ErasureKey
from ebbtide.runtime._finding import RecordsOfBatch
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._progress import StepClock, StepColumns, StepProgress, ignore
from ebbtide.runtime._stage import Staged, delete_staged, deleted_on_failure, stage, stage_view
from ebbtide.runtime._step import Stepper
from ebbtide.runtime._timing import Pace, no_pace
from ebbtide.runtime._workers.staging import Staging
from ebbtide.sources import Discovery, SourceBatch, Span
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class PlannedBatch:
    """A batch that is not decided yet.

    Args:
        number: Its number, from 0.
        end: The offset at its end; see `BatchPlanner`.
        planned_ms: When it was planned, epoch ms: the clock of its step.
    """

    number: int
    end: dict[str, Any]
    planned_ms: int


@dataclass(frozen=True)
class _Reading:
    """The input of a step, and the notes that the step keeps of it.

    Args:
        cause: Why it is made.
        executor: Runs the step's work.
        end: The offset at its end.
        clock: The clock of the step.
        batch: Its records.
        advances: The next batch follows on its end. So no row of a tombstone's key is known that is newer.
        noted: Fields of `SourceFacts` that differ from those after the last step.
    """

    cause: Cause
    executor: Executor
    end: Mapping[str, Any]
    clock: Reading
    batch: SourceBatch
    advances: bool
    noted: Mapping[str, Any]


@dataclass
class SourceSteps:
    """Makes the steps that read the source, and the tick that ends them.

    Args:
        stepper: Commits them.
        on_phase: Called with each phase that begins, and its step.
        pace: Holds batches back.
        on_look: Called with the discovery of each poll of the source.

    Attributes:
        parts_read: Parts of the source that were read so far.
        places_read: Offsets of it, for a source that is read by position.
        newly_read: Parts that were read since the last look, to their sizes.
    """

    stepper: Stepper
    on_phase: Callable[[str, int], None] = ignore
    pace: Pace = field(default_factory=no_pace)
    on_look: Callable[[Discovery], None] = ignore
    parts_read: int = field(default=0, init=False)
    places_read: int = field(default=0, init=False)
    newly_read: dict[str, int | None] = field(default_factory=dict, init=False)
    _has_deleted: bool = field(default=False, init=False)

    @classmethod
    def at_rate(
        cls,
        per_second: int | None,
        stepper: Stepper,
        stop: threading.Event,
        on_phase: Callable[[str, int], None] = ignore,
    ) -> Self:
        """Return those that read no more than some records a second; None: as fast as they can.

        Args:
            per_second: Records a second.
            stepper: Commits the steps.
            stop: Ends the waiting.
            on_phase: See the class.
        """
        return cls(stepper, on_phase, Pace(per_second, stop))

    @property
    def plan(self) -> Plan:
        """The pipeline."""
        return self.stepper.plan

    def batch(self, executor: Executor, planned: PlannedBatch) -> StepProgress:
        """Make the step of one batch."""
        self._refuse_to_begin()
        started = time.monotonic()
        batch = self.plan.source.batch(executor, planned.end, self.plan.decoding.max_record_bytes)
        facts, n_known_bad = self._decide_batch(executor, planned, batch)
        progress = self._finish(executor, facts, "batch", started, n_known_bad)
        self._count(batch)
        return progress

    @property
    def is_open(self) -> bool:
        """True if the last step is a batch that some table has not performed: the run that decided it died, or met a fault."""
        stepper = self.stepper
        return stepper.last.decision.reads_source and not stepper.is_published

    def replayed(self, executor: Executor) -> StepProgress:
        """Finish a batch that was decided before; no record is read for it."""
        return self._finish(executor, self.stepper.made, "replay", time.monotonic())

    def hold(self) -> None:
        """Wait until the next batch may begin, by the pace."""
        self.pace.wait(self._refuse_to_begin)

    def _count(self, batch: SourceBatch) -> None:
        self.parts_read += len(batch.parts)
        self.newly_read.update(batch.parts)
        self.places_read += batch.span.size if batch.span else 0

    def _decide_batch(
        self,
        executor: Executor,
        planned: PlannedBatch,
        batch: SourceBatch,
    ) -> tuple[StepFacts, int]:
        """Commit the decision on a batch; return its facts, and how many of its bad records were known already."""
        is_remembered = batch.span is not None or batch.parts or self.plan.spec.is_view
        noted = {
            "batch_id": planned.number,
            "position": Span.stored_form(batch.span),
            "offset": None if is_remembered else planned.end,
            "start": Span.stored_form(Span.begun_at(self.stepper.source_start, batch.span)),
        }
        clock = self.stepper.next_clock(planned.planned_ms)
        reading = _Reading(Cause(what="batch"), executor, planned.end, clock, batch, advances=True, noted=noted)
        with deleted_on_failure(self.plan.at("staged")):
            staged = self._staged_by_its_columns(reading)
            return self._decide(reading, staged)

    def reread(self, executor: Executor, places: Span, reason: str, clock_ms: int) -> StepProgress:
        """Apply records of the source before the pipeline's position, as a step; the position does not change.

        Args:
            places: Where they begin and end.
            reason: Why, kept with the step.
            clock_ms: The time, epoch ms.
        """
        stepper = self.stepper
        stepper.lease.check()
        self.pace.wait(stepper.lease.check)
        started = time.monotonic()
        end = places.to_json()
        batch = self.plan.source.batch(executor, end, self.plan.decoding.max_record_bytes)
        cause = Cause(what="backfill", why=reason)
        clock = stepper.next_clock(clock_ms)
        reading = _Reading(cause, executor, end, clock, batch, advances=False, noted={"reread": end})
        staged = self._staged_by_its_columns(reading)
        facts, n_known_bad = self._decide(reading, staged)
        progress = self._finish(executor, facts, "backfill", started, n_known_bad)
        self._count(batch)
        return progress

    def tick(self, executor: Executor, clock_ms: int, *, is_extra: bool = False) -> StepProgress | None:
        """Expire due entries; None if there are none and nothing else must be stored.

        That is where the source is now, and, where downtime is left out, when the run ended.

        Args:
            executor: Runs the work.
            clock_ms: The time, epoch ms.
            is_extra: Made only because entries may be due: when the run ended is left to a later one.
        """
        last = self.stepper.last
        if isinstance(last, NoStep):
            return None
        has_moved = self.stepper.source_path != last.source.path
        if not (has_moved or self.plan.may_expire):
            return None
        notes_time = self.plan.spec.downtime_over is not None and not is_extra
        must_commit = has_moved or notes_time
        return self._tick(executor, clock_ms, self.stepper.source_kept(), must_commit=must_commit)

    @property
    def expires_on_time(self) -> bool:
        """Return whether a state must expire within a minute."""
        return bool(self.plan.operator.expiry.on_time)

    def may_be_due(self, clock_ms: int) -> bool:
        """Return whether a tick might find something to do, by the statistics of the newest known state.

        Args:
            clock_ms: The time, epoch ms.
        """
        stepper = self.stepper
        if isinstance(stepper.last, NoStep) or not self.plan.may_expire:
            return False
        frontier = self.plan.rules.next_frontier(stepper.last.frontier, stepper.next_clock(clock_ms))
        files = stepper.newest(looks=False).files.values()
        return self.plan.state.may_be_due(files, frontier.operator_step(stepper.number + 1))

    def accept_loss(self, executor: Executor, place: Span, lost: str, clock_ms: int) -> StepProgress | None:
        """Record in a step that records of the source are lost, and the new position; before the first step, for that one.

        Args:
            place: Begins and ends where the next batch begins.
            lost: What is lost.
            clock_ms: The time, epoch ms.

        Returns:
            The step; None before the first one, when nothing was read.
        """
        stepper = self.stepper
        position = place.to_json()
        if isinstance(stepper.last, NoStep):
            known = stepper.lost_before
            all_lost = lost if known is None else f"{known} {lost}"
            stepper.lease.note_beginning(Beginning(position=position, asked=self.plan.start_asked, lost=all_lost))
            return None
        start = Span.begun_at(stepper.source_start, place)
        noted = {
            "position": position,
            "start": Span.stored_form(start),
            "lost": lost,
        }
        source = stepper.source_kept().model_copy(update=noted)
        return self._tick(executor, clock_ms, source, must_commit=True)

    def _tick(
        self,
        executor: Executor,
        clock_ms: int,
        source: SourceFacts,
        *,
        must_commit: bool,
    ) -> StepProgress | None:
        stepper = self.stepper
        started = time.monotonic()
        stepper.lease.check()
        self.on_phase("expiring", stepper.number + 1)
        facts = stepper.facts(Cause(what="tick"), stepper.next_clock(clock_ms), source=source)
        made = stepper.expire(executor, facts, must_commit=must_commit)
        return None if made is None else self._finish(executor, made, "tick", started)

    def _refuse_to_begin(self) -> None:
        """Refuse to begin a batch once another run has taken over, another process needs the lease, or the pipeline is paused."""
        lease = self.stepper.lease
        lease.check()
        lease.make_way()
        lease.seen.refuse_paused()

    def _staged_by_its_columns(self, reading: _Reading) -> Staged:
        """Stage records.

        If they bring new columns, add these in a separate step, and stage the records again with the new plan.
        """
        staged = self._staged(reading)
        new_columns = columns_taken_in(self.plan.spec, staged.summary)
        if not new_columns:
            return staged
        _add_columns(reading.executor, self.stepper, new_columns, reading.clock)
        return self._staged(reading)

    def _staged(self, reading: _Reading) -> Staged:
        self.on_phase("reading", self.stepper.number + 1)
        return _stage(self.stepper, reading)

    def _decide(self, reading: _Reading, staged: Staged) -> tuple[StepFacts, int]:
        """Commit the decision on staged records; return its facts, and how many bad records were known already."""
        stepper = self.stepper
        stepper.refuse_other_logs(staged.summary)  # before bad rows are written
        bad = BadRows.of(self.plan, stepper.head, staged)
        self.on_phase("deciding", stepper.number + 1)
        summary = staged.summary.with_counts(bad=len(bad.new))
        goes_on = Source.ADVANCE if reading.advances else Source.KEEP
        source = stepper.source_kept().model_copy(update=dict(reading.noted))
        facts = stepper.facts(
            reading.cause,
            reading.clock,
            summary,
            decision=Decision(source=goes_on),
            source=source,
        )
        facts = bad.laid_ready(self.plan, facts)
        facts = stepper.apply(reading.executor, staged, facts, reading.batch.parts)
        self.pace.passed(facts.read.records)
        return facts, bad.n_known

    def _finish(
        self,
        executor: Executor,
        facts: StepFacts,
        kind: str,
        started: float,
        n_known_bad: int = 0,
    ) -> StepProgress:
        """Publish a step, fold the tables, and report it.

        Args:
            facts: The step's, which is the last one.
            kind: See `StepProgress`.
            started: When it began, by the monotonic clock.
            n_known_bad: Bad records that were known already.
        """
        stepper = self.stepper
        if kind != "tick":
            self.on_phase("merging", facts.step)
        metrics = stepper.publish(executor)
        if n_known_bad:
            metrics["redelivered"] = metrics.get("redelivered", 0) + n_known_bad
        if kind != "tick":
            delete_staged(self.plan.at("staged"), is_clean=self._has_deleted)
            self._has_deleted = True
        executor.describe(f"{facts.pipeline}: step {facts.step}: folding")
        stepper.fold(executor)
        known = self.plan.spec.table.columns.names
        ignored = [name for name in facts.read.ignored_columns if name not in known]
        frontier = facts.frontier
        return StepProgress(
            pipeline=facts.pipeline,
            step=facts.step,
            kind=kind,
            batch_id=facts.source.batch_id if kind in ("batch", "replay") else None,
            records=facts.read.records,
            quarantined=facts.read.quarantined,
            other_tables=facts.read.other_tables,
            metrics=metrics,
            clock=StepClock(facts.now_ms, frontier.watermark_ms, frontier.clock.held_ms),
            seconds=time.monotonic() - started,
            columns=StepColumns(ignored, dict(self.plan.evolved)),
            recomputed=facts.read.recomputed,
        )


def _add_columns(executor: Executor, stepper: Stepper, types: Mapping[str, str], clock: Reading) -> None:
    """Add columns of the source to the tables, in a separate step that rewrites no row.

    Args:
        stepper: Commits the step.
        types: Column to its type, as DDL.
        clock: Of the step.
    """
    before = stepper.spec
    plan = stepper.plan.with_columns(types)
    plan.sink.refuse_unalterable(before.sink_table.columns)
    stepper.plan = plan
    change = SchemaChange(added=dict.fromkeys(types))
    alter = Alter(change, ddl_of(before.table.columns))
    decision = Decision(tables={"sink": alter, "changelog": alter})
    facts = stepper.facts(Cause(what="migration"), clock, decision=decision)
    stepper.commit(facts, plan.state.redefined(stepper.newest()))
    stepper.publish(executor)


def _stage(stepper: Stepper, reading: _Reading) -> Staged:
    """Stage the records of the next step."""
    plan = stepper.plan
    number = stepper.number + 1
    executor = reading.executor
    wall_ms = reading.clock.wall_ms
    folder = Location(plan.at("staged")) / str(number)
    if plan.spec.is_view:
        frontier = stepper.last.frontier
        last = frontier.view if frontier else None
        to = ViewPosition.model_validate(reading.end)
        return stage_view(plan, executor, last, to, folder, step=number, wall_ms=wall_ms)
    decoding = plan.decoding.after(stepper.log_begins)
    if not reading.advances:
        decoding = replace(decoding, doubts_tombstones=False)
    refused = ErasureKey.refused(plan, plan.erasures.newest(stepper.last))
    is_here = isinstance(executor, InProcess)
    staging = Staging(
        decoding,
        plan.stager(folder, refused, stepper.head, n_slices=executor.slices, in_memory=is_here),
        number,
        wall_ms,
        tracks_offsets=plan.tracks_offsets,
    )
    staged = stage(reading.batch.records, staging)
    if reading.advances:
        plan.source.measured(reading.batch, staged.summary.counts.bytes, plan.batch_sizes)
    if not plan.spec.has_transform:
        return staged
    staged = replace(staged, find=RecordsOfBatch(reading.batch.records, decoding, number))
    return selected_changes(executor, plan, staged, folder)
