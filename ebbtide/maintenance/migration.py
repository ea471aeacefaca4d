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

from collections.abc import Iterator, Mapping
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
        counts = (
            f"{self.stamped} entries stamped, {self.unstamped} unstamped, "
            f"{self.revived} expired ones brought back, {self.dropped} dropped"
        )
        next_step = "To do it: 'ebbtide migrate --apply'."
        if self.step is not None:
            next_step = f"Done in step {self.step}. To undo it before the next run: 'ebbtide migrate --undo'."
        changes = [f"  {change}" for change in self.changes]
        return "\n".join([f"{self.pipeline}: {counts}.", *changes, f"  {next_step}"])


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
        facts = stepper.maintenance_step(StepKind.MIGRATION, stepper.next_clock(clock_ms))
        entries = _migrated(spark, tables, stepper.version, stepper.last, facts.operator_step)
        files_read = tables.state.read(spark, stepper.version, FILE).select("_entry", "_note", "_step")
        rows = entries.unionByName(files_read.coalesce(1), allowMissingColumns=True)
        version = tables.state.commit(rows, facts, stepper.version, "overwrite")
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
        before = None if last is None else _step_before(tables, last)
        is_migration = last is not None and last.kind is StepKind.MIGRATION
        if last is None or before is None or not is_migration or before.spec == last.spec:
            raise MigrationError.of(
                f"There is no migration of '{spec.name}' to undo.",
                got=f"step {stepper.number}, {last.kind if last else 'none'}",
                allowed="a migration as the last step",
                next_step="Change the spec back and migrate again: stamps that are gone start again at the time of that.",
            )
        facts = stepper.maintenance_step(StepKind.MIGRATION).model_copy(update={"spec": before.spec})
        rows = spark.read.format("delta").option("versionAsOf", last.state_version).load(tables.state.path)
        version = tables.state.commit(rows, facts, stepper.version, "overwrite")
        stepper.advance_to(facts, version)
        return MigrationPlan(spec.name, ["the state is as before the migration"], step=stepper.number)


def _step_before(tables: Plan, last: StepFacts) -> StepFacts | None:
    for _, facts in tables.state.steps():
        if facts.step < last.step:
            return facts
    return None


