"""Migration: stored state is made to fit a spec whose TTL or state types have changed. Planned, applied, undone.

| change | entries |
|---|---|
| TTL switched on | stamped with the time of the migration |
| TTL switched off | stamps go; what has expired and is still stored comes back |
| TTL changed | as they are: the new configuration reads them again; a longer one brings back what is still stored |
| a state added | none yet |
| a state removed | dropped |
| a field added, a type widened | cast |

A migration is one step: it folds the state, as compaction does. It can be undone until the next step.
Source: FLIP-25, "Migration Plan and Compatibility"; Flink 2.3 does this on restore, unasked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import replacing
from ebbtide.errors import MigrationError
from ebbtide.ledger.facts import StepFacts
from ebbtide.maintenance.job import stepping
from ebbtide.model.codes import Ints, Mask
from ebbtide.model.durations import format_duration, from_ms
from ebbtide.model.entries import LONG_MIN, Step, equals, flags
from ebbtide.model.state.timers import TIMERS
from ebbtide.model.step import StepKind
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.expiry_rules import ExpiryRules
from ebbtide.operators.operator import Operator
from ebbtide.paths import exists
from ebbtide.runtime.fold import rewritten
from ebbtide.runtime.plan import Plan, operator_of
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.deciding import packed
from ebbtide.state_table.rewriting import Part, StoredEntries
from ebbtide.tasks import run_tasks

Ttls = dict[str, dict[str, Any]]
"""Name of a state, empty for the only one, to the fields of its time to live."""
_CHANGE_BACK = "Change the spec back and migrate again: stamps that are gone start again at the time of that."
"""What to do where a migration cannot be undone."""


@dataclass(frozen=True)
class MigrationPlan:
    """What a migration would do, or did.

    Args:
        pipeline: Its name.
        changes: Each in words.
        stamped: Entries that get a stamp.
        unstamped: Entries that lose theirs.
        revived: Expired entries, still stored, that would live again.
        dropped: Entries of states that are not in the spec.
        step: The step that did it; None of a plan.
    """

    pipeline: str
    changes: list[str] = field(default_factory=list)
    stamped: int = 0
    unstamped: int = 0
    revived: int = 0
    dropped: int = 0
    step: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if not self.changes:
            return f"{self.pipeline}: the stored state fits the spec; nothing to migrate."
        parts = [
            f"{self.stamped} entries stamped",
            f"{self.unstamped} unstamped",
            f"{self.revived} expired ones brought back",
            f"{self.dropped} dropped",
        ]
        counts = ", ".join(parts)
        next_step = "To do it: 'ebbtide migrate --apply'."
        if self.step is not None:
            next_step = f"Done in step {self.step}. To undo it before the next run: 'ebbtide migrate --undo'."
        lines = [
            f"{self.pipeline}: {counts}.",
            *self.changes,
            next_step,
        ]
        return "\n  ".join(lines)


def plan(spark: SparkSession, spec: Pipeline, root: str) -> MigrationPlan:
    """Return what a migration to a spec would do. Changes nothing.

    Raises:
        MigrationError: a migration cannot make the change.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    if commit is None:
        return MigrationPlan(spec.name)
    _, last = commit
    return _plan(spark, tables, last)


def apply(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    clock_ms: int,
) -> MigrationPlan:
    """Migrate the stored state to a spec, in one step.

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
    if tables.state.last() is None:
        return MigrationPlan(spec.name)
    with stepping(spark, tables, clock_ms) as stepper:
        stepper.publish(spark)
        if stepper.last is None:
            return MigrationPlan(spec.name)
        planned = _plan(spark, tables, stepper.last)
        if not planned.changes:
            return planned
        clock = stepper.next_clock(clock_ms)
        facts = stepper.maintenance_step(StepKind.MIGRATION, clock)
        snapshot = stepper.newest()
        files = list(snapshot.files.values())
        keep = _migrated(tables, stepper.last, facts.operator_step)
        adds, _ = rewritten(
            spark,
            tables,
            files,
            keep,
            is_whole=True,
            data_change=True,
            step=facts.step,
        )
        actions = [*tables.state.redefined(snapshot), *adds]
        stepper.commit(facts, replacing(files, actions))
        return replace(planned, step=stepper.number)


def undo(spark: SparkSession, spec: Pipeline, root: str) -> MigrationPlan:
    """Put the state back to what it was before a migration that was the last step; a step of its own.

    Args:
        spark: A session with Delta.
        spec: The pipeline, with either configuration.
        root: Folder of all pipelines' tables.

    Raises:
        MigrationError: the last step is not a migration.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    with stepping(spark, tables) as stepper:
        last = stepper.last
        spec_before = _spec_before_migration(tables, last)
        if last is None or spec_before is None:
            last_kind = last.kind if last else "none"
            raise MigrationError.of(
                f"There is no migration of '{spec.name}' to undo.",
                got=f"step {stepper.number}, {last_kind}",
                allowed="a migration as the last step",
                next_step=_CHANGE_BACK,
            )
        facts = stepper.maintenance_step(StepKind.MIGRATION)
        facts = facts.model_copy(update={"spec": spec_before})
        newest = stepper.newest()
        restoring = _restoring(newest, last.state_version)
        stepper.commit(facts, restoring)
        return MigrationPlan(
            spec.name,
            changes=["the state is as before the migration"],
            step=stepper.number,
        )


