"""Migration: adapts stored data to a spec whose columns, TTL or state types have changed. It can be planned, applied and undone.

Columns are migrated in `ebbtide.operations._migration.columns`, states in `ebbtide.operations._migration.states`. A migration is
one step: it folds the state like compaction, or only changes the table's definition if that is enough. Sink and changelog get
the columns when the step is published. It can be undone until the next step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.ddl import ddl_of
from ebbtide.delta import Action, DataFile, Snapshot
from ebbtide.errors import MigrationError
from ebbtide.ledger import Cause, NoStep, StepFacts
from ebbtide.model import Action as TableAction
from ebbtide.model import Alter, Decision, Rewrite, SchemaChange
from ebbtide.operations._migration.columns import ColumnMigration, altered, column_migration, has_same_format
from ebbtide.operations._migration.report import migration_report
from ebbtide.operations._migration.states import function_changes, migrated_entries, state_migration
from ebbtide.operations._migration.transforms import (
    Unselected,
    WithoutSelected,
    reselected,
    transform_migration,
    with_stored_transform,
)
from ebbtide.operations._operation import Report
from ebbtide.operations._places import BY_VACUUM, Place, of_table, with_places
from ebbtide.operations._stepping import has_state, stepping
from ebbtide.runtime import Plan, StateRewrite, Stepper
from ebbtide.spec import Pipeline
from ebbtide.tables import Keep, KeepEntries

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def plan(executor: Executor, spec: Pipeline, root: str) -> Report:
    """Return the plan of a migration to a spec. Changes nothing.

    Raises:
        MigrationError: a migration cannot make the change.
        TableMismatchError: the state is gone.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last() if has_state(tables) else None
    if commit is None:
        return migration_report(spec.name)
    _, last = commit
    migration = _worked_out(executor, tables, last)
    if not last.decision.changes_columns:  # else the sink may not have those yet
        migration.refuse_unalterable(tables)
    return migration.report()


def apply(
    executor: Executor,
    spec: Pipeline,
    root: str,
    clock_ms: int,
) -> Report:
    """Migrate stored data to a spec, in one step.

    The commit to the state is the decision. Sink and changelog follow from it: after a crash in between, the next run or
    migration finishes it.

    Args:
        spec: The pipeline with its new spec.
        root: Folder of all pipelines' tables.
        clock_ms: The time for new stamps, epoch ms.

    Raises:
        MigrationError: a migration cannot make the change.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    if not has_state(tables):
        return migration_report(spec.name)
    with stepping(executor, tables, clock_ms) as stepper:
        if isinstance(stepper.last, NoStep):
            return migration_report(spec.name)
        migration = _worked_out(executor, tables, stepper.last)
        stepper.publish_by_logs(executor, migration.before)  # the open step was decided with the old columns
        if not migration.changes:
            return migration.report()
        migration.refuse_unalterable(tables)
        facts = _facts(stepper, migration, clock_ms)
        actions = _state_actions(executor, stepper, migration, facts)
        # The new files hold rows without the transform's columns. It is evaluated over them before the commit, so that failing
        # rows are part of the decision.
        if migration.reselects and tables.spec.selects_rows:
            actions, facts = reselected(executor, tables, actions, facts)
        stepper.commit(facts, actions)
        stepper.publish(executor)
        return migration.report(stepper.number)


@dataclass(frozen=True)
class _Migration:
    """A planned migration.

    Args:
        before: The pipeline, with the columns of its tables.
        columns: The migration of the columns.
        changes: Descriptions of its changes.
        counts: Counts of its effects.
        changes_states: Entries change, not only their columns.
        reselects: A transform's selection or its input has changed.
        places: The files removed from the newest versions of the tables.
    """

    before: Plan
    columns: ColumnMigration
    changes: list[str]
    counts: dict[str, int]
    changes_states: bool
    reselects: bool
    places: tuple[Place, ...] = ()

    @property
    def writes_again(self) -> bool:
        """Return whether the state's files are rewritten. A new column that is null everywhere changes only the definition."""
        return self.changes_states or self.columns.rewrites or self.reselects

    def report(self, step: int | None = None) -> Report:
        """Return the report of a plan or of a step."""
        report = migration_report(self.before.spec.name, self.changes, step, **self.counts)
        return with_places(report, self.places)

    def refuse_unalterable(self, tables: Plan) -> None:
        """Refuse a sink that needs other columns but cannot get them; see `Sink`."""
        alters = self.columns.change is not None or self.reselects
        if not alters:
            return
        anything = Alter(SchemaChange(), "")
        tables.refuse_unable(anything, "migration")
        tables.sink.refuse_unalterable(self.before.sink.columns)


