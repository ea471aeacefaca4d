"""Migration of states: stored entries under another time to live, or of changed states.

| change | entries |
|---|---|
| TTL switched on | stamped with the time of the migration |
| TTL switched off | stamps are removed; expired entries that are still stored become visible again |
| TTL changed | unchanged: the new configuration is applied; a longer TTL makes entries that are still stored visible again |
| a state added | none yet |
| a state removed | dropped |
| a field added, a type widened | cast |
| another function, options or kinds of changes | unchanged, like the sink: they apply to later changes |

Source: FLIP-25, "Migration Plan and Compatibility"; Flink 2.3 does this automatically on restore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Ints, Long, Mask, equals, flags, with_column
from ebbtide.durations import format_duration, from_ms
from ebbtide.entries import Step
from ebbtide.errors import MigrationError
from ebbtide.keyed_state import TIMERS, StateTtlConfig
from ebbtide.ledger import StepFacts
from ebbtide.operations._migration.widening import widens
from ebbtide.operators import ExpiryRules, Operator
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline, StatefulPipeline
from ebbtide.tables import HashRange, StoredEntries
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor

Ttls = dict[str, dict[str, Any]]
"""Name of a state, empty for the only one, to the fields of its time to live."""


@dataclass(frozen=True)
class StateMigration:
    """The effect of a migration on the entries of states.

    Args:
        changes: Descriptions of the changes; none if the entries do not change.
        stamped: Entries that get a stamp.
        unstamped: Entries that lose theirs.
        revived: Expired entries, still stored, that would become live again.
        dropped: Entries of states that are not in the spec.
    """

    changes: tuple[str, ...] = ()
    stamped: int = 0
    unstamped: int = 0
    revived: int = 0
    dropped: int = 0


def state_migration(
    executor: Executor,
    tables: Plan,
    last: StepFacts,
    stored: pa.Schema,
) -> StateMigration:
    """Plan the migration of entries of states.

    Args:
        tables: The pipeline's tables, with operator and columns of the stored entries.
        last: Facts of the last step.
        stored: The columns of the state table.

    Raises:
        MigrationError: a state has changed its kind, or its values do not fit the new type.
    """
    spec = tables.spec
    state_changes, removed = _state_changes(spec, last, stored)
    ttl_changes = _ttl_changes(
        before=_ttls(last.state.spec),
        after=_ttls(spec.identity),
    )
    changes = (*state_changes, *ttl_changes)
    if not changes:
        return StateMigration()
    counts = _counts(executor, tables, last, removed)
    return StateMigration(changes, *counts)


def function_changes(spec: Pipeline, last: StepFacts) -> list[str]:
    """Describe changes of function, options and kinds of changes."""
    words = []
    for name in StatefulPipeline.FUNCTION_PARTS:
        before = last.state.spec.get(name)
        after = spec.identity.get(name)
        if before != after:
            words.append(f"{name} {before} -> {after}, for later changes; state and sink do not change")
    return words


def _ttl_changes(before: Ttls, after: Ttls) -> list[str]:
    """Describe changed times to live."""
    words = []
    for name in sorted({*before, *after}):
        old = before.get(name)
        new = after.get(name)
        if old == new:
            continue
        where = f"state {name}: " if name else ""
        change = f"{_shown(old)} -> {_shown(new)}"
        words.append(f"{where}ttl {change}")
    return words


@dataclass(frozen=True)
class Affected:
    """Counts the entries that a migration changes; runs in workers.

    Args:
        entries: The stored entries.
        states: States ("" for the only one) whose entries get a stamp, lose it, or are dropped.
        rules: Old and new expiry rules.
        at: The last step.
    """

    entries: StoredEntries
    states: tuple[Sequence[str], Sequence[str], Sequence[str]]
    rules: tuple[ExpiryRules, ExpiryRules]
    at: Step

    def __call__(self, part: HashRange) -> Ints:
        """Return how many entries of a part get a stamp, lose it, become live again, and are dropped."""
        none = np.zeros(4, np.int64)
        return sum(map(self._counts, self.entries.newest(part)), none)

    def _counts(self, newest: pa.Table) -> Ints:
        is_live = ~flags(newest, "_removed")
        live = newest.filter(pa.array(is_live))
        stamped, unstamped, dropped = self.states
        rules_before, rules_after = self.rules
        is_dropped = self._is_of(live, dropped)
        had_expired = rules_before.expired(live, self.at)
        expires = rules_after.expired(live, self.at)
        # A dropped entry does not become live again, for any time to live.
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
        is_only_one = "" in states
        return np.full(len(entries), is_only_one)


def _counts(
    executor: Executor,
    tables: Plan,
    last: StepFacts,
    removed: list[str],
) -> list[int]:
    """Count the entries that get a stamp, lose it, become live again, and are dropped."""
    operator = tables.operator
    before = _ttls(last.state.spec)
    after = _ttls(tables.spec.identity)
    snapshot = tables.state.snapshot()
    stored = tables.state.stored(snapshot)
    entries = StoredEntries(stored, packed(operator))
    stamped = _names_only_in(after, before)
    unstamped = _names_only_in(before, after)
    rules_before = _rules(operator, before)
    rules_after = _rules(operator, after)
    affected = Affected(
        entries,
        states=(stamped, unstamped, removed),
        rules=(rules_before, rules_after),
        at=Step(last.step, last.now_ms, last.frontier.watermark_ms),
    )
    parts = executor.map(
        affected,
        entries.parts(),
        is_little=entries.is_small,
        at=lambda part: part.middle(),
    )
    none = np.zeros(4, np.int64)
    counts: list[int] = sum(parts, none).tolist()
    return counts


def _state_changes(
    spec: Pipeline,
    last: StepFacts,
    stored: pa.Schema,
) -> tuple[list[str], list[str]]:
    """Describe added, removed and widened states; return the removed ones' names.

    Raises:
        MigrationError: a state has changed its kind, or its values do not fit the new type.
    """
    before = last.state.spec.get("states", {})
    after = spec.identity.get("states", {})
    added = _names_only_in(after, before)
    removed = _names_only_in(before, after)
    words = [f"state {name}: added" for name in added]
    words += [f"state {name}: removed" for name in removed]
    words += _retyped(spec, before, stored)
    return words, removed


def _retyped(spec: Pipeline, before: Mapping[str, Any], stored: pa.Schema) -> list[str]:
    """Describe states with changed types; errors as `_state_changes`."""
    entry_schema = Plan("", spec).operator.schema
    states = spec.identity.get("states", {})
    words = []
    for name, declared in states.items():
        if name not in before or before[name] == declared:
            continue
        kind, type_, key_type = before[name]
        new_kind, new_type, new_key_type = declared
        is_same_kind = kind == new_kind and key_type == new_key_type
        # The stored types of the values decide, not their names in the two specs.
        column = f"_value_{name}"
        stored_type = stored.field(column).type
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


@dataclass(frozen=True)
class Migrated:
    """Keeps the live entries, without those of removed states, stamped for the new TTLs.

    Args:
        states: The states in the spec; None: the operator's entries have no states.
        clocks_ms: State whose TTL was switched on (None: all states without one) to the stamp of its entries.
        switched_off: Named states whose TTL was switched off: their stamps are removed.
    """

    states: tuple[str, ...] | None
    clocks_ms: Mapping[str | None, int]
    switched_off: tuple[str, ...]

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `ebbtide.tables.Keep`."""
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
            entries = with_column(entries, "_ttl_ms", own_ttl_ms)
        return with_column(entries, "_stamp_ms", stamps)


