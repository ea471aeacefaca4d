"""Expiry of entries as columns of Spark: the same rules as `ebbtide.operators._expiry`."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ebbtide.columns import Long
from ebbtide.entries import Step
from ebbtide.keyed_state import StateTtlConfig
from ebbtide.operators import ExpiryRules, Operator


def overdue_ms(
    operator: Operator,
    at: Step,
) -> Column:
    """Return for how long an entry has been expired at a step, ms: negative while it lives, null if it never expires.

    Args:
        operator: The operator of the entries.
        at: The step.
    """
    rules = operator.expiry
    overdue = F.lit(None).cast("bigint")
    # One CASE over the states. None is the first of them, if present: the default for states without a TTL.
    for state, ttl in rules.ttls.items():
        clock_ms = at.clock_ms(ttl)
        if clock_ms == Long.MIN:  # no watermark yet: nothing expires by event time
            continue
        own_overdue = _overdue_by(operator, ttl, clock_ms)
        if state is None:
            overdue = own_overdue
            continue
        is_own = is_of_state(rules, state)
        overdue = F.when(is_own, own_overdue).otherwise(overdue)
    if not rules.any_set:
        return overdue
    schema = operator.schema
    are_set = [_is_set(schema, name) for name in rules.any_set]
    may_expire = reduce(Column.__or__, are_set)
    return F.when(may_expire, overdue)


def is_of_state(rules: ExpiryRules, state: str | None) -> Column:
    """Return the condition that an entry has the TTL of a state; for None, that its state has no TTL."""
    state_of_entry = F.col(rules.ttl_selector)
    if state is not None:
        return state_of_entry == F.lit(state)
    with_own_ttl = [name for name in rules.ttls if name is not None]
    if not with_own_ttl:
        return F.lit(True)
    return ~state_of_entry.isin(with_own_ttl)


def _overdue_by(operator: Operator, ttl: StateTtlConfig, clock_ms: int) -> Column:
    """Subtract an entry's time to live and its stamp from the clock; null on overflow."""
    # `try_subtract`: a TTL of centuries must not fail the query; its entries never expire.
    now_ms = F.lit(clock_ms)
    stamp_ms = F.col("_stamp_ms")
    ttl_ms = F.lit(ttl.ttl_ms)
    if "_ttl_ms" in operator.schema.names:  # an entry may have a time to live
        own_ttl_ms = F.col("_ttl_ms")
        ttl_ms = F.coalesce(own_ttl_ms, ttl_ms)
    oldest_alive_ms = F.try_subtract(now_ms, ttl_ms)
    return F.try_subtract(oldest_alive_ms, stamp_ms)


def _is_set(schema: pa.Schema, name: str) -> Column:
    value = F.col(name)
    stored_type = schema.field(name).type
    if pa.types.is_boolean(stored_type):
        return _false_if_null(value)
    return value.isNotNull()


def _false_if_null(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))
