"""Migration: what is stored is made to fit a spec whose columns, TTL or state types have changed. Planned, applied, undone.

What becomes of columns is in `ebbtide.operations.column_migration`, of states in `ebbtide.operations.state_migration`. A migration is
one step: it folds the state, as compaction does, or only names its new columns where that is enough; sink and changelog take the
columns when the step is published. It can be undone until the next step.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from ebbtide.amounts import amount
from ebbtide.delta import log
from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import replacing
from ebbtide.errors import HistoryGoneError, MigrationError
from ebbtide.ledger.facts import Cause, StepFacts, step_number
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model import decision as does
from ebbtide.model.decision import Alter, Decision, Restore, Rewrite
from ebbtide.model.schema_change import SchemaChange
from ebbtide.operations.column_migration import ColumnMigration, altered, column_migration, has_same_format
from ebbtide.operations.job import has_state, stepping
from ebbtide.operations.operation import Report
from ebbtide.operations.state_migration import function_changes, migrated_entries, state_migration
from ebbtide.operations.transform_migration import (
    Unselected,
    WithoutSelected,
    reselected,
    transform_migration,
    with_stored_transform,
)
from ebbtide.runtime.abilities import refuse_action
from ebbtide.runtime.fold import Keep, KeepEntries, rewritten
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.publish import publish
from ebbtide.runtime.step import Stepper
from ebbtide.spec.ddl import ddl_of
from ebbtide.spec.pipeline import Pipeline

_CHANGE_BACK = "Change the spec back and migrate again: stamps and values that are gone do not come back by that."
"""What to do where a migration cannot be undone."""


COUNTS = ("stamped", "unstamped", "revived", "dropped", "rewritten")
"""What a report counts: entries that get a stamp, lose theirs, live again though expired, or are of states that are not in the spec; and
rows of sink and changelog that are written again, under other columns."""


def _report(pipeline: str, changes: Sequence[str] = (), step: int | None = None, **counted: int) -> Report:
    """Write down what a migration would do, or did.

    Args:
        pipeline: Name of the pipeline.
        changes: Each in words.
        step: The step that did it; None of a plan.
        counted: See `COUNTS`; what is not named is 0.
    """
    counts = {name: counted.get(name, 0) for name in COUNTS}
    details = {"changes": list(changes)}
    if not changes:
        return Report(pipeline, ["what is stored fits the spec; nothing to migrate."], counts, details, step)
    parts = [
        f"{amount(counts['stamped'], 'entry', 'entries')} stamped",
        f"{counts['unstamped']} unstamped",
        f"{counts['revived']} expired ones brought back",
        f"{counts['dropped']} dropped",
    ]
    if counts["rewritten"]:
        parts.append(f"{amount(counts['rewritten'], 'row')} of sink and changelog written again")
    next_step = "To do it: 'ebbtide migrate --apply'."
    if step is not None:
        next_step = f"Done in step {step}. To undo it before the next run: 'ebbtide migrate --undo'."
    return Report(pipeline, [f"{', '.join(parts)}.", *changes], counts, details, step, next_step)


def plan(spark: SparkSession, spec: Pipeline, root: str) -> Report:
    """Return what a migration to a spec would do. Changes nothing.

    Raises:
        MigrationError: a migration cannot make the change.
        TableMismatchError: the state is gone.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last() if has_state(tables) else None
    if commit is None:
        return _report(spec.name)
    _, last = commit
    migration = _worked_out(spark, tables, last)
    if not last.decision.changes_columns:  # else the sink may still have to take those
        migration.refuse_unalterable(tables)
    return migration.report()