def _is_in(entries: pa.Table, states: Sequence[str]) -> Mask:
    """Mark the entries that are of one of some states."""
    is_in = np.zeros(len(entries), dtype=bool)
    for state in states:
        is_in |= equals(entries, "_state", state)
    return is_in


def migrated_entries(tables: Plan, last: StepFacts, at: Step) -> Migrated:
    """Return a function that migrates a step's entries: entries whose TTL was switched on get the present time as stamp."""
    operator = tables.operator
    before = _ttls(last.state.spec)
    after = _ttls(tables.spec.identity)
    clocks_ms: dict[str | None, int] = {}
    for name in _names_only_in(after, before):
        state = name or None
        ttl = operator.expiry.ttls[state]
        # By event time the clock is the watermark, which a pipeline without events does not have yet.
        clock_ms = at.clock_ms(ttl)
        has_watermark = clock_ms != Long.MIN
        clocks_ms[state] = clock_ms if has_watermark else at.now_ms
    states = None
    if operator.has_named_states:
        declared = tables.spec.identity["states"]
        states = (*declared, TIMERS)
    switched_off = _names_only_in(before, after)
    return Migrated(states, clocks_ms, tuple(switched_off))


def _names_only_in(names: Mapping[str, Any], beside: Mapping[str, Any]) -> list[str]:
    return [name for name in names if name not in beside]


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
