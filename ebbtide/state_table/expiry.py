"""Conditions over a state table's rows: what has expired, what may be deleted, what a tick has to look at."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ebbtide.model.entries import LONG_MIN, Step
from ebbtide.model.state.timers import TIMERS
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic
from ebbtide.operators.expiry_rules import ExpiryRules
from ebbtide.operators.operator import Operator


def overdue_ms(operator: Operator, at: Step, rules: ExpiryRules | None = None) -> Column:
    """Return for how long an entry has expired at a step, ms: negative while it lives, null if it never expires.

    Args:
        operator: The operator whose entries these are.
        at: The step.
        rules: Rules to go by. Default: the operator's.
    """
    rules = operator.expiry if rules is None else rules
    overdue = F.lit(None).cast("bigint")
    # None is the first of the states, if it is there: it holds for entries whose state has no rule of its own.
    for state, ttl in rules.ttls.items():
        clock_ms = at.clock_ms(ttl)
        if clock_ms == LONG_MIN:  # there is no watermark yet
            continue
        own = _overdue_by(operator, ttl, clock_ms)
        overdue = own if state is None else F.when(is_of_state(rules, state), own).otherwise(overdue)
    if not rules.any_set:
        return overdue
    is_set = [_is_set(operator.schema, name) for name in rules.any_set]
    may_expire = reduce(Column.__or__, is_set)
    return F.when(may_expire, overdue)


def has_expired(operator: Operator, at: Step, rules: ExpiryRules | None = None) -> Column:
    """Return whether an entry has expired at a step; arguments as `overdue_ms`."""
    return F.coalesce(overdue_ms(operator, at, rules) >= 0, F.lit(False))


def is_deletable(operator: Operator, at: Step) -> Column:
    """Return whether an entry may be deleted: it has expired, and no tick has to act on that."""
    deletable = has_expired(operator, at)
    for name, value in operator.expiry.acted_on:
        is_acted_on = F.coalesce(F.col(name) == F.lit(value), F.lit(False))
        deletable &= ~is_acted_on
    return deletable


def needs_tick(operator: Operator, at: Step) -> Column:
    """Return whether a tick has to look at an entry's key: the entry has expired, or is a timer that is due."""
    is_due = has_expired(operator, at)
    if operator.has_named_states:
        is_due |= _is_due_timer(TimeCharacteristic.PROCESSING_TIME, at.now_ms)
        if at.watermark_ms is not None:
            is_due |= _is_due_timer(TimeCharacteristic.EVENT_TIME, at.watermark_ms)
    return is_due & ~F.col("_removed")


def is_of_state(rules: ExpiryRules, state: str | None) -> Column:
    """Return whether the time to live of a state is an entry's; of None: that no other state's is."""
    name = F.col(rules.state_column)
    if state is not None:
        return name == F.lit(state)
    others = [other for other in rules.ttls if other is not None]
    if not others:
        return F.lit(True)
    return ~name.isin(others)


def _overdue_by(operator: Operator, ttl: StateTtlConfig, clock_ms: int) -> Column:
    """Subtract an entry's time to live and its stamp from the clock; null where that leaves 64 bits."""
    ttl_ms = F.lit(ttl.ttl_ms)
    if "_ttl_ms" in operator.schema.names:  # an entry may have a time to live of its own
        ttl_ms = F.coalesce(F.col("_ttl_ms"), ttl_ms)
    oldest_alive_ms = F.try_subtract(F.lit(clock_ms), ttl_ms)
    return F.try_subtract(oldest_alive_ms, F.col("_stamp_ms"))


def _is_set(schema: pa.Schema, name: str) -> Column:
    if pa.types.is_boolean(schema.field(name).type):
        return F.coalesce(F.col(name), F.lit(False))
    return F.col(name).isNotNull()


def _is_due_timer(clock: TimeCharacteristic, now_ms: int) -> Column:
    is_timer = F.col("_state") == TIMERS
    is_of_clock = F.col("_sub").startswith(f"{clock}/")
    return is_timer & is_of_clock & (F.col("_position") <= now_ms)