def apply(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    clock_ms: int,
) -> Report:
    """Migrate what is stored to a spec, in one step.

    The commit to the state is the decision. Sink and changelog follow from it: after a crash between them, the next run, or
    this again, finishes it.

    Args:
        spark: A session with Delta.
        spec: The pipeline as it is to be.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms: that of the new stamps.

    Raises:
        MigrationError: a migration cannot make the change.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    if not has_state(tables):
        return _report(spec.name)
    with stepping(spark, tables, clock_ms) as stepper:
        if stepper.last is None:
            return _report(spec.name)
        migration = _worked_out(spark, tables, stepper.last)
        publish(spark, migration.before, stepper.head)  # the open step was decided under the columns as they were
        if not migration.changes:
            return migration.report()
        migration.refuse_unalterable(tables)
        facts = _facts(stepper, migration, clock_ms)
        actions = _state_actions(spark, stepper, migration, facts)
        if migration.reselects and tables.spec.selects_rows:
            actions, facts = reselected(spark, tables, actions, facts)
        stepper.commit(facts, actions)
        stepper.publish(spark)
        return migration.report(stepper.number)


@dataclass(frozen=True)
class _Migration:
    """A migration, worked out.

    Args:
        before: The pipeline, with the columns that its tables have.
        columns: What becomes of the columns.
        changes: What it does, each in words.
        counts: What it does, counted.
        changes_states: Entries change beside their columns.
        reselects: What a transform selects has changed, or what it selects from.
    """

    before: Plan
    columns: ColumnMigration
    changes: list[str]
    counts: dict[str, int]
    changes_states: bool
    reselects: bool

    def report(self, step: int | None = None) -> Report:
        """Write it down, as a plan or as what a step did."""
        return _report(self.before.spec.name, self.changes, step, **self.counts)

    def refuse_unalterable(self, tables: Plan) -> None:
        """Refuse a sink that cannot be given other columns, if it must be; see `Sink`."""
        if self.columns.change is not None or self.reselects:
            refuse_action(tables, Alter(SchemaChange(), ""), "migration")
            tables.sink.refuse_unalterable(self.before.sink.columns)


def _worked_out(spark: SparkSession, tables: Plan, last: StepFacts) -> _Migration:
    """Work a migration out; without changes where the spec fits.

    Raises:
        MigrationError: it cannot be made.
    """
    spec = tables.spec
    stored = _stored_columns(tables)
    _refuse_other_parts(spec, last, stored)
    columns = column_migration(spec, last, stored)
    transforms = transform_migration(spec, last)
    before = Plan(tables.root, with_stored_transform(columns.before, last))
    reselects = bool(transforms) or (columns.change is not None and spec.has_transform)
    states = state_migration(spark, before, last, stored)
    changes = [*states.changes, *columns.changes, *transforms, *function_changes(spec, last)]
    counts = {
        "stamped": states.stamped,
        "unstamped": states.unstamped,
        "revived": states.revived,
        "dropped": states.dropped,
        "rewritten": _n_rewritten(tables) if columns.rewrites else 0,
    }
    return _Migration(before, columns, changes, counts, bool(states.changes), reselects)


def _refuse_other_parts(spec: Pipeline, last: StepFacts, stored: pa.Schema) -> None:
    """Refuse a spec that differs from the stored one in what no migration changes."""
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


def _stored_columns(tables: Plan) -> pa.Schema:
    """Return the columns that the state table has."""
    snapshot = tables.state.snapshot()
    text = snapshot.metadata["schemaString"]
    schema = StructType.fromJson(json.loads(text))
    fields = [pa.field(each.name, to_arrow_type(each.dataType, timezone="UTC")) for each in schema]
    return pa.schema(fields)


def _n_rewritten(tables: Plan) -> int:
    """Count the rows of sink and changelog, as far as their logs tell."""
    n_rows = 0
    for location in (tables.sink.path, tables.changelog.path):
        snapshot = Snapshot.read(location, any_features=True)
        files = snapshot.files.values() if snapshot else ()
        n_rows += sum(file.live_rows or 0 for file in files)
    return n_rows


def _facts(stepper: Stepper, migration: _Migration, clock_ms: int) -> StepFacts:
    clock = stepper.next_clock(clock_ms)
    change = migration.columns.change
    actions: dict[str, does.Action] = {}
    if change is not None:
        alter = Alter(change, ddl_of(migration.before.spec.table.columns))
        actions = {"sink": alter, "changelog": alter}
    if migration.reselects:
        actions["sink"] = Rewrite(alters=True)
    return stepper.facts(Cause(what="migration"), clock, decision=Decision(tables=actions))


def _state_actions(
    spark: SparkSession,
    stepper: Stepper,
    migration: _Migration,
    facts: StepFacts,
) -> list[Action]:
    """Return what a migration does to the state table."""
    tables = stepper.plan
    snapshot = stepper.newest()
    definition = tables.state.redefined(snapshot)
    columns = migration.columns
    if not (migration.changes_states or columns.rewrites or migration.reselects):
        return definition
    last = stepper.last
    keep: Keep = KeepEntries(is_whole=True)
    if migration.changes_states and last is not None:
        keep = migrated_entries(tables, last, facts.operator_step)
    if columns.change is not None:
        keep = altered(WithoutSelected(keep), tables.spec, columns.change)
    elif migration.reselects:
        keep = Unselected(WithoutSelected(keep), tables.operator)
    files = list(snapshot.files.values())
    adds = rewritten(
        spark,
        migration.before,
        files,
        keep,
        is_whole=True,
        data_change=True,
        step=facts.step,
        into=tables,
    )
    return replacing(files, [*definition, *adds])


def undo(spark: SparkSession, spec: Pipeline, root: str) -> Report:
    """Put state, sink and changelog back to what they were before a migration that was the last step; a step of its own.

    Args:
        spark: A session with Delta.
        spec: The pipeline, with either configuration.
        root: Folder of all pipelines' tables.

    Raises:
        MigrationError: the last step is not a migration or has undone one, or what was before it is gone.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    with stepping(spark, tables) as stepper:
        last = stepper.last
        before = _step_before_migration(tables, last)
        if last is None or before is None:
            what = last.cause.what if last else "none"
            raise MigrationError.of(
                f"There is no migration of '{spec.name}' to undo.",
                got=f"step {stepper.number}, {what}",
                allowed="a migration as the last step, which has undone none itself",
                next_step=_CHANGE_BACK,
            )
        restores: dict[str, does.Action] = {}
        for name, version in _versions_before(tables, last).items():
            restores[name] = Restore(version, changes_rows=False)
        facts = stepper.facts(Cause(what="migration"), decision=Decision(tables=restores))
        as_before = {"spec": before.state.spec, "evolved": before.state.evolved}
        facts = facts.with_state(as_before)
        actions = _earlier(tables.state.path, last.state.version, data_change=True)
        stepper.commit(facts, actions)
        stepper.publish(spark)
        return _report(spec.name, ["the tables are as before the migration"], stepper.number)


