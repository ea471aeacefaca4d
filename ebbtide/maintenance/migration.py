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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

from ebbtide.errors import MigrationError
from ebbtide.ledger.facts import StepFacts
from ebbtide.maintenance.job import stepping
from ebbtide.model.durations import format_duration, from_ms
from ebbtide.model.entries import LONG_MIN, Step
from ebbtide.model.state.timers import TIMERS
from ebbtide.model.step import StepKind
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.expiry_rules import ExpiryRules
from ebbtide.operators.operator import Operator
from ebbtide.runtime.plan import Plan, operator_of
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.columns import spark_schema
from ebbtide.state_table.expiry import has_expired, is_of_state
from ebbtide.state_table.layout import FILE

Ttls = dict[str, dict[str, Any]]
"""Name of a state, empty for the only one, to the fields of its time to live."""


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
        counts = [
            f"{self.stamped} entries stamped",
            f"{self.unstamped} unstamped",
            f"{self.revived} expired ones brought back",
            f"{self.dropped} dropped",
        ]
        next_step = "To do it: 'ebbtide migrate --apply'."
        if self.step is not None:
            next_step = f"Done in step {self.step}. To undo it before the next run: 'ebbtide migrate --undo'."
        lines = [
            f"{self.pipeline}: {', '.join(counts)}.",
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
    version, last = commit
    return _plan(spark, tables, version, last)


def apply(spark: SparkSession, spec: Pipeline, root: str, clock_ms: int) -> MigrationPlan:
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
        planned = _plan(spark, tables, stepper.version, stepper.last)
        if not planned.changes:
            return planned
        clock = stepper.next_clock(clock_ms)
        facts = stepper.maintenance_step(StepKind.MIGRATION, clock)
        entries = _migrated(
            spark,
            tables,
            stepper.version,
            stepper.last,
            facts.operator_step,
        )
        files = tables.state.read(spark, stepper.version, FILE)
        files_read = files.select("_entry", "_note", "_step").coalesce(1)
        rows = entries.unionByName(files_read, allowMissingColumns=True)
        version = tables.state.commit(
            rows,
            facts,
            read_version=stepper.version,
            mode="overwrite",
        )
        stepper.advance_to(facts, version)
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
                next_step="Change the spec back and migrate again: stamps that are gone start again at the time of that.",
            )
        facts = stepper.maintenance_step(StepKind.MIGRATION)
        facts = facts.model_copy(update={"spec": spec_before})
        # The version that the migration read is the state before it, whole.
        reader = spark.read.format("delta").option("versionAsOf", last.state_version)
        rows = reader.load(tables.state.path)
        version = tables.state.commit(
            rows,
            facts,
            read_version=stepper.version,
            mode="overwrite",
        )
        stepper.advance_to(facts, version)
        return MigrationPlan(
            spec.name,
            changes=["the state is as before the migration"],
            step=stepper.number,
        )


def _spec_before_migration(tables: Plan, last: StepFacts | None) -> dict[str, Any] | None:
    """Return the spec that the last step migrated from; None if it is not a migration, or did not change the spec."""
    if last is None or last.kind is not StepKind.MIGRATION:
        return None
    for _, facts in tables.state.steps():
        if facts.step < last.step:
            is_changed = facts.spec != last.spec
            return facts.spec if is_changed else None
    return None


