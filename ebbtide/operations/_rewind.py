"""Rewind: restores a pipeline to an earlier step: state, sink, changelog, quarantine, clock and offsets.

It makes a new step: the decision is the earlier state, and publishing restores the other tables. Its facts name
the earlier position, so later files are read again. Step numbers keep rising. Tables keep their history: a rewind can be rewound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.delta import Action, Log, Snapshot
from ebbtide.errors import HistoryGoneError, SpecChangedError, Terminal
from ebbtide.faults import Fault
from ebbtide.ledger import StepFacts
from ebbtide.model import Decision, Restore
from ebbtide.operations._operation import Report
from ebbtide.operations._places import BY_VACUUM, Place, of_actions, with_places
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, Stepper
from ebbtide.sources import Span
from ebbtide.spec import Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def plan(executor: Executor, spec: Pipeline, root: str, to_step: int) -> Report:
    """Return the plan of a rewind. Changes nothing.

    Args:
        root: Folder of all pipelines' tables.
        to_step: The step to go back to.

    Raises:
        HistoryGoneError: the step or files of its versions no longer exist, or a refresh came after it.
        SpecChangedError: the step was made with another spec.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    with stepping(executor, tables, parts=("tables",)) as stepper:
        _finish_open(executor, stepper, to_step)
        target = _Target.find(tables, stepper, to_step)
        return target.report(stepper.last_number)


def apply(executor: Executor, spec: Pipeline, root: str, to_step: int) -> Report:
    """Go back to an earlier step; arguments and errors as `plan`."""
    tables = Plan.under(root, spec)
    with stepping(executor, tables, parts=("tables",)) as stepper:
        _finish_open(executor, stepper, to_step)
        target = _Target.find(tables, stepper, to_step)
        n_before = stepper.last_number
        facts = _facts(stepper, target)
        stepper.commit(facts, target.actions)
        stepper.publish(executor)
        return target.report(n_before, facts.step)


def _facts(stepper: Stepper, target: _Target) -> StepFacts:
    """Return the facts of the rewinding step; it starts a new incarnation."""
    earlier = target.facts
    restores = {}
    for name, version in target.versions.items():
        restores[name] = Restore(version, changes_rows=True)
    position = Span.from_stored(earlier.source.position)
    start = Span.from_stored(earlier.source.start)
    source = stepper.source_begun(position, start)
    return stepper.begun_elsewhere("rewind", restores, source, earlier.frontier, earlier.state.of_entries)


def can_go_back(stepper: Stepper, to_step: int) -> bool:
    """Return whether a rewind to a step is possible.

    Args:
        to_step: The step.
    """
    try:
        _Target.find(stepper.plan, stepper, to_step)
    except (HistoryGoneError, SpecChangedError):
        return False
    return True


def _finish_open(executor: Executor, stepper: Stepper, to_step: int) -> None:
    """Publish the last step. If the state was restored, the other tables should already have it, and later ones.

    A step that is undone anyway may stay unfinished: its rows are removed.

    Raises:
        HistoryGoneError: a table lacks it, and it is the step to go back to.
    """
    last = stepper.last
    if stepper.last_number == stepper.number:
        try:
            stepper.publish(executor)
        except Terminal:
            if to_step == last.step:
                raise
        return
    # The state was restored to before the newest step of the other tables: this step was published long ago, or is lost.
    lacking = stepper.tables.lacking(last.decision, last.step)
    if not lacking or to_step != last.step:
        return
    before = last.step - 1
    allowed = "no step: this is the first one"
    next_step = "Run 'ebbtide refresh' to rebuild all tables from the source."
    if before:
        allowed = "an earlier step"
        rewind = f"Run 'ebbtide rewind --to-step {before} --apply', which reads the records of step {to_step} again"
        next_step = f"{rewind}; or 'ebbtide refresh' to rebuild all tables from the source."
    tables = ", ".join(lacking)
    raise HistoryGoneError.of(
        f"'{stepper.spec.name}' cannot go back to step {to_step}: some tables lack its rows, and some are of a later step.",
        got=f"no step {to_step} in {tables}",
        allowed=allowed,
        next_step=next_step,
    )


