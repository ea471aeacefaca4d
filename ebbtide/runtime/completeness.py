"""Whether the sink shows what the state says it must, key by key: compared in Spark, at given versions of both."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.ledger.facts import StepFacts
from ebbtide.runtime.foreign import ROWS, UNSURE, foreign_rows, may_forget
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import column, columns, json_text

DECIDED = "_decided"
"""The row that the state shows, as JSON; null: it shows none."""
SHOWN = "_shown"
"""A row that the sink has, as JSON; null: it has none."""


def is_kept(plan: Plan) -> bool:
    """Return whether the state keeps what the sink must show: one with named states, of a function of the user's, does not."""
    return not plan.operator.has_named_states


def differences(
    spark: SparkSession,
    plan: Plan,
    facts: StepFacts,
    *,
    state_version: int,
    sink_version: int,
    sink_since: int | None = None,
) -> DataFrame:
    """Compare the sink with the state.

    Args:
        spark: A session with Delta.
        plan: The pipeline; see `is_kept`.
        facts: Of its last step.
        state_version: Version of the state to read.
        sink_version: Version of the sink.
        sink_since: Version of the sink up to which all was judged good. Default: the end of the last window.

    Returns:
        One row for each key of which they differ: key columns, `_decided`, `_shown`, `_rows` and `_unsure`. Keys are left out that
        were acknowledged and have not changed since. Where the state forgets rows that stay in the sink, keys that it does not show
        are those that others changed (`ebbtide.runtime.foreign`).
    """
    key = list(plan.sink.key)
    shown = decided_rows(spark, plan, facts, state_version)
    row_text = as_text(plan.sink.columns.names)
    decided = shown.select(*columns(key), row_text.alias(DECIDED), "_step")
    sink = plan.sink.read(spark, sink_version).select(*columns(key), row_text.alias(SHOWN))
    differing = unlike(decided, sink, key)
    if may_forget(plan, facts):
        differing = differing.where(F.col(DECIDED).isNotNull())
    acknowledged = plan.state.acknowledged(spark, state_version)
    own_key = [column(name).alias(shown_as) for shown_as, name in plan.spec.state_key_of.items()]
    accepted = acknowledged.select(*own_key, F.col("_step").alias("_accepted"))
    beside = differing.join(accepted, key, "left")
    changed_step = F.coalesce("_step", F.lit(0))
    is_accepted = F.coalesce(F.col("_accepted") > changed_step, F.lit(False))
    found = beside.where(~is_accepted).select(*columns(key), DECIDED, SHOWN, ROWS, F.lit(False).alias(UNSURE))
    foreign = foreign_rows(
        spark,
        plan,
        facts,
        state_version=state_version,
        sink_version=sink_version,
        sink_since=sink_since,
    )
    if foreign is None:
        return found
    names = plan.sink.columns.names
    changed = foreign.changed.select(
        *columns(key),
        _text_in("_wanted", names).alias(DECIDED),
        _text_in("_found", names).alias(SHOWN),
        ROWS,
        UNSURE,
    )
    return found.unionByName(changed.join(shown, key, "left_anti"))


def _text_in(row: str, names: Sequence[str]) -> Column:
    """Return some columns of a row in a column as `as_text` does; null for no row."""
    whole = F.col(row)
    fields = [whole[name].alias(name) for name in names]
    selected = F.struct(*fields)
    text = json_text(selected)
    return F.when(whole.isNotNull(), text)


def as_text(names: Sequence[str]) -> Column:
    """Return some columns of a row as JSON; see `json_text`."""
    row = F.struct(*columns(names))
    return json_text(row)


def unlike(decided: DataFrame, sink: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the keys whose row is not the one that was decided, or that have several.

    Args:
        decided: Key columns, once each, `_decided`, and others.
        sink: Key columns and `_shown`.
        key: Names of the key's columns.

    Returns:
        The columns of `decided`, `_shown` and `_rows`.
    """
    by_key = sink.groupBy(*columns(key))
    some_row = F.first(SHOWN)
    n_rows = F.count("*")
    found = by_key.agg(some_row.alias(SHOWN), n_rows.alias(ROWS))
    both = decided.join(found, list(key), "full")
    decided_row = F.col(DECIDED)
    shown_row = F.col(SHOWN)
    is_same_row = decided_row.eqNullSafe(shown_row)
    n_shown = F.coalesce(ROWS, F.lit(0))
    is_right = is_same_row & (n_shown <= 1)
    return both.where(~is_right)


def decided_rows(spark: SparkSession, plan: Plan, facts: StepFacts, state_version: int) -> DataFrame:
    """Read the rows that the sink must have, with `_step`: those that no TRUNCATE left dead.

    Args:
        spark: A session with Delta.
        plan: The pipeline; see `is_kept`.
        facts: Of its last step.
        state_version: Version of the state to read.
    """
    shown = plan.state.shown(spark, state_version)
    if not facts.frontier.floor:
        return shown
    is_below = plan.sink.below(facts.frontier.floor)
    return shown.where(~is_below)
