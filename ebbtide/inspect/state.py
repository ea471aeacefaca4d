"""Stored state as rows that people read: from Python a DataFrame, from SQL a view, from the command line a table.

| column | meaning |
|---|---|
| the key's columns | |
| `state` | name of the state; not in upsert pipelines, which have one |
| `map_key`, `position` | a map's key as text, a list's position |
| the value's | of a stateful pipeline `value` (of one state typed, of several JSON); of an upsert pipeline the entry's columns, in sequence mode `tombstone`: it is deleted; in arrival mode `_role` and `_shown`, see `ebbtide.operators.arrival` |
| `accessed` | its last access |
| `expires` | when it expires; null: never, or not before the year 2200 |
| `live` | whether it has not expired yet |
| `step` | the step that wrote it |

Source: FLIP-25, "Future work": queryable state with TTL.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.errors import ConfigError
from ebbtide.ledger.facts import StepFacts
from ebbtide.model.entries import Step
from ebbtide.runtime.plan import Plan
from ebbtide.spec.pipeline import Pipeline
from ebbtide.spec.stateful import StatefulPipeline
from ebbtide.state_table import expiry
from ebbtide.state_table.columns import column, columns


def state(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    state: str | None = None,
    as_of_step: int | None = None,
    now_ms: int | None = None,
) -> DataFrame:
    """Read a pipeline's state.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        state: One of its states, by name. Default: all.
        as_of_step: A step whose state is still stored. Default: the last.
        now_ms: The time that `live` goes by, epoch ms. Default: the clock of the step; event time goes by its watermark anyway.

    Raises:
        ConfigError: no such state, no such step.
    """
    tables = Plan.under(root, spec)
    version, facts = _commit(tables, as_of_step)
    names = list(spec.identity.get("states", {}))
    if state is not None and state not in names:
        allowed = ", ".join(names) or "none: it has but one"
        raise ConfigError.of(f"'{spec.name}' has no such state.", got=state, allowed=allowed)
    entries = tables.state.kept(spark, version)
    at = Step(facts.step, facts.now_ms if now_ms is None else now_ms, facts.watermark_ms)
    life = _life(tables, at)
    key = columns(spec.key)
    if not names:
        return entries.select(*key, *_upsert_values(tables, entries), *life)
    shown_states = names if state is None else [state]
    value = _json(names) if state is None else column(f"_value_{state}")
    place = [
        F.col("_state").alias("state"),
        _map_key(spec).alias("map_key"),
        F.col("_position").alias("position"),
    ]
    of_states = entries.where(F.col("_state").isin(shown_states))
    return of_states.select(*key, *place, value.alias("value"), *life)


def _life(tables: Plan, at: Step) -> list[Column]:
    """Return `accessed`, `expires`, `live` and `step` of each entry."""
    spec = tables.spec
    overdue_ms = expiry.overdue_ms(tables.operator, at)
    if spec.sequence and not spec.expires_live:
        overdue_ms = F.when(F.col("_tombstone"), overdue_ms)  # of a live row only its waiting for a value ends
    # An entry is overdue by its clock less the time at which it expires.
    expires_ms = F.try_subtract(_clock_ms(tables, at), overdue_ms)
    expires = F.when(expires_ms < F.lit(LAST_MS), F.timestamp_millis(expires_ms))
    is_live = F.coalesce(overdue_ms < 0, F.lit(True))
    return [
        F.timestamp_millis("_stamp_ms").alias("accessed"),
        expires.alias("expires"),
        is_live.alias("live"),
        F.col("_step").alias("step"),
    ]


def _clock_ms(tables: Plan, at: Step) -> Column:
    """Return the clock that each entry goes by, epoch ms: that of its own state."""
    clock_ms = F.lit(0).cast("bigint")
    rules = tables.operator.expiry
    for name, ttl in rules.ttls.items():
        own_ms = F.lit(at.clock_ms(ttl))
        if name is None:
            clock_ms = own_ms
        else:
            is_own = F.col(rules.state_column) == name
            clock_ms = F.when(is_own, own_ms).otherwise(clock_ms)
    return clock_ms


def _upsert_values(tables: Plan, entries: DataFrame) -> list[Column]:
    """Return an upsert pipeline's columns beside the key's, and those of ours that say what an entry is."""
    names = [name for name in tables.operator.columns.names if name not in tables.spec.key]
    values = [column(name) for name in names]
    if "_tombstone" in entries.columns:
        is_deleted = F.col("_tombstone")
        values.append(is_deleted.alias("tombstone"))
    marks = [name for name in ("_role", "_shown") if name in entries.columns]
    return values + columns(marks)


LAST_MS = 7_258_118_400_000
"""The year 2200: a later end is shown as none."""


def create_view(spark: SparkSession, spec: Pipeline, root: str) -> str:
    """Make the state of a pipeline a view for SQL in this session, as of its last step; return its name, NAME_state."""
    name = f"{spec.name}_state"
    state(spark, spec, root).createOrReplaceTempView(name)
    return name


def _commit(tables: Plan, step: int | None) -> tuple[int, StepFacts]:
    tables.state.last()  # refuses another format
    steps = list(tables.state.steps())
    for version, facts in steps:
        if step is None or facts.step == step:
            return version, facts
    name = tables.spec.name
    if not steps:
        raise ConfigError.of(f"'{name}' has made no step yet.", got=step, next_step="Run 'ebbtide run' first.")
    _, newest = steps[0]
    _, oldest = steps[-1]
    allowed = f"{oldest.step} to {newest.step}"
    raise ConfigError.of(f"'{name}' has no such step.", got=step, allowed=allowed)


def _map_key(spec: Pipeline) -> Column:
    """Of each row of a map its key, as text; bytes in hexadecimal."""
    states = spec.states if isinstance(spec, StatefulPipeline) else {}
    key_text = F.lit(None).cast("string")
    for name, state in states.items():
        if state.key is None:
            continue
        key = column(f"_key_{name}")
        own_text = F.lower(F.hex(key)) if pa.types.is_binary(state.key) else key.cast("string")
        is_own = F.col("_state") == name
        key_text = F.when(is_own, own_text).otherwise(key_text)
    return key_text


def _json(names: list[str]) -> Column:
    """Of each row the value of its own state, as JSON."""
    value_text = F.lit(None).cast("string")
    for name in names:
        value = column(f"_value_{name}").alias("value")
        wrapped = F.to_json(F.struct(value), {"ignoreNullFields": "false"})
        own_text = F.regexp_extract(wrapped, r"^\{\"value\":(.*)\}$", 1)
        is_own = F.col("_state") == name
        value_text = F.when(is_own, own_text).otherwise(value_text)
    return value_text
