"""Stored state as rows that people read: from Python a DataFrame, from SQL a view, from the command line a table.

| column | meaning |
|---|---|
| the key's columns | |
| `state` | name of the state; not in upsert pipelines, which have one |
| `map_key`, `position` | a map's key as text, a list's position |
| the value's | of a stateful pipeline `value` (of one state typed, of several JSON); of an upsert pipeline the entry's columns, in sequence mode `tombstone`: it is deleted; in arrival mode `_role` and `_shown`, see `ebbtide.operators._arrival.rules` |
| `accessed` | its last access |
| `expires` | when it expires; null: never, or not before the year 2200 |
| `live` | true if it has not expired |
| `step` | the step that wrote it |

Source: FLIP-25, "Future work": queryable state with TTL.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.entries import Step
from ebbtide.errors import ConfigError
from ebbtide.executors import Executor
from ebbtide.frames import column, columns, json_text
from ebbtide.inspect import _expiry as expiry
from ebbtide.ledger import StepFacts
from ebbtide.runtime import Plan
from ebbtide.sessions import executor_of
from ebbtide.spec import Pipeline

LAST_MS = 7_258_118_400_000
"""The year 2200: an entry that expires later is shown as one that never does."""


def state(
    executor: Executor | SparkSession,
    spec: Pipeline,
    root: str,
    *,
    state: str | None = None,
    as_of_step: int | None = None,
    now_ms: int | None = None,
) -> DataFrame:
    """Read a pipeline's state.

    Args:
        root: Folder of all pipelines' tables.
        state: One of its states, by name. Default: all.
        as_of_step: A step whose state is still stored. Default: the last.
        now_ms: The time that `live` goes by, epoch ms. Default: the clock of the step; event time goes by its watermark anyway.

    Raises:
        ConfigError: no such state, no such step.
    """
    tables = Plan.under(root, spec)
    version, facts = _commit(tables, as_of_step)
    states = spec.identity.get("states", {})
    names = list(states)
    if state is not None and state not in names:
        allowed = ", ".join(names)
        raise ConfigError.of(
            f"'{spec.name}' has no such state.",
            got=state,
            allowed=allowed or "none: it has but one",
        )
    # Nothing has used the session so far: a refusal starts no Spark.
    entries = tables.state.frames.live_entries(executor_of(executor).spark(), version)
    if now_ms is None:
        now_ms = facts.now_ms
    watermark_ms = facts.frontier.watermark_ms
    at = Step(facts.step, now_ms, watermark_ms)
    life = _life(tables, at)
    key = columns(spec.key)
    if not names:
        values = _upsert_values(tables, entries)
        return entries.select(*key, *values, *life)
    # The value of one state keeps its type; those of several have JSON as their common type.
    if state is None:
        shown_states = names
        value = _json(names)
    else:
        shown_states = [state]
        value = column(f"_value_{state}")
    state_name = F.col("_state")
    is_shown = state_name.isin(shown_states)
    shown = entries.where(is_shown)
    map_key = _map_key(tables)
    position = F.col("_position")
    return shown.select(
        *key,
        state_name.alias("state"),
        map_key.alias("map_key"),
        position.alias("position"),
        value.alias("value"),
        *life,
    )


def _life(tables: Plan, at: Step) -> list[Column]:
    """Return `accessed`, `expires`, `live` and `step` of each entry."""
    spec = tables.spec
    overdue_ms = expiry.overdue_ms(tables.operator, at)
    if spec.sequence and not spec.expires_live:
        is_deleted = F.col("_tombstone")
        # A live row does not expire: only the entry of a deleted one does, or a row's wait for a value.
        overdue_ms = F.when(is_deleted, overdue_ms)
    # Overdue time = clock - expiry time, so the expiry time is the clock less the overdue time.
    clock_ms = _clock_ms(tables, at)
    expires_ms = F.try_subtract(clock_ms, overdue_ms)
    is_before_last = expires_ms < F.lit(LAST_MS)
    expires = F.when(is_before_last, F.timestamp_millis(expires_ms))
    is_ahead = overdue_ms < 0
    is_live = F.coalesce(is_ahead, F.lit(True))
    accessed = F.timestamp_millis("_stamp_ms")
    return [
        accessed.alias("accessed"),
        expires.alias("expires"),
        is_live.alias("live"),
        F.col("_step").alias("step"),
    ]


def _clock_ms(tables: Plan, at: Step) -> Column:
    """Return each entry's clock, epoch ms: that of its state."""
    clock_ms = F.lit(0).cast("bigint")
    rules = tables.operator.expiry
    for name, ttl in rules.ttls.items():
        own_ms = F.lit(at.clock_ms(ttl))
        if name is None:
            clock_ms = own_ms
        else:
            state_name = F.col(rules.ttl_selector)
            is_own = state_name == name
            clock_ms = F.when(is_own, own_ms).otherwise(clock_ms)
    return clock_ms


def _upsert_values(tables: Plan, entries: DataFrame) -> list[Column]:
    """Return an upsert pipeline's columns other than the key's, and the internal ones that mark the kind of entry."""
    key = tables.spec.key
    schema = tables.operator.columns
    names = [name for name in schema.names if name not in key]
    values = columns(names)
    stored = entries.columns
    if "_tombstone" in stored:
        is_deleted = F.col("_tombstone")
        values.append(is_deleted.alias("tombstone"))
    for mark in ("_role", "_shown"):
        if mark in stored:
            values.append(column(mark))
    return values


def create_view(spark: SparkSession, spec: Pipeline, root: str) -> str:
    """Make the state of a pipeline a view for SQL in this session, as of its last step; return its name, NAME_state."""
    name = f"{spec.name}_state"
    rows = state(spark, spec, root)
    rows.createOrReplaceTempView(name)
    return name


def _commit(tables: Plan, step: int | None) -> tuple[int, StepFacts]:
    tables.state.last()  # refuses another format
    steps = []
    newest_first = tables.state.steps()
    for version, facts in newest_first:
        if step is None or facts.step == step:
            return version, facts
        steps.append(facts.step)
    name = tables.spec.name
    if not steps:
        raise ConfigError.of(
            f"'{name}' has made no step yet.",
            got=step,
            next_step="Run 'ebbtide run' first.",
        )
    newest = steps[0]
    oldest = steps[-1]
    raise ConfigError.of(
        f"'{name}' has no such step.",
        got=step,
        allowed=f"{oldest} to {newest}",
    )


def _map_key(tables: Plan) -> Column:
    """Return the key of each map row as text; bytes in hexadecimal."""
    key_text = F.lit(None).cast("string")
    schema = tables.operator.schema
    for name in tables.spec.identity["states"]:
        key_name = f"_key_{name}"
        is_map = key_name in schema.names
        if not is_map:
            continue
        key = column(key_name)
        own_text = key.cast("string")
        if pa.types.is_binary(schema.field(key_name).type):
            own_text = F.lower(F.hex(key))
        is_own = F.col("_state") == name
        key_text = F.when(is_own, own_text).otherwise(key_text)
    return key_text


def _json(names: list[str]) -> Column:
    """Return the value of each row's own state, as JSON."""
    value_text = F.lit(None).cast("string")
    for name in names:
        value = column(f"_value_{name}")
        # Spark writes JSON only of a row: the value is wrapped into one and taken out of its text.
        row = F.struct(value.alias("value"))
        row_text = json_text(row)
        own_text = F.regexp_extract(row_text, r"^\{\"value\":(.*)\}$", 1)
        is_own = F.col("_state") == name
        value_text = F.when(is_own, own_text).otherwise(value_text)
    return value_text