def _versions_before(tables: Plan, migration: StepFacts) -> dict[str, int]:
    """Return the versions of some tables from before a migration, of those that have taken it.

    Raises:
        MigrationError: others have changed a table since, or files of that version are gone.
    """
    versions = {}
    for name in BESIDE_STATE:
        location = tables.at(name)
        newest = next(log.own_commits(location), None)
        if newest is None:
            continue
        version, facts = newest
        if step_number(facts, location) != migration.step:
            continue
        _refuse_changed_since(location, version)
        _earlier(location, version - 1, data_change=False)
        versions[name] = version - 1
    return versions


def _earlier(table: str, version: int, *, data_change: bool) -> list[Action]:
    """Return the actions that bring a table back to an earlier version.

    Raises:
        MigrationError: files of that version are gone.
    """
    now = Snapshot.read(table)
    if now is None:
        return []
    try:
        return restoring(now, version, data_change=data_change)
    except HistoryGoneError as error:
        raise MigrationError(f"{error} {_CHANGE_BACK}") from error


def _refuse_changed_since(table: str, version: int) -> None:
    for later in log.versions(table):
        if later > version and log.changed_files(log.actions(table, later)):
            raise MigrationError.of(
                f"The migration cannot be undone: '{table}' was changed by another client since.",
                got=f"version {later}",
                allowed=f"what version {version} holds",
                next_step=_CHANGE_BACK,
            )


def _step_before_migration(tables: Plan, last: StepFacts | None) -> StepFacts | None:
    """Return the step that the last one migrated from; None if that is no migration, did not change the spec, or has undone one."""
    if last is None or last.decision.begins:
        return None
    for _, facts in tables.state.steps():
        if facts.step < last.step:
            is_changed = facts.state.spec != last.state.spec and not _has_undone(last, facts)
            return facts if is_changed else None
    return None


def _has_undone(last: StepFacts, before: StepFacts) -> bool:
    """Return whether a step has put columns or a transform back.

    It tells no change that sink and changelog could be given again: to undo it would bring back the state alone.
    """
    stored, stored_before = last.state.spec, before.state.spec
    moves = any(stored.get(part) != stored_before.get(part) for part in ("columns", "transform"))
    gives_columns = any(isinstance(action, Alter | Rewrite) for action in last.decision.tables.values())
    return moves and not gives_columns
