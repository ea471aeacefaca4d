"""Migration: stored state is made to fit a spec whose TTL or state types have changed. Planned, applied, undone.

| change | entries |
|---|---|
| TTL switched on | stamped with the time of the migration |
| TTL switched off | stamps go; what has expired and is still stored comes back |
| TTL changed | as they are: the new configuration reads them anew; a longer one brings back what is still stored |
| a state added | none yet |
| a state removed | dropped |
| a field added, a type widened | cast |

A migration is one step: it folds the state, as compaction does. It can be undone until the next step.
Source: FLIP-25, "Migration Plan and Compatibility"; Flink 2.3 does this on restore, unasked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
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
from ebbtide.runtime.plan import Plan, operator_of
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.columns import spark_schema
from ebbtide.state_table.layout import FILE


@dataclass(frozen=True)
class MigrationPlan:
    """What a migration would do, or did.

    Args:
        pipeline: Its name.
        changes: Each in words.
        stamped: Entries that get a stamp.
        unstamped: Entries that lose theirs.
        revived: Expired entries, still stored, that would live again.
        dropped: Entries of states that are no more.
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
        counts = f"{self.stamped} entries stamped, {self.unstamped} unstamped, {self.revived} expired ones brought back, {self.dropped} dropped"
        done = (
            "To do it: 'ebbtide migrate --apply'."
            if self.step is None
            else f"Done in step {self.step}. To undo it before the next run: 'ebbtide migrate --undo'."
        )
        return "\n".join([f"{self.pipeline}: {counts}.", *(f"  {change}" for change in self.changes), f"  {done}"])


def plan(spark: SparkSession, spec: Pipeline, root: str) -> MigrationPlan:
    """Tell what a migration to a spec would do. Changes nothing.

    Raises:
        MigrationError: the change is none that a migration can make.
    """
    tables = Plan.under(root, spec)
    found = tables.state.last()
    return MigrationPlan(spec.name) if found is None else _plan(spark, tables, *found)


def apply(spark: SparkSession, spec: Pipeline, root: str, clock_ms: int) -> MigrationPlan:
    """Migrate the stored state to a spec, in one step.

    Args:
        spark: A session with Delta.
        spec: The pipeline as it is to be.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms: that of the new stamps.

    Raises:
        MigrationError: the change is none that a migration can make.
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
        rows = _migrated(spark, tables, stepper.version, stepper.last, facts.operator_step)
        read = tables.state.read(spark, stepper.version, FILE).select("_entry", "_note", "_step").coalesce(1)
        stepper.advance_to(
            facts,
            tables.state.commit(rows.unionByName(read, allowMissingColumns=True), facts, stepper.version, "overwrite"),
        )
        return MigrationPlan(**{**planned.as_dict(), "step": stepper.number})


def undo(spark: SparkSession, spec: Pipeline, root: str) -> MigrationPlan:
    """Put the state back to what it was before a migration that was the last step; a step of its own.

    Args:
        spark: A session with Delta.
        spec: The pipeline, with either configuration.
        root: Folder of all pipelines' tables.

    Raises:
        MigrationError: the last step is no migration.
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    with stepping(spark, tables) as stepper:
        last = stepper.last
        before = None if last is None else next((f for _, f in tables.state.steps() if f.step < last.step), None)
        if last is None or last.kind is not StepKind.MIGRATION or before is None or before.spec == last.spec:
            raise MigrationError.of(
                f"There is no migration of '{spec.name}' to undo.",
                got=f"step {stepper.number}, {last.kind if last else 'none'}",
                allowed="a migration as the last step",
                next_step="Change the spec back and migrate again: stamps that are gone start anew.",
            )
        facts = stepper.maintenance_step(StepKind.MIGRATION).model_copy(update={"spec": before.spec})
        rows = spark.read.format("delta").option("versionAsOf", last.state_version).load(tables.state.path)
        stepper.advance_to(facts, tables.state.commit(rows, facts, stepper.version, "overwrite"))
        return MigrationPlan(spec.name, ["the state is as before the migration"], step=stepper.number)


