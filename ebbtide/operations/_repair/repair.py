"""Repair: restores the output tables to the decisions of the state's steps, and the state to its last step.

Acknowledge: accepts the sink.

Both end failing checks. Damages of output tables are found in the logs, and the first available way is used:

| table | way |
|---|---|
| sink | its newest complete version written by the pipeline, and the change sets of later steps again (`SinkHistory`) |
| sink, if the state keeps all rows | written from the state: the rows that differ, or all if some cannot be read |
| changelog, quarantine | the rows that the state's commits still hold are appended again |

A table without a way is refused by name. A repair is one step, whose facts name the way; a run finishes one that was
killed. Acknowledging is for intended changes, such as rows deleted by hand: their keys are stored in the state, and
checks ignore them until they change again. Checks then start after the repair or acknowledgement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.amounts import named
from ebbtide.delta import DataFile, Snapshot, WholeFiles
from ebbtide.errors import (
    ConfigError,
    DamagedFileError,
    DeltaLogError,
    EbbtideError,
    RepairError,
    TableMismatchError,
    UnsupportedFileError,
)
from ebbtide.ledger import Cause, DataCommit
from ebbtide.model import Action, Decision, RestoreAndApply, Rewrite
from ebbtide.operations._repair.appended import appended_findings, output_findings, set_aside, what_became
from ebbtide.operations._repair.report import Finding, RepairReport
from ebbtide.operations._repair.state import decided_version, refuse_damaged_state, restore_state
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, SinkDifference, SinkHistory, Stepper
from ebbtide.spec import Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor

FORGOTTEN = "rows that the state has forgotten were only in the sink: missing ones are lost"
"""Note on a sink written from a state that forgets rows."""
CANNOT_TAKE = (DamagedFileError, DeltaLogError, TableMismatchError, UnsupportedFileError)
"""Errors of a sink that cannot apply the open step: a repair restores it in another way."""
ACKNOWLEDGE = "accept the sink: 'ebbtide acknowledge --reason TEXT'"
MOST_NAMED = 5
"""Maximum numbers of files and of foreign writes that a finding names."""
REFRESH = "run 'ebbtide refresh' to rebuild all tables from the source"


def plan(executor: Executor, spec: Pipeline, root: str) -> RepairReport:
    """Return the findings, and the ways that a repair would take. Changes nothing.

    Args:
        root: Folder of all pipelines' tables.

    Raises:
        RepairError: a data file of the state is gone or damaged.
        TableMismatchError: another state wrote the sink, or the sink has other columns than the pipeline gave it.
    """
    tables = Plan.under(root, spec)
    with _repairing(executor, tables) as (stepper, unreadable):
        if not stepper.number:
            return RepairReport(spec.name)
        refuse_damaged_state(stepper)
        appended = (*appended_findings(stepper, unreadable), *output_findings(stepper))
        sink = _Sink.of(stepper, unreadable)
        _, report = _sink(executor, stepper, sink)
        found = stepper.found()
        changed_by, versions = tables.state.foreign_change(stepper.version, found, counts_rows=True)
        state_version = versions[-1] if changed_by else None
        findings = (*report.findings, *appended)
        return replace(report, findings=findings, state_version=state_version)


def repair(executor: Executor, spec: Pipeline, root: str) -> RepairReport:
    """Repair the tables, in one step; arguments and errors as `plan`.

    Raises:
        LeaseHeldError: the pipeline is being run.
        RepairError: a table cannot be repaired.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    with _repairing(executor, tables) as (stepper, unreadable):
        if not stepper.number:
            return RepairReport(spec.name)
        stepper.diagnosis.refuse("spec")
        refuse_damaged_state(stepper)
        appended = (*appended_findings(stepper, unreadable), *output_findings(stepper))
        # The open step is published first, to the tables that can take it; a damaged one gets it by the repair.
        leave = {finding.table for finding in appended}
        sink = _Sink.of(stepper, unreadable)
        if not sink.is_usable:
            leave.add("sink")
        refused = _published(executor, stepper, leave)
        if refused is not None:
            sink = replace(sink, refused=str(refused))
        looked_at = tables.delta_sink.version() if sink.is_there else None
        way, report = _sink(executor, stepper, sink)
        findings = (*report.findings, *appended)
        report = replace(report, findings=findings)
        _refuse(report)
        aside = [finding.table for finding in findings if finding.is_aside]
        set_aside(stepper, aside)
        # The state first: data for the other tables is read from its newest version.
        state_version = restore_state(stepper)
        tables.create_outputs(executor)
        had_quarantine = "quarantine" in stepper.last.state.tables
        if had_quarantine or "quarantine" in leave:
            tables.quarantine.create()
        cause = Cause(what="repair", notes=report.losses)
        decision = _decision(
            spec, way, looked_at, [finding.table for finding in findings if finding.table in spec.outputs]
        )
        facts = stepper.facts(cause, decision=decision)
        stepper.commit(facts, [])
        stepper.publish(executor)
        return replace(report, state_version=state_version, action="repair", step=facts.step)


