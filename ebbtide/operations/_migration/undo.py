"""Undoes a migration that was the last step: state, sink and changelog are restored to the versions before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta import Action, Log, Snapshot
from ebbtide.errors import HistoryGoneError, MigrationError
from ebbtide.ledger import Cause, NoStep, StepFacts
from ebbtide.model import Action as TableAction
from ebbtide.model import Alter, Decision, Restore, Rewrite
from ebbtide.operations._migration.report import migration_report
from ebbtide.operations._operation import Report
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor

_CHANGE_BACK = "Change the spec back and migrate again: removed stamps and values do not come back."
"""The next step where a migration cannot be undone."""


def undo(executor: Executor, spec: Pipeline, root: str) -> Report:
    """Restore state, sink and changelog to before a migration that was the last step; makes a separate step.

    Args:
        spec: The pipeline, with either configuration.
        root: Folder of all pipelines' tables.

    Raises:
        MigrationError: the last step is not a migration or has undone one, or the data before it is gone.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    with stepping(executor, tables) as stepper:
        last = stepper.last
        before = _step_before_migration(tables, last)
        if isinstance(last, NoStep) or before is None:
            what = last.cause.what
            raise MigrationError.of(
                f"There is no migration of '{spec.name}' to undo.",
                got=f"step {stepper.number}, {what}",
                allowed="a migration as the last step, not an undone one",
                next_step=_CHANGE_BACK,
            )
        restores: dict[str, TableAction] = {}
        for name, version in _versions_before(tables, last).items():
            restores[name] = Restore(version, changes_rows=False)
        cause = Cause(what="migration")
        facts = stepper.facts(cause, decision=Decision(tables=restores))
        as_before = {"spec": before.state.spec, "evolved": before.state.evolved}
        facts = facts.with_state(as_before)
        actions = _earlier(tables.state.path, last.state.version, data_change=True)
        stepper.commit(facts, actions)
        stepper.publish(executor)
        return migration_report(spec.name, ["the tables are as before the migration"], stepper.number)


def _versions_before(tables: Plan, migration: StepFacts) -> dict[str, int]:
    """Return the versions before a migration, for tables that have applied it.

    Raises:
        MigrationError: another client has changed a table since, or files of that version are gone.
    """
    versions = {}
    for name in Decision.OWN_OUTPUTS:
        location = tables.at(name)
        newest = next(Log(location).own_commits(), None)
        if newest is None:
            continue
        version, facts = newest
        # A table that has not applied the step yet is unchanged.
        step, _ = StepFacts.step_and_uid(facts, location)
        if step != migration.step:
            continue
        _refuse_changed_since(location, version)
        # This only refuses missing files now: the table is restored when the step is published.
        _earlier(location, version - 1, data_change=False)
        versions[name] = version - 1
    return versions


def _earlier(table: str, version: int, *, data_change: bool) -> list[Action]:
    """Return the actions that restore a table's earlier version.

    Raises:
        MigrationError: files of that version are gone.
    """
    now = Snapshot.read(table)
    if now is None:
        return []
    try:
        return now.restoring(version, data_change=data_change)
    except HistoryGoneError as error:
        raise MigrationError(f"{error} {_CHANGE_BACK}") from error


def _refuse_changed_since(table: str, version: int) -> None:
    for later in Log(table).versions():
        if later <= version:
            continue
        actions = Log(table).commit(later)
        if actions.changed_files():
            raise MigrationError.of(
                f"The migration cannot be undone: '{table}' was changed by another client since.",
                got=f"version {later}",
                allowed=f"the content of version {version}",
                next_step=_CHANGE_BACK,
            )


def _step_before_migration(tables: Plan, last: StepFacts | NoStep) -> StepFacts | None:
    """Return the step that the last one migrated from; None if the last step is not a migration that can be undone."""
    if isinstance(last, NoStep) or last.decision.begins:
        return None
    for _, facts in tables.state.steps():
        if facts.step >= last.step:
            continue
        has_migrated = facts.state.spec != last.state.spec
        if has_migrated and not _has_undone(last, facts):
            return facts
        return None
    return None


def _has_undone(last: StepFacts, before: StepFacts) -> bool:
    """Return whether a step has undone a change of columns or of a transform.

    Such a step has no change that sink and changelog could apply again: undoing it would restore only the state.
    """
    gives_columns = (Alter, Rewrite)
    for action in last.decision.tables.values():
        if isinstance(action, gives_columns):
            return False
    now, then = last.state.spec, before.state.spec
    has_other_columns = now.get("columns") != then.get("columns")
    has_other_transform = now.get("transform") != then.get("transform")
    return has_other_columns or has_other_transform