def _restoring(now: Snapshot, version: int) -> list[Action]:
    """Return the actions that bring the state back to an earlier version, whole.

    Raises:
        MigrationError: data files of that version are gone.
    """
    before = Snapshot.read(now.table, version)
    files = {} if before is None else before.files
    n_gone = 0
    for file in files.values():
        location = file.location(now.table)
        if not exists(location):
            n_gone += 1
    if before is None or n_gone:
        raise MigrationError.of(
            f"The state at '{now.table}' cannot be brought back to version {version}.",
            got=f"{n_gone} of its data files deleted, as by VACUUM",
            allowed="all of them",
            next_step=_CHANGE_BACK,
        )
    actions: list[Action] = [
        {"protocol": now.protocol},
        {"metaData": before.metadata},
    ]
    for id_, file in files.items():
        if id_ not in now.files:
            add = {**file.add, "dataChange": True}
            actions.append({"add": add})
    goes = [file for id_, file in now.files.items() if id_ not in files]
    return replacing(goes, actions)


def _spec_before_migration(tables: Plan, last: StepFacts | None) -> dict[str, Any] | None:
    """Return the spec that the last step migrated from; None if it is not a migration, or did not change the spec."""
    if last is None or last.kind is not StepKind.MIGRATION:
        return None
    for _, facts in tables.state.steps():
        if facts.step < last.step:
            is_changed = facts.spec != last.spec
            return facts.spec if is_changed else None
    return None