@dataclass(frozen=True)
class _Target:
    """The step to go back to.

    Args:
        pipeline: Name of the pipeline.
        version: The state's version that holds its decision.
        facts: Its facts.
        actions: The actions that restore that version of the state.
        versions: Name of an output table to its version at that step.
        places: The files removed from the newest versions of the tables.
        undone: Facts of the steps since, the newest first.
    """

    pipeline: str
    version: int
    facts: StepFacts
    actions: list[Action]
    versions: dict[str, int]
    places: tuple[Place, ...]
    undone: tuple[StepFacts, ...]

    @classmethod
    def find(cls, tables: Plan, stepper: Stepper, to_step: int) -> _Target:
        """Find the step; refuse one that a rewind cannot restore."""
        undone: list[StepFacts] = []
        for version, facts in tables.state.steps():
            if facts.step == to_step:
                return cls.of(tables, stepper, version, facts, undone)
            undone.append(facts)
            if facts.decision.is_reset:
                break  # before it was another history
        first = undone[-1].step if undone else 0
        raise HistoryGoneError.of(
            f"'{tables.spec.name}' cannot go back to step {to_step}.",
            got=f"step {to_step}",
            allowed=f"{first} to {stepper.number}: the steps since the last refresh whose commits are kept",
            next_step="Name one of these, or run 'ebbtide refresh' to rebuild all tables from the source.",
        )

    @classmethod
    def of(
        cls,
        tables: Plan,
        stepper: Stepper,
        version: int,
        facts: StepFacts,
        undone: Sequence[StepFacts],
    ) -> _Target:
        """Return the target of a step; refuse one that a rewind cannot restore."""
        _refuse_other_spec(tables, facts, undone)
        now = stepper.found()
        actions = now.restoring(version)
        versions, places = _versions_at(stepper, facts, undone)
        of_state = _leaving("state", now, actions, facts.step)
        return cls(
            tables.spec.name,
            version,
            facts,
            actions,
            versions,
            places=(*of_state, *places),
            undone=tuple(undone),
        )

    def report(self, now: int, step: int | None = None) -> Report:
        """Return the report of a rewind to the step.

        Args:
            now: The last step before.
            step: The step that did it; None of a plan.
        """
        to_step = self.facts.step
        kind = self.facts.cause.what
        n_steps = now - to_step
        n_records = _records_to_read(self.undone)
        versions = {"state": self.version, **self.versions}
        steps = amount(n_steps, "step")
        records = amount(n_records, "record")
        restored = [f"{name} to version {version}" for name, version in versions.items()]
        lines = [
            f"back to step {to_step} ({kind}): {steps} undone, {records} to be read again.",
            ", ".join(restored),
        ]
        counts = {
            "to_step": to_step,
            "steps": n_steps,
            "records": n_records,
        }
        details = {"kind": kind, "versions": versions}
        next_step = f"To do it: 'ebbtide rewind --to-step {to_step} --apply'."
        if step is not None:
            next_step = f"Done in step {step}. The next run reads on from there."
        report = Report(self.pipeline, lines, counts, details, step, next_step)
        return with_places(report, self.places)


def _leaving(name: str, now: Snapshot, actions: Sequence[Action], to_step: int) -> list[Place]:
    """Return the place of the files that a table has got since a step."""
    return of_actions(name, now, actions, f"written since step {to_step}, {BY_VACUUM}")


def _records_to_read(undone: Sequence[StepFacts]) -> int:
    """Return how many records are read again after steps are undone, without those that an earlier rewind already returns.

    Records of a backfill into the sink do not count: they are before that position, or other steps have read them.

    Args:
        undone: Facts of the steps, the newest first.
    """
    n_records = 0
    total_then: int | None = None
    # A rewind among the undone steps has already returned records: those of the steps that it undid do not count twice.
    # It undid a step if the step's total is above the total after the rewind.
    for facts in undone:
        total = facts.frontier.total_records or 0
        is_undone_already = total_then is not None and total > total_then
        if is_undone_already:
            continue
        total_then = None
        if facts.decision.is_rewind:
            total_then = total
        elif facts.decision.reads_source:
            n_records += facts.read.records
    return n_records