def acknowledge(
    executor: Executor,
    spec: Pipeline,
    root: str,
    reason: str,
    new_log_ms: int | None = None,
) -> RepairReport:
    """Accept the sink, and let checks consider only later commits; arguments and errors as `repair`.

    Args:
        root: Folder of all pipelines' tables.
        reason: Kept with the step.
        new_log_ms: Event time at which the source's log restarted, epoch ms; None: it did not.
    """
    if not reason.strip():
        raise ConfigError.of(
            "Acknowledging needs a reason.",
            got="none",
            allowed="a text, kept with the step",
        )
    tables = Plan.under(root, spec)
    if new_log_ms is not None:
        tables.refuse_epochs()
    tables.refuse_unable(Rewrite(), "acknowledgement")
    with stepping(executor, tables) as stepper:
        if not stepper.number:
            return RepairReport(spec.name)
        stepper.diagnosis.refuse("spec")
        _publish_to_be_accepted(executor, stepper)
        version = tables.delta_sink.version()
        decision = Decision(accepts_sink=version)
        cause = Cause(what="acknowledge", why=reason)
        facts = stepper.facts(cause, decision=decision)
        if new_log_ms is not None:
            facts = facts.model_copy(update={"frontier": facts.frontier.with_log_begun(new_log_ms)})
        report = RepairReport(spec.name)
        actions = []
        if SinkHistory(tables, stepper.made).is_kept:
            differing = _differing(executor, stepper)
            report = _counted(spec.name, differing)
            keys = differing.differing.select(tables.sink.key)
            if len(keys):
                stored_keys = _typed(keys, tables)
                added = tables.state.add_acknowledged(stored_keys, facts.step)
                actions.append(added)
        stepper.commit(facts, actions)
        return replace(report, action=f"acknowledged: {reason}", step=facts.step)


def _published(executor: Executor, stepper: Stepper, leave: Collection[str]) -> EbbtideError | None:
    """Publish the open step to the tables that can apply it, so that a repair need not wait for it.

    Args:
        leave: Names of tables that are known to be damaged.

    Returns:
        The error of a sink that cannot apply it; None if it did.
    """
    try:
        stepper.publish_by_logs(executor, leave=leave)
    except CANNOT_TAKE as error:
        if "sink" in leave:
            raise
        stepper.publish_by_logs(executor, leave={*leave, "sink"})
        return error
    return None


def _publish_to_be_accepted(executor: Executor, stepper: Stepper) -> None:
    """Publish the open step.

    Raises:
        RepairError: the sink cannot apply it, so the sink cannot be accepted: the step would be missing.
    """
    try:
        stepper.publish(executor)
    except CANNOT_TAKE as error:
        raise RepairError.of(
            f"The sink of '{stepper.spec.name}' cannot be accepted: step {stepper.number} is not in it yet, and cannot be applied to it.",
            got=str(error),
            next_step="Run 'ebbtide repair --apply', which takes back what other clients have written and applies the step.",
        ) from error