def _worked_out(executor: Executor, tables: Plan, last: StepFacts) -> _Migration:
    """Plan a migration; it has no changes if the spec fits.

    Raises:
        MigrationError: the migration is not possible.
    """
    spec = tables.spec
    stored = tables.state.snapshot().columns
    _refuse_other_parts(spec, last, stored)
    columns = column_migration(spec, last, stored)
    transforms = transform_migration(spec, last)
    before = Plan(tables.root, with_stored_transform(columns.before, last))
    reselects = bool(transforms) or (columns.change is not None and spec.has_transform)
    states = state_migration(executor, before, last, stored)
    functions = function_changes(spec, last)
    changes = [*states.changes, *columns.changes, *transforms, *functions]
    counts = {
        "stamped": states.stamped,
        "unstamped": states.unstamped,
        "revived": states.revived,
        "dropped": states.dropped,
        "rewritten": _n_rewritten(tables) if columns.rewrites else 0,
    }
    migration = _Migration(before, columns, changes, counts, bool(states.changes), reselects)
    return replace(migration, places=tuple(_places(tables, migration)))


def _places(tables: Plan, migration: _Migration) -> Iterator[Place]:
    """Yield the old files by table. Rows of the sink whose selection changes are replaced one by one."""
    if migration.writes_again:
        yield from of_table(tables, "state", f"rewritten to fit the spec; old files are {BY_VACUUM}")
    if migration.columns.rewrites:
        for name in ("sink", "changelog"):
            yield from of_table(tables, name, f"rewritten with the columns; old files are {BY_VACUUM}")


def _refuse_other_parts(spec: Pipeline, last: StepFacts, stored: pa.Schema) -> None:
    """Refuse a spec that differs from the stored one in parts that a migration cannot change."""
    changed = spec.misfits(last.state.spec)
    can_change = set(spec.migrates)
    if "columns" in changed and has_same_format(spec, last, stored):
        can_change.add("format")
    refused = [name for name in changed if name not in can_change]
    if not refused:
        return
    differences = []
    for name in refused:
        before = last.state.spec.get(name)
        after = spec.identity.get(name)
        differences.append(f"{name}: {before} -> {after}")
    migrates = sorted(spec.migrates)
    raise MigrationError.of(
        f"The stored state of '{spec.name}' cannot be migrated to the spec.",
        got="; ".join(differences),
        allowed=f"a change of {', '.join(migrates)}",
        next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
    )


def _n_rewritten(tables: Plan) -> int:
    """Count the rows of sink and changelog, if their logs record them."""
    n_rows = 0
    for location in (tables.sink.path, tables.changelog.path):
        snapshot = Snapshot.read(location, any_features=True)
        if snapshot is None:
            continue
        for file in snapshot.files.values():
            n_rows += file.live_rows or 0
    return n_rows


def _facts(stepper: Stepper, migration: _Migration, clock_ms: int) -> StepFacts:
    clock = stepper.next_clock(clock_ms)
    change = migration.columns.change
    actions: dict[str, TableAction] = {}
    if change is not None:
        alter = Alter(change, ddl_of(migration.before.spec.table.columns))
        actions = {"sink": alter, "changelog": alter}
    if migration.reselects:
        actions["sink"] = Rewrite(alters=True)
    cause = Cause(what="migration")
    decision = Decision(tables=actions)
    return stepper.facts(cause, clock, decision=decision)


def _state_actions(
    executor: Executor,
    stepper: Stepper,
    migration: _Migration,
    facts: StepFacts,
) -> list[Action]:
    """Return the actions of a migration on the state table."""
    tables = stepper.plan
    snapshot = stepper.newest()
    definition = tables.state.redefined(snapshot)
    columns = migration.columns
    if not migration.writes_again:
        return definition
    last = stepper.last
    keep: Keep = KeepEntries(is_whole=True)
    if migration.changes_states and not isinstance(last, NoStep):
        keep = migrated_entries(tables, last, facts.operator_step)
    # Selected columns are dropped first: they are computed again from the altered rows.
    if columns.change is not None:
        keep = altered(WithoutSelected(keep), tables.spec, columns.change)
    elif migration.reselects:
        keep = Unselected(WithoutSelected(keep), tables.operator)
    files = list(snapshot.files.values())
    rewrite = StateRewrite(migration.before, files, keep, is_whole=True, data_change=True, into=tables)
    adds = rewrite.written(executor)
    return DataFile.replacing(files, [*definition, *adds])