def _versions_at(stepper: Stepper, facts: StepFacts, undone: Sequence[StepFacts]) -> tuple[dict[str, int], list[Place]]:
    """Return the versions of the output tables after a step, and the files to remove; refuse missing files.

    Args:
        stepper: The pipeline's.
        undone: Facts of the steps since, the newest first.
    """
    tables = stepper.plan
    versions = {}
    places = []
    uids = {later.step: later.uid for later in undone}
    for name in Decision.OWN_OUTPUTS:
        is_sink = name == "sink"
        if is_sink and tables.sink_log is None:
            versions[name] = facts.step  # its versions are steps
            restore = Restore(facts.step, changes_rows=True)
            tables.refuse_unable(restore, "rewind")
            continue
        now = Snapshot.read(tables.at(name), any_features=True)
        if now is None:
            continue
        last = facts.step
        known = 0
        if is_sink:
            last, known = _sink_steps(facts, undone)
        version, found, uid = _version_at(now.table, last)
        Fault.refuse(stepper.diagnosis.of_copy(name, found, uid, uids.get(found)))
        actions = now.restoring(version)  # refuses missing files
        versions[name] = version
        places += _leaving(name, now, actions, facts.step)
        if found < known:
            raise _newer_sink(tables, facts.step)
    return versions, places


def _sink_steps(facts: StepFacts, undone: Sequence[StepFacts]) -> tuple[int, int]:
    """Return the last step whose sink rows equal the state's after a given step, and the least step that it must have had.

    A repair that follows directly does not change the state: after it the sink shows the state, after any damage.

    Args:
        undone: Facts of the steps since, the newest first.
    """
    last = facts
    recording = [facts]
    for later in reversed(undone):
        if later.decision.is_repair:
            last = later
            continue
        # Each step records the steps that the tables had before it, also the first step after the repairs.
        recording.append(later)
        break
    known = 0
    for step in recording:
        sink = step.state.tables.get("sink")
        if sink is not None:
            known = max(known, sink.step)
    return last.step, known


def _version_at(table: str, step: int) -> tuple[int, int, str | None]:
    """Return a table's version after a step, with step and `uid` of that commit; 0 before the first."""
    for version, facts in Log(table).own_commits():
        if facts["step"] <= step:
            found, uid = StepFacts.step_and_uid(facts, table)
            return version, found, uid
    return 0, 0, None


def _newer_sink(tables: Plan, step: int) -> HistoryGoneError:
    """Return the error of a sink whose history lacks the rows of a step."""
    steps = [facts["step"] for _, facts in Log(tables.sink.path).own_commits()]
    later = [each for each in steps if each > step]
    first = min(later, default=step + 1)  # the repair that followed
    return HistoryGoneError.of(
        f"'{tables.spec.name}' cannot go back to step {step}: its sink was recreated or restored since.",
        got=f"step {step}",
        allowed=f"step {first - 1}, whose rows were written to the sink again, or a later one",
        next_step="Name one of these, or run 'ebbtide refresh' to rebuild all tables from the source.",
    )


def _refuse_other_spec(tables: Plan, facts: StepFacts, undone: Sequence[StepFacts]) -> None:
    """Refuse a step of another spec; a later step may fit, as after a run that added columns. Arguments as `_versions_at`."""
    changed = tables.spec.misfits(facts.state.spec)
    if not changed:
        return
    first_fitting = None
    for later in undone:
        if tables.spec.misfits(later.state.spec):
            break
        first_fitting = later.step
    allowed = "the spec of the step"
    next_step = "Change the spec back first."
    if first_fitting is not None:
        allowed = f"step {first_fitting} or a later one; or {allowed}"
        next_step = "Name one of these, or change the spec back first."
    raise SpecChangedError.of(
        f"Step {facts.step} of '{tables.spec.name}' was made with another spec.",
        got=", ".join(changed),
        allowed=allowed,
        next_step=next_step,
    )
