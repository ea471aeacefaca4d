"""Stored state as rows that people read: from Python a DataFrame, from SQL a view, from the command line a table.

| column | meaning |
|---|---|
| the key's columns | |
| `state` | name of the state; not in upsert pipelines, which have one |
| `map_key`, `position` | a map's key as text, a list's position |
| the value's | of a stateful pipeline `value` (of one state typed, of several JSON); of an upsert pipeline the entry's columns, in sequence mode `tombstone`: it is deleted; in arrival mode `_role` and `_shown`, see `ebbtide.operators.arrival` |
| `accessed` | its last access |
| `expires` | when its time is over; null: never, or not in the next 200 years |
| `live` | whether its time is not over yet |
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
    names = [*spec.identity.get("states", {})]
    if state is not None and state not in names:
        raise ConfigError.of(
            f"'{spec.name}' has no such state.", got=state, allowed=", ".join(names) or "none: it has but one"
        )
    entries = tables.state.kept(spark, version)
    at = Step(facts.step, facts.now_ms if now_ms is None else now_ms, facts.watermark_ms)
    over = tables.state.overdue_ms(at)
    if spec.sequence and not spec.expires_live:
        over = F.when(F.col("_tombstone"), over)  # of a live row only its waiting for a value ends
    clock_of = F.lit(0).cast("bigint")
    for name, ttl in tables.operator.ttls.items():
        clock = F.lit(at.clock_ms(ttl))
        clock_of = (
            clock if name is None else F.when(F.col(tables.operator.state_column) == name, clock).otherwise(clock_of)
        )
    end = F.try_subtract(clock_of, over)
    rest = [
        F.timestamp_millis("_stamp_ms").alias("accessed"),
        F.when(end < F.lit(LAST_MS), F.timestamp_millis(end)).alias("expires"),
        F.coalesce(over < 0, F.lit(True)).alias("live"),
        F.col("_step").alias("step"),
    ]
    keys = columns(spec.key)
    if not names:
        values = [column(name) for name in tables.operator.columns.names if name not in spec.key]
        own = [name for name in ("_tombstone", "_role", "_shown") if name in entries.columns]
        values += [F.col(n).alias("tombstone" if n == "_tombstone" else n) for n in own]
        return entries.select(*keys, *values, *rest)
    wanted = [state] if state is not None else names
    entries = entries.where(F.col("_state").isin(wanted))
    value = column(f"_value_{state}") if state is not None else _json(names)
    where = [_map_key(spec).alias("map_key"), F.col("_position").alias("position")]
    return entries.select(*keys, F.col("_state").alias("state"), *where, value.alias("value"), *rest)


LAST_MS = 7_258_118_400_000
"""The year 2200: a later end is shown as none."""


def create_view(spark: SparkSession, spec: Pipeline, root: str) -> str:
    """Make the state of a pipeline a view for SQL in this session, as of its last step; return its name, NAME_state."""
    name = f"{spec.name}_state"
    state(spark, spec, root).createOrReplaceTempView(name)
    return name


def _commit(tables: Plan, step: int | None) -> tuple[int, StepFacts]:
    tables.state.last()  # refuses another format
    found = list(tables.state.steps())
    for version, facts in found:
        if step is None or facts.step == step:
            return version, facts
    raise ConfigError.of(
        f"'{tables.spec.name}' has no such step." if found else f"'{tables.spec.name}' has made no step yet.",
        got=step,
        allowed=f"{found[-1][1].step} to {found[0][1].step}" if found else None,
        next_step=None if found else "Run 'ebbtide run' first.",
    )


def _map_key(spec: Pipeline) -> Column:
    """Of each row of a map its key, as text; bytes in hexadecimal."""
    states = spec.states if isinstance(spec, StatefulPipeline) else {}
    found = F.lit(None).cast("string")
    for name, state in states.items():
        if state.key is not None:
            key = column(f"_key_{name}")
            text = F.lower(F.hex(key)) if pa.types.is_binary(state.key) else key.cast("string")
            found = F.when(F.col("_state") == name, text).otherwise(found)
    return found


def _json(names: list[str]) -> Column:
    """Of each row the value of its own state, as JSON."""
    found = F.lit(None).cast("string")
    for name in names:
        text = F.to_json(F.struct(column(f"_value_{name}").alias("value")), {"ignoreNullFields": "false"})
        found = F.when(F.col("_state") == name, F.regexp_extract(text, r"^\{\"value\":(.*)\}$", 1)).otherwise(found)
    return found