@contextmanager
def _repairing(executor: Executor, tables: Plan) -> Iterator[tuple[Stepper, Mapping[str, str]]]:
    """Hold a pipeline's lease; yield its stepper, and the names of tables that cannot be read with the reason.

    Raises:
        TableMismatchError: another state wrote the sink.
    """
    tables.refuse_unable(Rewrite(), "repair")
    with stepping(executor, tables, parts=()) as stepper:  # tables may be unreadable
        unreadable = dict.fromkeys(stepper.tables.leave_out_unreadable(), "its log cannot be read")
        stepper.diagnosis.refuse("state")
        if next(stepper.diagnosis.faults("files of the quarantine"), None) is not None:
            stepper.tables.leave_out("quarantine")
            unreadable["quarantine"] = "files are gone or cut off"
        yield stepper, unreadable


@dataclass(frozen=True)
class _Sink:
    """The present state of a sink.

    Args:
        became: Description of the damage; empty: it is the pipeline's table, with all known steps.
        is_there: It is readable and the pipeline's, perhaps an older copy.
        is_aside: Its log cannot be read.
        damaged: Data files that cannot be read.
        refused: Why it cannot take the open step; empty: it can, or was not asked.
    """

    became: str
    is_there: bool
    is_aside: bool
    damaged: tuple[DataFile, ...]
    refused: str = ""

    @classmethod
    def of(cls, stepper: Stepper, unreadable: Collection[str]) -> _Sink:
        """Inspect the sink of a pipeline, by its log and the presence of its files."""
        if "sink" in unreadable:
            return cls("its log cannot be read", is_there=False, is_aside=True, damaged=())
        found = stepper.tables.facts().get("sink")
        if found is None:
            return cls("gone", is_there=False, is_aside=False, damaged=())
        last = stepper.made
        known = last.state.tables.get("sink")
        path = stepper.plan.sink.path
        snapshot = Snapshot.read(path, any_features=True)
        damaged: tuple[DataFile, ...] = ()
        if snapshot is not None:
            damaged = tuple(WholeFiles(path).damaged(snapshot))
        is_own = known is None or known.id == found.id
        became = what_became(known, found)
        is_unfinished = last.decision.is_repair and found.step < last.step
        if not became and is_unfinished:
            became = f"the repair of step {last.step} is unfinished"
        return cls(became, is_there=is_own, is_aside=False, damaged=damaged)

    @property
    def is_usable(self) -> bool:
        """Return whether a step can be published to it."""
        return not self.became and not self.damaged


def _sink(executor: Executor, stepper: Stepper, sink: _Sink) -> tuple[RestoreAndApply | Rewrite | None, RepairReport]:
    """Return the way to repair a sink, None if it needs none; and the damage."""
    tables = stepper.plan
    name = stepper.spec.name
    history = SinkHistory(tables, stepper.made)
    own = None
    if sink.is_there:
        state_version = decided_version(stepper)
        version = tables.delta_sink.version()
        own = history.own_versions(state_version, version)
    found = _found(tables, sink, own.foreign if own else ())
    if not found:
        # Neither log nor files show damage: only the rows can.
        compared = _compared(executor, stepper)
        if compared.has_other_rows:
            return Rewrite(), compared
        return None, compared
    is_readable = not sink.is_aside and sink.became != "gone"
    if is_readable and not _lacks_columns(stepper):
        tables.sink.refuse_altered(stepper.tables.sink())
    # First choice: a complete version written by the pipeline, and later change sets. It also restores rows that the
    # state has forgotten.
    way = history.way_back(own)
    if way is not None:
        finding = Finding("sink", found, _text(way), is_aside=sink.is_aside)
        return way, RepairReport(name, (finding,))
    # Second choice: the state. It does not show whether another client inserted a row that the state has forgotten.
    has_foreign = own is not None and bool(own.foreign)
    forgets = history.may_forget
    if not history.is_kept or (forgets and has_foreign):
        can_be_accepted = has_foreign and not sink.damaged
        way_out = _way_out(can_be_accepted=can_be_accepted)
        finding = Finding("sink", found, way_out, is_refused=True)
        return None, RepairReport(name, (finding,))
    overwrites = bool(sink.damaged or sink.refused)
    which = "all rows" if overwrites else "rows that differ"
    written = f"{which} are written from the state"
    loss = FORGOTTEN if forgets else ""
    finding = Finding("sink", found, written, loss, is_aside=sink.is_aside)
    return Rewrite(overwrites=overwrites), RepairReport(name, (finding,))