def _plan(spark: SparkSession, tables: Plan, version: int, last: StepFacts) -> MigrationPlan:
    spec = tables.spec
    changed = spec.misfits(last.spec)
    if not changed:
        return MigrationPlan(spec.name)
    if not set(changed) <= spec.migrates:
        raise MigrationError.of(
            f"The stored state of '{spec.name}' cannot be migrated to the spec.",
            got="; ".join(f"{name}: {last.spec.get(name)} -> {spec.identity[name]}" for name in changed),
            allowed=f"a change of {', '.join(sorted(spec.migrates))}",
            next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    stored = tables.state.read(spark, version)
    words, dropped_states = _state_changes(spec, last, stored)
    before, after = _ttls(last.spec), _ttls(spec.identity)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            where = f"state {name}: " if name else ""
            words.append(f"{where}ttl {_shown(before.get(name))} -> {_shown(after.get(name))}")
    entries = tables.state.kept(spark, version)
    at = Step(last.step, last.now_ms, last.watermark_ms)
    was_over, is_over = (tables.state.expired(at, _keyed(ttls)) for ttls in (before, after))
    state = F.col("_state") if "_state" in entries.columns else F.lit("")
    counts = entries.agg(
        F.count_if(state.isin([n for n in after if n not in before])),
        F.count_if(state.isin([n for n in before if n not in after])),
        F.count_if(was_over & ~is_over & ~state.isin(dropped_states)),
        F.count_if(state.isin(dropped_states)),
    ).collect()[0]
    return MigrationPlan(spec.name, words, *counts)


def _state_changes(spec: Pipeline, last: StepFacts, stored: DataFrame) -> tuple[list[str], list[str]]:
    """Put added, removed and widened states into words; name the removed.

    Raises:
        MigrationError: a state has become another kind, or its type one that its values do not fit.
    """
    before, after = last.spec.get("states", {}), spec.identity.get("states", {})
    words = [f"state {name}: added" for name in after if name not in before]
    removed = [name for name in before if name not in after]
    words += [f"state {name}: removed" for name in removed]
    for name in (name for name in after if name in before and before[name] != after[name]):
        old, new = stored.schema[f"_value_{name}"].dataType, operator_of(spec).schema.field(f"_value_{name}").type
        if [before[name][i] for i in (0, 2)] != [after[name][i] for i in (0, 2)] or not widens(to_arrow_type(old), new):
            raise MigrationError.of(
                f"State '{name}' of '{spec.name}' cannot be migrated.",
                got=f"{before[name]} -> {after[name]}",
                allowed="the same kind and key type; wider numbers, more fields in structs",
                next_step="Declare it under another name, or run 'ebbtide refresh'.",
            )
        words.append(f"state {name}: {before[name][1]} -> {after[name][1]}")
    return words, removed


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Tell whether every value of one type is a value of another.

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
        return bool(old.scale <= new.scale and old.precision - old.scale <= new.precision - new.scale)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        fields = {f.name: f.type for f in new}
        return all(f.name in fields and widens(f.type, fields[f.name]) for f in old)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return widens(old.value_type, new.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(old.key_type == new.key_type) and widens(old.item_type, new.item_type)
    return False


def _migrated(spark: SparkSession, tables: Plan, version: int, last: StepFacts, at: Step) -> DataFrame:
    """Return the live entries as the spec needs them."""
    schema, before, after = tables.state.schema, _ttls(last.spec), _ttls(tables.spec.identity)
    entries = tables.state.kept(spark, version)
    named = "_state" in schema.names
    if named:
        entries = entries.where(F.col("_state").isin([*tables.spec.identity["states"], TIMERS]))
    name = F.col("_state") if named else F.lit("")
    stamp, own = F.col("_stamp_ms"), F.col("_ttl_ms") if named else None
    for state in after.keys() - before.keys():
        clock = at.clock_ms(tables.operator.ttls[state or None])
        now = at.now_ms if clock == LONG_MIN else clock
        aged = name == state if "_role" not in schema.names else F.col("_role") != "waiting"
        stamp = F.when(aged, F.lit(now)).otherwise(stamp)
    if named and own is not None:
        gone = name.isin([*(before.keys() - after.keys())])
        stamp, own = F.when(~gone, stamp), F.when(~gone, own)
        entries = entries.withColumn("_ttl_ms", own)
    entries = entries.withColumn("_stamp_ms", stamp)

    def fit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            have = {name: batch.column(name) for name in batch.schema.names}
            arrays = [have[f.name].cast(f.type) if f.name in have else pa.nulls(len(batch), f.type) for f in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f.with_nullable(True) for f in schema]))

    return entries.mapInArrow(fit, spark_schema(schema, nullable=True))


def _ttls(identity: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(identity["ttl"])


def _keyed(ttls: Mapping[str, dict[str, Any]]) -> dict[str | None, StateTtlConfig]:
    found: dict[str | None, StateTtlConfig] = {}
    for name, fields in ttls.items():
        rest = {k: v for k, v in fields.items() if k != "ttl_ms"}
        found[name or None] = StateTtlConfig(ttl=from_ms(fields["ttl_ms"]), **rest)
    return found


def _shown(ttl: dict[str, Any] | None) -> str:
    if ttl is None:
        return "none"
    rest = [str(value) for name, value in ttl.items() if name in ("update_type", "time_characteristic")]
    return f"{format_duration(from_ms(ttl['ttl_ms']))} ({', '.join(rest)})"