def _plan(spark: SparkSession, tables: Plan, last: StepFacts) -> MigrationPlan:
    spec = tables.spec
    changed = spec.misfits(last.spec)
    if not changed:
        return MigrationPlan(spec.name)
    can_migrate = set(changed) <= spec.migrates
    if not can_migrate:
        differences = []
        for name in changed:
            before = last.spec.get(name)
            after = spec.identity[name]
            differences.append(f"{name}: {before} -> {after}")
        migrates = sorted(spec.migrates)
        raise MigrationError.of(
            f"The stored state of '{spec.name}' cannot be migrated to the spec.",
            got="; ".join(differences),
            allowed=f"a change of {', '.join(migrates)}",
            next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    stored_types = _stored_types(tables)
    state_changes, removed = _state_changes(spec, last, stored_types)
    ttl_changes = _ttl_changes(
        before=_ttls(last.spec),
        after=_ttls(spec.identity),
    )
    stamped, unstamped, revived, dropped = _counts(spark, tables, last, removed)
    return MigrationPlan(
        pipeline=spec.name,
        changes=state_changes + ttl_changes,
        stamped=stamped,
        unstamped=unstamped,
        revived=revived,
        dropped=dropped,
    )


def _ttl_changes(before: Ttls, after: Ttls) -> list[str]:
    """Put changed times to live into words."""
    words = []
    for name in sorted({*before, *after}):
        old = before.get(name)
        new = after.get(name)
        if old == new:
            continue
        where = f"state {name}: " if name else ""
        words.append(f"{where}ttl {_shown(old)} -> {_shown(new)}")
    return words


@dataclass(frozen=True)
class Affected:
    """Counts the entries that a migration changes; runs in workers.

    Args:
        entries: What there is.
        states: Each state, "" for the only one, whose entries get a stamp, lose theirs, and are dropped.
        rules: When entries expired before, and when they will.
        at: The last step.
    """

    entries: StoredEntries
    states: tuple[Sequence[str], Sequence[str], Sequence[str]]
    rules: tuple[ExpiryRules, ExpiryRules]
    at: Step

    def __call__(self, part: Part) -> Ints:
        """Return how many entries of a part get a stamp, lose theirs, live again, and are dropped."""
        newest = self.entries.newest(part)
        is_live = ~flags(newest, "_removed")
        live = newest.filter(pa.array(is_live))
        stamped, unstamped, dropped = self.states
        rules_before, rules_after = self.rules
        is_dropped = self._is_of(live, dropped)
        had_expired = rules_before.expired(live, self.at)
        expires = rules_after.expired(live, self.at)
        masks = (
            self._is_of(live, stamped),
            self._is_of(live, unstamped),
            had_expired & ~expires & ~is_dropped,
            is_dropped,
        )
        counts = [mask.sum() for mask in masks]
        return np.array(counts)

    def _is_of(self, entries: pa.Table, states: Sequence[str]) -> Mask:
        if "_state" in entries.column_names:
            return _is_in(entries, states)
        return np.full(len(entries), "" in states)


def _counts(
    spark: SparkSession,
    tables: Plan,
    last: StepFacts,
    removed: list[str],
) -> list[int]:
    """Count the entries that get a stamp, lose theirs, live again, and are dropped."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    snapshot = tables.state.snapshot()
    stored = tables.state.stored(snapshot)
    entries = StoredEntries(stored, packed(operator))
    stamped = _names_only_in(after, before)
    unstamped = _names_only_in(before, after)
    affected = Affected(
        entries,
        states=(stamped, unstamped, removed),
        rules=(_rules(operator, before), _rules(operator, after)),
        at=Step(last.step, last.now_ms, last.watermark_ms),
    )
    parts = run_tasks(
        spark,
        affected,
        entries.parts(),
        in_driver=entries.is_small,
    )
    none = np.zeros(4, np.int64)
    counts: list[int] = sum(parts, none).tolist()
    return counts


def _state_changes(
    spec: Pipeline,
    last: StepFacts,
    stored: StructType,
) -> tuple[list[str], list[str]]:
    """Put added, removed and widened states into words; name the removed.

    Raises:
        MigrationError: a state has become another kind, or its type one that its values do not fit.
    """
    before = last.spec.get("states", {})
    after = spec.identity.get("states", {})
    added = _names_only_in(after, before)
    removed = _names_only_in(before, after)
    words = [
        *(f"state {name}: added" for name in added),
        *(f"state {name}: removed" for name in removed),
        *_retyped(spec, before, stored),
    ]
    return words, removed


def _retyped(spec: Pipeline, before: Mapping[str, Any], stored: StructType) -> list[str]:
    """Put the states whose type has changed into words; errors as `_state_changes`."""
    entry_schema = operator_of(spec).schema
    states = spec.identity.get("states", {})
    words = []
    for name, declared in states.items():
        if name not in before or before[name] == declared:
            continue
        kind, type_, key_type = before[name]
        new_kind, new_type, new_key_type = declared
        is_same_kind = kind == new_kind and key_type == new_key_type
        # The types of the values as they are stored decide, not their names in the two specs.
        column = f"_value_{name}"
        stored_type = to_arrow_type(stored[column].dataType)
        needed_type = entry_schema.field(column).type
        can_migrate = is_same_kind and widens(stored_type, needed_type)
        if not can_migrate:
            raise MigrationError.of(
                f"State '{name}' of '{spec.name}' cannot be migrated.",
                got=f"{before[name]} -> {declared}",
                allowed="the same kind and key type; wider numbers, more fields in structs",
                next_step="Declare it under another name, or run 'ebbtide refresh'.",
            )
        words.append(f"state {name}: {type_} -> {new_type}")
    return words


def _stored_types(tables: Plan) -> StructType:
    """Return the columns that the state table has."""
    snapshot = tables.state.snapshot()
    text = snapshot.metadata["schemaString"]
    schema = json.loads(text)
    return StructType.fromJson(schema)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of one type is a value of another.

    Example:
        >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32())
        (True, False)
        >>> widens(pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.string())]))
        True
    """
    if old == new:
        return True
    if _are_both(pa.types.is_integer, old, new) or _are_both(pa.types.is_floating, old, new):
        return bool(old.bit_width <= new.bit_width)
    if _are_both(pa.types.is_decimal, old, new):
        old_whole_digits = old.precision - old.scale
        new_whole_digits = new.precision - new.scale
        keeps_whole = old_whole_digits <= new_whole_digits
        keeps_fraction = old.scale <= new.scale
        return bool(keeps_whole and keeps_fraction)
    if _are_both(pa.types.is_struct, old, new):
        return _has_wider_fields(old, new)
    if _are_both(pa.types.is_list, old, new):
        return widens(old.value_type, new.value_type)
    if _are_both(pa.types.is_map, old, new):
        has_same_key = bool(old.key_type == new.key_type)
        return has_same_key and widens(old.item_type, new.item_type)
    return False


def _are_both(is_of_kind: Callable[[pa.DataType], bool], old: pa.DataType, new: pa.DataType) -> bool:
    return is_of_kind(old) and is_of_kind(new)


def _has_wider_fields(old: pa.StructType, new: pa.StructType) -> bool:
    new_types = {column.name: column.type for column in new}
    for column in old:
        new_type = new_types.get(column.name)
        if new_type is None or not widens(column.type, new_type):
            return False
    return True


@dataclass(frozen=True)
class Migrated:
    """Keeps the live entries as the spec needs them: without those of removed states, stamped for the new TTLs.

    Args:
        states: The states that there are; None: the operator's entries are of none.
        clocks_ms: State whose TTL was switched on, None for all without one of their own, to the stamp of its entries.
        switched_off: Named states whose TTL was switched off: their stamps go.
    """

    states: tuple[str, ...] | None
    clocks_ms: Mapping[str | None, int]
    switched_off: tuple[str, ...]

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `ebbtide.runtime.fold.Keep`."""
        stays = ~flags(entries, "_removed")
        if self.states is not None:
            stays &= _is_in(entries, self.states)
        entries = entries.filter(pa.array(stays))
        stamps = entries["_stamp_ms"]
        for state, clock_ms in self.clocks_ms.items():
            is_own = operator.expiry.is_of_state(entries, state)
            stamps = pc.if_else(pa.array(is_own), clock_ms, stamps)
        if self.states is not None:
            is_off = _is_in(entries, self.switched_off)
            has_no_ttl = pa.array(is_off)
            no_time = pa.scalar(None, pa.int64())
            stamps = pc.if_else(has_no_ttl, no_time, stamps)
            own_ttl_ms = pc.if_else(has_no_ttl, no_time, entries["_ttl_ms"])
            entries = _with_column(entries, "_ttl_ms", own_ttl_ms)
        return _with_column(entries, "_stamp_ms", stamps)


def _is_in(entries: pa.Table, states: Sequence[str]) -> Mask:
    """Mark the entries that are of one of some states."""
    is_in = np.zeros(len(entries), dtype=bool)
    for state in states:
        is_in |= equals(entries, "_state", state)
    return is_in


def _with_column(entries: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    index = entries.schema.get_field_index(name)
    column = entries.schema.field(index)
    return entries.set_column(index, column, values)


def _migrated(tables: Plan, last: StepFacts, at: Step) -> Migrated:
    """Return what makes a step's entries fit the spec: those whose TTL was switched on are stamped as if written now."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    clocks_ms: dict[str | None, int] = {}
    for name in _names_only_in(after, before):
        state = name or None
        ttl = operator.expiry.ttls[state]
        clock_ms = at.clock_ms(ttl)
        has_watermark = clock_ms != LONG_MIN
        clocks_ms[state] = clock_ms if has_watermark else at.now_ms
    states = None
    if operator.has_named_states:
        declared = tables.spec.identity["states"]
        states = (*declared, TIMERS)
    switched_off = _names_only_in(before, after)
    return Migrated(states, clocks_ms, tuple(switched_off))


def _names_only_in(these: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return [name for name in these if name not in others]


def _ttls(identity: Mapping[str, Any]) -> Ttls:
    return dict(identity["ttl"])


def _rules(operator: Operator, ttls: Ttls) -> ExpiryRules:
    """Return an operator's rules with other times to live."""
    configs: dict[str | None, StateTtlConfig] = {}
    for name, fields in ttls.items():
        state = name or None
        settings = dict(fields)
        ttl = from_ms(settings.pop("ttl_ms"))
        configs[state] = StateTtlConfig(ttl=ttl, **settings)
    return replace(operator.expiry, ttls=configs)


def _shown(ttl: dict[str, Any] | None) -> str:
    if ttl is None:
        return "none"
    duration = from_ms(ttl["ttl_ms"])
    settings = []
    for name in ("update_type", "time_characteristic"):
        if name in ttl:
            setting = str(ttl[name])
            settings.append(setting)
    listed = ", ".join(settings)
    return f"{format_duration(duration)} ({listed})"
