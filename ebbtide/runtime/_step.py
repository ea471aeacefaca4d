"""The steps of one run: what stands, the facts of the next step, its one commit to the state, and its way into the other tables.

A crash before the state's commit leaves nothing; after it the step is finished from the commit.
"""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from ebbtide.delta import Action, Log, Snapshot
from ebbtide.errors import SourceLogError
from ebbtide.ledger import Cause, Head, Lease, NoStep, SourceFacts, StateFacts, StepFacts
from ebbtide.model import Action as TableAction
from ebbtide.model import BatchSummary, Decision, Frontier, Reading, Rewrite, Source, StepRecords
from ebbtide.runtime._decide import Committed, decide, expire, transform
from ebbtide.runtime._diagnosis import Diagnosis
from ebbtide.runtime._fold import fold_state
from ebbtide.runtime._kept_runs import keeping
from ebbtide.runtime._missing_rows import MissingRows, missing_rows
from ebbtide.runtime._outputs import new_outputs, to_commit
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._publish import publish
from ebbtide.runtime._stage import Staged
from ebbtide.sources import Part, Span
from ebbtide.spec import Pipeline
from ebbtide.storage import Together

if TYPE_CHECKING:
    from ebbtide.executors import Executor


class Stepper:
    """Makes the steps of one run, in order; holds the last step's facts between them.

    Args:
        plan: The pipeline.
        lease: Held while the steps are made.
        started_ms: When the run began, epoch ms.
        fresh: A reset comes first: stored data may have an older format or another spec.
        log_begins: What tables without a step know of the source's log, see `Frontier.log_begins`.

    Attributes:
        plan: The pipeline, with the columns that it has by now.
        head: The last step, and the version of the state that holds it.
        tables, snapshot: The output tables; the newest known version of the state.
        source_path: Location of the source, for the next step's facts: that of the last step, until a run sets another.
    """

    def __init__(
        self,
        plan: Plan,
        lease: Lease,
        started_ms: int,
        *,
        fresh: bool = False,
        log_begins: tuple[int, ...] = (),
    ) -> None:
        self.plan, self.lease, self.started_ms = plan, lease, started_ms
        self._log_begins_at_first = log_begins
        self.open(older=fresh)
        self.source_path = self.last.source.path

    def open(self, *, older: bool = False) -> None:
        """Read the logs of the tables, again once they were cut; `older`: see `newest_step`."""
        plan = self.plan
        log = Log(plan.state.path).look()
        last = plan.state.last(older=older, seen=log)
        self.head = Head(log.versions()[-1]) if last is None else Head(*last)
        plan.drop_older_copies(self.last)
        self.tables = OwnTables(plan)
        self.snapshot = plan.state.snapshot(seen=log)
        self._unchanged = self.version  # the newest version of the state that is known to have the last step's rows

    def kept(self) -> AbstractContextManager[None]:
        """Keep the end of maintenance, once the block ends."""
        return keeping(self.spec.name, self.plan.root, self.lease, lambda: self.last)

    def look_again(self) -> None:
        """Forget what is known of the output tables: they were moved aside."""
        self.tables = OwnTables(self.plan)

    @property
    def spec(self) -> Pipeline:
        """The pipeline's spec."""
        return self.plan.spec

    @property
    def last(self) -> StepFacts | NoStep:
        """Facts of the last step."""
        return self.head.facts

    @property
    def made(self) -> StepFacts:
        """Facts of the last step of a pipeline that has made one.

        Raises:
            LookupError: it has made none.
        """
        if isinstance(self.last, StepFacts):
            return self.last
        raise LookupError(f"'{self.spec.name}' has made no step")

    @property
    def log_begins(self) -> tuple[int, ...]:
        """Event times at which the source's log restarted, epoch ms, ascending."""
        return self.last.frontier.log_begins if self.last.frontier else self._log_begins_at_first

    @property
    def version(self) -> int:
        """Version of the state after the last step."""
        return self.head.version

    @property
    def number(self) -> int:
        """Number of the last step, 0 before the first."""
        return self.last.step

    @property
    def last_number(self) -> int:
        """Number of the last step of any table: later than the state's if the state was restored."""
        return max(self.number, self.tables.last_step())

    @property
    def last_read(self) -> Span | None:
        """The last batch of a source that is read by position: up to its end the source is read. None before the first step."""
        return Span.from_stored(self.last.source.position)

    @property
    def source_start(self) -> Span | None:
        """The start of the first batch, for a source that is read by position; None before it.

        Steps of an older version do not say: then what the ledger has noted counts, or else what the last batch began with.
        """
        last = self.last_read
        if last is None:
            return None
        beginning = self.lease.facts.beginning
        noted = None if beginning is None else Span.from_stored(beginning.position)
        return Span.from_stored(self.last.source.start) or noted or last.beginning

    @property
    def follows_on(self) -> Span | None:
        """The position that the source's next batch follows on; None before a run has noted where reading begins."""
        return self.plan.follows_on(self.last_read, self.lease.facts.beginning)

    @property
    def read_up_to(self) -> dict[str, Any] | None:
        """The offset up to which the source is read, as its planner takes it; None before the first batch."""
        last = self.last
        if self.spec.is_view:
            view = last.frontier.view if last.frontier else None
            return None if view is None else view.model_dump()
        read = last.source.position or last.source.offset
        if read is None and last.source.batch_id is not None:
            return {}  # of a source with parts, which remembers them by their names
        return read

    @property
    def all_read(self) -> Span | None:
        """From where to where a source that is read by position was read; None before the first step."""
        last = self.last_read
        start = self.source_start
        return None if start is None or last is None else replace(start, end=last.end)

    @property
    def diagnosis(self) -> Diagnosis:
        """The faults of the pipeline's parts."""
        return Diagnosis(self.plan, self.tables, self.head, self.found)

    def next_clock(self, wall_ms: int) -> Reading:
        """Read the clock for the next step.

        Args:
            wall_ms: The wall clock, epoch ms.
        """
        paused_ms = self.lease.seen.paused_until(wall_ms)
        return self.plan.rules.clock_after(self.last.frontier, wall_ms, self.started_ms, paused_ms)

    def facts(
        self,
        cause: Cause,
        clock: Reading | None = None,
        batch: BatchSummary | None = None,
        *,
        decision: Decision | None = None,
        source: SourceFacts | None = None,
        frontier: Frontier | None = None,
    ) -> StepFacts:
        """Make the facts of the next step.

        Args:
            cause: Why it is made.
            clock: Of the step. Default: that of the last step, which then does not move on.
            batch: The records that it applies. Default: none.
            decision: Its actions on output tables and source. Default: none.
            source: Up to where the source is read then. Default: as after the last step.
            frontier: Where the pipeline then stands. Default: what follows from the last step, the clock and the records.
        """
        last = self.last.frontier
        if frontier is None:
            now = clock or (last.clock if last else Reading(0, 0))
            frontier = self.plan.rules.next_frontier(last, now, batch, self.log_begins)
        return StepFacts(
            pipeline=self.spec.name,
            step=self.number + 1,
            incarnation=self.lease.facts.incarnation,
            epoch=self.lease.facts.epoch,
            code=_release(),
            uid=uuid.uuid4().hex,
            cause=cause,
            frontier=frontier,
            read=StepRecords() if batch is None else StepRecords.of(last, batch),
            decision=decision or Decision(),
            source=source or self.source_kept(),
            state=self._state_facts(),
        )

    def source_kept(self) -> SourceFacts:
        """Return the source facts of a step that reads nothing: the position of the last step."""
        last = self.last.source
        return SourceFacts(
            path=self.source_path,
            batch_id=last.batch_id,
            position=last.position,
            offset=last.offset,
            start=Span.stored_form(self.source_start),
            lost=None if self.number else self.lost_before,
        )

    def source_begun(self, read: Span | None, start: Span | None) -> SourceFacts:
        """Return what a step says of a source that is read from elsewhere.

        Args:
            read: Its end is the new position; None: the beginning, or the source is not read by position.
            start: Where its first batch began.
        """
        return SourceFacts(
            path=self.source_path,
            position=Span.stored_form(read),
            start=Span.stored_form(start),
        )

    def begun_elsewhere(
        self,
        what: str,
        tables: Mapping[str, TableAction],
        source: SourceFacts,
        frontier: Frontier,
        state: Mapping[str, Any],
        *,
        after: int = 0,
    ) -> StepFacts:
        """Return the facts of a step that reads the source from another position: a reset, a rewind, a swap. It starts a new incarnation.

        Step numbers rise over all incarnations: the state may have been restored, but not the other tables.

        Args:
            what: What makes it: its cause.
            tables: Actions of the output tables.
            source: Where the source is read from then.
            frontier: Where the pipeline then stands.
            state: Fields of the state's facts that are other than after the last step.
            after: A step that this one must follow, in addition to those of the pipeline.
        """
        self.lease.renew_incarnation()
        decision = Decision(tables=dict(tables), source=Source.BEGIN)
        facts = self.facts(Cause(what=what), decision=decision, source=source, frontier=frontier)
        number = 1 + max(self.last_number, after)
        return facts.with_state(dict(state)).model_copy(update={"step": number})

    @property
    def lost_before(self) -> str | None:
        """Description of records lost before the first step, if the loss was accepted."""
        beginning = self.lease.facts.beginning
        return None if beginning is None else beginning.lost

    def _state_facts(self) -> StateFacts:
        return StateFacts(
            version=self.version,
            spec=self.spec.identity,
            evolved=dict(self.plan.evolved),
            tables=self.tables.noted(),
            erased=self.plan.erasures.newest(self.last),
            **self.last.state.of_entries,
        )

    def commit(self, facts: StepFacts, actions: Sequence[Action]) -> None:
        """Commit a step: the decision.

        Args:
            actions: What it changes in the newest version of the state.

        Raises:
            LeaseLostError: another run committed this step first.
            ConfigError: the sink, or a further output, cannot perform its action.
        """
        facts = to_commit(self.plan, self.last, facts)
        self.lease.check()
        self.advance_to(facts, self.plan.state.perform(actions, facts, self.snapshot))

    def apply(self, executor: Executor, staged: Staged, facts: StepFacts, parts: Sequence[Part] = ()) -> StepFacts:
        """Commit the decision on staged records.

        Args:
            staged: The records.
            parts: Parts of the source that are read with it.

        Returns:
            The facts as committed.

        Raises:
            LeaseLostError: another run committed this step first.
            SourceLogError: the records are of another log of the source.
        """
        Together.before_commit(self.lease.check)
        self.refuse_other_logs(staged.summary)  # also of replayed records
        known = self.newest(looks=False)
        made, facts = decide(executor, self.plan, self.head, staged, facts, snapshot=known, parts=parts)
        self.advance_to(facts, made)
        return facts

    def expire(
        self, executor: Executor, facts: StepFacts, *, must_commit: bool = False, only_awaited: bool = False
    ) -> StepFacts | None:
        """Commit the decision of a tick; return the facts as committed, None if nothing is due. Arguments as `expire`.

        Raises:
            LeaseLostError: another run committed this step first.
        """
        decided = expire(
            executor,
            self.plan,
            self.head,
            facts,
            snapshot=self.newest(),
            must_commit=must_commit,
            only_awaited=only_awaited,
        )
        return self._advanced(decided)

    def transform(self, executor: Executor, facts: StepFacts) -> StepFacts | None:
        """Commit what the snapshot transformers of a function decide; return the facts as committed, None without a step. See `transform`.

        Raises:
            LeaseLostError: another run committed this step first.
            StatefulFunctionError: a transformer failed.
        """
        decided = transform(executor, self.plan, self.head, facts, snapshot=self.newest())
        return self._advanced(decided)

    def _advanced(self, decided: Committed | None) -> StepFacts | None:
        """Continue from a step if one was committed; return its facts."""
        if decided is None:
            return None
        made, facts = decided
        self.advance_to(facts, made)
        return facts

    def refuse_other_logs(self, read: BatchSummary) -> None:
        """Refuse records that are of another log: by their positions they would lose to older rows, or win over newer ones.

        Args:
            read: Totals over the records.

        Raises:
            SourceLogError: they are.
        """
        frontier = self.last.frontier
        found = [] if frontier is None else frontier.other_logs(read)
        if not found:
            return
        known, part = found[0]
        connector = f" of connector {part.connector}" if part.connector else ""
        times = [each.oldest_ms for _, each in found if each.base == part.base and each.oldest_ms is not None]
        time_text = _time_text(min(times)) if times else "TIME"
        raise SourceLogError.of(
            f"The records of '{self.spec.name}' are of another log of the source than those before.",
            got=f"{part.place_text}{connector}, executed by server {part.server or 'unknown'}; read before: {known.place_text}",
            allowed="one log, or the event time at which the next one continues with the same rows, as after a failover without loss",
            next_step=f"Then run 'ebbtide acknowledge --reason TEXT --new-log {time_text}', the time of its first change. If changes were lost, "
            "have the connector take a new snapshot into an empty topic or folder, and run 'ebbtide refresh'.",
        )

    def advance_to(self, facts: StepFacts, made: Snapshot) -> None:
        """Continue from a step that was committed as a version of the state."""
        self.snapshot = made
        self.head = Head(made.version, facts)
        self._unchanged = made.version

    @property
    def is_published(self) -> bool:
        """True if all tables have performed the last step, as far as this run knows them."""
        noted = self.tables.noted()
        steps = [noted[name].step for name in self.last.decision.tables if name in noted]
        return min(steps, default=self.number) >= self.number

    def publish(self, executor: Executor) -> dict[str, int]:
        """Bring the other tables to the last decision; return the step's counts."""
        return dict(publish(executor, self.plan, self.head, self.tables))

    def publish_by_logs(self, executor: Executor, plan: Plan | None = None, *, leave: Collection[str] = ()) -> None:
        """Bring the other tables to the last decision, as far as their logs, which are read again, say that they lack it.

        Args:
            plan: The pipeline as it was when the step was decided. Default: as it is.
            leave: Names of tables that cannot apply it: a repair restores them.
        """
        publish(executor, plan or self.plan, self.head, leave=leave)

    def fill_new_outputs(self, executor: Executor) -> None:
        """Give outputs that were added to the spec the sink's rows, in a step. The last step is published."""
        new = new_outputs(self.plan, self.last)
        if not new:
            return
        decision = Decision(tables={name: Rewrite() for name in new})
        self.commit(self.facts(Cause(what="outputs"), decision=decision), [])
        self.publish(executor)

    def missing_rows(self, name: str, since: int) -> MissingRows:
        """Return the rows that changelog or quarantine lacks from the steps after one.

        Args:
            name: `changelog` or `quarantine`.
            since: The last step that it has; 0 for none.
        """
        return missing_rows(self.plan, name, since)

    def fold(self, executor: Executor) -> None:
        """Join small files of the tables, now that the last step is published."""
        self.snapshot = fold_state(executor, self.plan, self.newest(looks=False), self.lease.check)
        self.newest(looks=False)  # judges the fold's commit while the step holds it
        for output in (self.plan.sink, *self.plan.outputs.values()):
            output.fold(executor)

    def newest(self, *, looks: bool = True) -> Snapshot:
        """Return the newest version of the state; without a look the newest known: enough before a commit, which fails behind another's.

        Raises:
            TableMismatchError: another client has changed its rows since the last step.
        """
        newest = self.found() if looks else self.snapshot
        if newest.version > self._unchanged:
            if self.number:
                self.plan.state.refuse_changed(newest, self.version)
            self._unchanged = newest.version
        return newest

    def found(self) -> Snapshot:
        """Return the newest version of the state, also one of another client: for what starts over, or brings its rows back."""
        self.snapshot = self.snapshot.advanced()
        return self.snapshot

    def files_read(self) -> dict[str, int | None]:
        """Return the source files that were read, with their bytes."""
        return self.plan.state.files(self.newest(looks=False).files.values())

    def files_decided(self) -> dict[str, int | None]:
        """Return them as of the last step, regardless of later changes of the state by other clients.

        Raises:
            DamagedFileError, DeltaLogError: a file that describes them, or the version of the last step, is missing or damaged.
        """
        state = self.found()
        _, versions = self.plan.state.foreign_change(self.version, state)
        decided = state if versions[-1] == state.version else self.plan.state.snapshot(versions[-1])
        return self.plan.state.files(decided.files.values())


@cache
def _release() -> str:
    """Return this release's version, read once: its file is parsed as an e-mail."""
    return importlib.metadata.version("ebbtide")


def _time_text(event_ms: int) -> str:
    """Return a time as commands take it."""
    at = datetime.fromtimestamp(event_ms / 1000, UTC)
    text = at.isoformat(timespec="milliseconds" if event_ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")