def _plan(spark: SparkSession, tables: Plan, version: int, last: StepFacts) -> MigrationPlan:
    spec = tables.spec
    changed = spec.misfits(last.spec)
    if not changed:
        return MigrationPlan(spec.name)
    if not set(changed) <= spec.migrates:
        differences = [f"{name}: {last.spec.get(name)} -> {spec.identity[name]}" for name in changed]
        raise MigrationError.of(
            f"The stored state of '{spec.name}' cannot be migrated to the spec.",
            got="; ".join(differences),
            allowed=f"a change of {', '.join(sorted(spec.migrates))}",
            next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    stored = tables.state.read(spark, version)
    changed_states, removed = _state_changes(spec, last, stored)
    before = _ttls(last.spec)
    after = _ttls(spec.identity)
    counts = _counts(tables, tables.state.kept(spark, version), last, removed)
    return MigrationPlan(spec.name, [*changed_states, *_ttl_changes(before, after)], *counts)


def _ttl_changes(before: Ttls, after: Ttls) -> list[str]:
    """Put changed times to live into words."""
    words = []
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        where = f"state {name}: " if name else ""
        words.append(f"{where}ttl {_shown(before.get(name))} -> {_shown(after.get(name))}")
    return words


def _counts(tables: Plan, entries: DataFrame, last: StepFacts, removed: list[str]) -> tuple[int, ...]:
    """Count the entries that get a stamp, lose theirs, live again, and are dropped."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    at = Step(last.step, last.now_ms, last.watermark_ms)
    had_expired = has_expired(operator, at, _rules(operator, before))
    expires = has_expired(operator, at, _rules(operator, after))
    state = F.col("_state") if operator.has_named_states else F.lit("")
    is_removed = state.isin(removed)
    counts = entries.agg(
        F.count_if(state.isin(_names_only_in(after, before))),
        F.count_if(state.isin(_names_only_in(before, after))),
        F.count_if(had_expired & ~expires & ~is_removed),
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
    entry_schema = operator_of(spec).schema
    for name in after:
        if name in added or before[name] == after[name]:
            continue
        kind, type_, key_type = before[name]
        new_kind, new_type, new_key_type = after[name]
        values = f"_value_{name}"
        stored_type = to_arrow_type(stored.schema[values].dataType)
        is_same_kind = (kind, key_type) == (new_kind, new_key_type)
        if not is_same_kind or not widens(stored_type, entry_schema.field(values).type):
            raise MigrationError.of(
                f"State '{name}' of '{spec.name}' cannot be migrated.",
                got=f"{before[name]} -> {after[name]}",
                allowed="the same kind and key type; wider numbers, more fields in structs",
                next_step="Declare it under another name, or run 'ebbtide refresh'.",
            )
        words.append(f"state {name}: {type_} -> {new_type}")
    return words, removed


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
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return bool(old.bit_width <= new.bit_width)
    if pa.types.is_floating(old) and pa.types.is_floating(new):
        return bool(old.bit_width <= new.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        old_whole_digits = old.precision - old.scale
        new_whole_digits = new.precision - new.scale
        return bool(old.scale <= new.scale and old_whole_digits <= new_whole_digits)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        new_types = {field.name: field.type for field in new}
        return all(field.name in new_types and widens(field.type, new_types[field.name]) for field in old)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return widens(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(old.key_type == new.key_type) and widens(old.item_type, new.item_type)
    return False


def _migrated(spark: SparkSession, tables: Plan, version: int, last: StepFacts, at: Step) -> DataFrame:
    """Return the live entries as the spec needs them."""
    operator = tables.operator
    before = _ttls(last.spec)
    after = _ttls(tables.spec.identity)
    entries = tables.state.kept(spark, version)
    if operator.has_named_states:
        known_states = [*tables.spec.identity["states"], TIMERS]
        entries = entries.where(F.col("_state").isin(known_states))

    stamp_ms = F.col("_stamp_ms")
    for name in _names_only_in(after, before):  # its TTL was switched on: entries live from now on
        state = name or None
        clock_ms = at.clock_ms(operator.expiry.ttls[state])
        start_ms = at.now_ms if clock_ms == LONG_MIN else clock_ms
        stamp_ms = F.when(is_of_state(operator.expiry, state), F.lit(start_ms)).otherwise(stamp_ms)
    if operator.has_named_states:
        keeps_ttl = ~F.col("_state").isin(_names_only_in(before, after))
        stamp_ms = F.when(keeps_ttl, stamp_ms)
        entries = entries.withColumn("_ttl_ms", F.when(keeps_ttl, F.col("_ttl_ms")))
    entries = entries.withColumn("_stamp_ms", stamp_ms)

    schema = tables.state.schema
    fit = partial(_fit, schema)
    return entries.mapInArrow(fit, spark_schema(schema, nullable=True))


def _fit(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cast the columns of entries to those of a schema; what they do not have is null."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    for batch in batches:
        arrays = []
        for column in schema:
            if column.name in batch.schema.names:
                array = batch.column(column.name).cast(column.type)
            else:
                array = pa.nulls(len(batch), column.type)
            arrays.append(array)
        yield pa.RecordBatch.from_arrays(arrays, schema=nullable)


def _names_only_in(these: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return [name for name in these if name not in others]


def _ttls(identity: Mapping[str, Any]) -> Ttls:
    return dict(identity["ttl"])


def _rules(operator: Operator, ttls: Ttls) -> ExpiryRules:
    """Return an operator's rules with other times to live."""
    configs: dict[str | None, StateTtlConfig] = {}
    for name, fields in ttls.items():
        settings = dict(fields)
        ttl = from_ms(settings.pop("ttl_ms"))
        configs[name or None] = StateTtlConfig(ttl=ttl, **settings)
    return replace(operator.expiry, ttls=configs)


def _shown(ttl: dict[str, Any] | None) -> str:
    if ttl is None:
        return "none"
    duration = format_duration(from_ms(ttl["ttl_ms"]))
    shown = [str(ttl[name]) for name in ("update_type", "time_characteristic") if name in ttl]
    return f"{duration} ({', '.join(shown)})"