def _plan(spark: SparkSession, tables: Plan, version: int, last: StepFacts) -> MigrationPlan:
    spec = tables.spec
    changed = spec.misfits(last.spec)
    if not changed:
        return MigrationPlan(spec.name)
    can_migrate = set(changed) <= spec.migrates
    if not can_migrate:
        differences = [f"{name}: {last.spec.get(name)} -> {spec.identity[name]}" for name in changed]
        migrates = sorted(spec.migrates)
        raise MigrationError.of(
            f"The stored state of '{spec.name}' cannot be migrated to the spec.",
            got="; ".join(differences),
            allowed=f"a change of {', '.join(migrates)}",
            next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    stored = tables.state.read(spark, version)
    state_changes, removed = _state_changes(spec, last, stored)
    ttl_changes = _ttl_changes(
        before=_ttls(last.spec),
        after=_ttls(spec.identity),
    )
    entries = tables.state.kept(spark, version)
    stamped, unstamped, revived, dropped = _counts(tables, entries, last, removed)
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


def _counts(
    tables: Plan,
    entries: DataFrame,
    last: StepFacts,
    removed: list[str],
) -> tuple[int, ...]:
    """Count the entries that get a stamp, lose theirs, live again, and are dropped."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    at = Step(last.step, last.now_ms, last.watermark_ms)
    had_expired = has_expired(operator, at, _rules(operator, before))
    expires = has_expired(operator, at, _rules(operator, after))
    state = F.col("_state") if operator.has_named_states else F.lit("")
    is_stamped = state.isin(_names_only_in(after, before))
    is_unstamped = state.isin(_names_only_in(before, after))
    is_removed = state.isin(removed)
    is_revived = had_expired & ~expires & ~is_removed
    counts = entries.agg(
        F.count_if(is_stamped),
        F.count_if(is_unstamped),
        F.count_if(is_revived),
        F.count_if(is_removed),
    )
    return tuple(counts.collect()[0])


def _state_changes(spec: Pipeline, last: StepFacts, stored: DataFrame) -> tuple[list[str], list[str]]:
    """Put added, removed and widened states into words; name the removed.

    Raises:
        MigrationError: a state has become another kind, or its type one that its values do not fit.
    """
    before = last.spec.get("states", {})
    after = spec.identity.get("states", {})
    added = _names_only_in(after, before)
    removed = _names_only_in(before, after)
    words = [f"state {name}: added" for name in added]
    words += [f"state {name}: removed" for name in removed]
    words += _retyped(spec, before, stored)
    return words, removed


def _retyped(spec: Pipeline, before: Mapping[str, Any], stored: DataFrame) -> list[str]:
    """Put the states whose type has changed into words; errors as `_state_changes`."""
    entry_schema = operator_of(spec).schema
    words = []
    for name, declared in spec.identity.get("states", {}).items():
        if name not in before or before[name] == declared:
            continue
        kind, type_, key_type = before[name]
        new_kind, new_type, new_key_type = declared
        is_same_kind = kind == new_kind and key_type == new_key_type
        # The types of the values as they are stored decide, not their names in the two specs.
        column = f"_value_{name}"
        stored_type = to_arrow_type(stored.schema[column].dataType)
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


def _migrated(
    spark: SparkSession,
    tables: Plan,
    version: int,
    last: StepFacts,
    at: Step,
) -> DataFrame:
    """Return the live entries as the spec needs them: without those of removed states, stamped for the new TTLs, cast."""
    entries = tables.state.kept(spark, version)
    if tables.operator.has_named_states:
        known_states = [*tables.spec.identity["states"], TIMERS]
        is_known = F.col("_state").isin(known_states)
        entries = entries.where(is_known)
    entries = _restamped(entries, tables, last, at)
    schema = tables.state.schema
    fit = partial(_fit, schema)
    return entries.mapInArrow(fit, spark_schema(schema, nullable=True))


def _restamped(entries: DataFrame, tables: Plan, last: StepFacts, at: Step) -> DataFrame:
    """Stamp the entries whose TTL was switched on as if written now; of named states, clear those whose TTL was switched off."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    stamp_ms = F.col("_stamp_ms")
    for name in _names_only_in(after, before):
        state = name or None
        clock_ms = at.clock_ms(operator.expiry.ttls[state])
        if clock_ms == LONG_MIN:  # there is no watermark yet
            clock_ms = at.now_ms
        is_own = is_of_state(operator.expiry, state)
        stamp_ms = F.when(is_own, F.lit(clock_ms)).otherwise(stamp_ms)
    if operator.has_named_states:
        switched_off = _names_only_in(before, after)
        keeps_ttl = ~F.col("_state").isin(switched_off)
        own_ttl_ms = F.when(keeps_ttl, F.col("_ttl_ms"))
        stamp_ms = F.when(keeps_ttl, stamp_ms)
        entries = entries.withColumn("_ttl_ms", own_ttl_ms)
    return entries.withColumn("_stamp_ms", stamp_ms)


def _fit(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cast the columns of entries to those of a schema; what they do not have is null."""
    nullable_fields = [column.with_nullable(True) for column in schema]
    nullable = pa.schema(nullable_fields)
    for batch in batches:
        arrays = [_values(batch, column) for column in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=nullable)


def _values(batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
    if column.name not in batch.schema.names:
        return pa.nulls(len(batch), column.type)
    values = batch.column(column.name)
    return values.cast(column.type)


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
    duration = format_duration(from_ms(ttl["ttl_ms"]))
    names = ("update_type", "time_characteristic")
    settings = [str(ttl[name]) for name in names if name in ttl]
    return f"{duration} ({', '.join(settings)})"