def _way_out(*, can_be_accepted: bool) -> str:
    """Return the next steps for a sink that cannot be repaired from its versions or from the state."""
    instead = "Restore it from a copy"
    if can_be_accepted:
        instead = f"Correct its rows, or {ACKNOWLEDGE}"
    return f"no version of the pipeline with all later change sets is left. {instead}; or {REFRESH}"


def _found(tables: Plan, sink: _Sink, foreign: Sequence[DataCommit]) -> str:
    """Describe the damage of a sink that its log and files show; empty if there is none."""
    parts = []
    if sink.became:
        parts.append(sink.became)
    if sink.damaged:
        folder = tables.sink.path
        locations = [file.location(folder) for file in sink.damaged]
        damaged = named(locations, MOST_NAMED)
        parts.append(f"data files are gone or damaged: {damaged}")
    if sink.refused:
        parts.append(f"the last step cannot be applied to it: {sink.refused}")
    if foreign:
        writes = [_write_text(write) for write in foreign]
        changed = named(writes, MOST_NAMED)
        parts.append(f"other clients changed rows: {changed}")
    return "; ".join(parts)


def _write_text(write: DataCommit) -> str:
    operation = write.operation or "unknown operation"
    return f"version {write.version} ({operation})"


def _text(way: RestoreAndApply) -> str:
    begins = f"back to its version {way.version}"
    if way.version is None:
        begins = "begins empty"
    if way.first_step > way.last_step:
        return begins
    if way.first_step == way.last_step:
        return f"{begins}, step {way.first_step} is applied again"
    return f"{begins}, steps {way.first_step} to {way.last_step} are applied again"


def _decision(
    spec: Pipeline, way: RestoreAndApply | Rewrite | None, looked_at: int | None, outputs: Sequence[str]
) -> Decision:
    """Return a repair's decision: it accepts the inspected version of an undamaged sink.

    Args:
        way: The sink's.
        looked_at: The inspected version.
        outputs: Further outputs that are damaged.
    """
    tables: dict[str, Action] = {"quarantine": Rewrite(), **{name: Rewrite() for name in outputs}}
    if spec.emits_every:
        tables["changelog"] = Rewrite()
    if way is None:
        return Decision(tables=tables, accepts_sink=looked_at)
    # The sink comes first: most readers read only the sink.
    return Decision(tables={"sink": way, **tables})


def _refuse(report: RepairReport) -> None:
    for finding in report.refused:
        first, rest = finding.way[:1], finding.way[1:]
        raise RepairError.of(
            f"The {finding.table} of '{report.pipeline}' cannot be repaired.",
            got=finding.found,
            next_step=f"{first.upper()}{rest}.",
        )


def _lacks_columns(stepper: Stepper) -> bool:
    """Return whether the sink does not have the last step's columns yet."""
    last = stepper.made
    if not last.decision.changes_columns:
        return False
    sink_step = stepper.plan.sink.last_step()
    return sink_step < last.step


def _differing(executor: Executor, stepper: Stepper) -> SinkDifference:
    return SinkDifference.found(
        executor,
        stepper.plan,
        stepper.made,
        state_version=decided_version(stepper),
        sink_version=stepper.plan.delta_sink.version(),
    )


def _compared(executor: Executor, stepper: Stepper) -> RepairReport:
    """Compare sink and state by key, if the state keeps the rows that the sink must show."""
    if not SinkHistory(stepper.plan, stepper.made).is_kept or _lacks_columns(stepper):
        return RepairReport(stepper.spec.name)
    stepper.plan.sink.refuse_altered(stepper.tables.sink())
    differing = _differing(executor, stepper)
    return _counted(stepper.spec.name, differing)


def _counted(pipeline: str, differing: SinkDifference) -> RepairReport:
    damages: dict[str, Any] = {**differing.damages()}
    return RepairReport(pipeline, **damages)


def _typed(keys: pa.Table, tables: Plan) -> pa.Table:
    own_names = tables.spec.state_key_of
    stored = tables.operator.schema
    names = [own_names[name] for name in keys.column_names]
    fields = [stored.field(name).with_nullable(True) for name in names]
    named_keys = keys.rename_columns(names)
    return named_keys.cast(pa.schema(fields))
