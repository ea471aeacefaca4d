"""Expiry: nothing lives longer than its time to live. Source: FLIP-25, "Expired value cleanup"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._entries import Entries
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.columns import Long
from ebbtide.durations import to_ms
from ebbtide.entries import Step
from ebbtide.operators import ExpiryRules, Operator

_HIDDEN = pa.schema([("_file", pa.string()), ("_rows", pa.int64())])


ON_TIME_MS = 60_000
"""Maximum delay of an expiry where the state has `cleanup.timers`, ms: a look of Dagster's sensor, and the start of a run."""


def entries(judged: Judged, states: Sequence[str] = ()) -> Rows:
    """Select the newest version of each entry that may expire; dropped entries that are still stored are `_removed`.

    Each has `_overdue_ms`: time since its expiry, ms; negative before. The watermark is that of the last step.

    Args:
        judged: The question.
        states: Only entries of these states. Default: of all.
    """
    tables = judged.tables
    at = _now(judged)

    def query(sql: Dialect) -> str:
        overdue = overdue_ms(sql, tables.operator, at)
        timed = f"SELECT *, {overdue} AS _overdue_ms FROM ({Entries(tables, sql).current()}) AS _current"
        named = ", ".join(map(sql.string, states))
        is_asked = f" AND {sql.name(tables.operator.expiry.ttl_selector)} IN ({named})" if states else ""
        return f"SELECT * FROM ({timed}) AS _timed WHERE _overdue_ms IS NOT NULL{is_asked}"

    names = [*tables.operator.schema.names, "_overdue_ms"]
    return Rows({"state_rows": judged.state_rows}, query, names, tables.operator.entry_key)


def _now(judged: Judged) -> Step:
    """Return the clocks: processing time of a step made now, and the watermark of the last step."""
    tables = judged.tables
    facts = judged.window.last_step(tables)
    watermark_ms = None if facts is None else facts.frontier.watermark_ms
    clock = tables.clock_after(None if facts is None else facts.frontier, judged.clock_ms)
    return Step(0, clock.now_ms, watermark_ms)


def hidden_entries(judged: Judged, stored_ms: int) -> Rows | None:
    """Count the entries hidden by deletion vectors that had expired longer ago than they may be stored.

    Args:
        judged: The question.
        stored_ms: How long expired entries may be stored, ms.

    Returns:
        One row for each data file of the state with a vector: `_file` and `_rows`; None without such a file.
    """
    state = judged.tables.state
    operator = state.operator
    at = _now(judged).earlier(stored_ms)
    rows = []
    for file in state.snapshot(judged.window.state_until).files.values():
        if file.vector is None:
            continue
        dead = file.deleted_rows(state.path)
        hidden = state.hidden_entries(file, dead, operator.expiry.columns)
        rows.append({"_file": file.path, "_rows": int(operator.expiry.expired(hidden, at).sum())})
    return Rows.given(pa.Table.from_pylist(rows, _HIDDEN)) if rows else None


def overdue_ms(sql: Dialect, operator: Operator, at: Step) -> str:
    """Return the time since an entry's expiry at a step, ms: negative before it, null if it never expires."""
    rules = operator.expiry
    overdue = "CAST(NULL AS BIGINT)"
    # One CASE over the states. None comes first if present: the default for states without a TTL.
    for state, ttl in rules.ttls.items():
        clock_ms = at.clock_ms(ttl)
        if clock_ms == Long.MIN:  # no watermark yet
            continue
        own_ttl_ms = f"coalesce(_ttl_ms, {ttl.ttl_ms})" if "_ttl_ms" in operator.schema.names else str(ttl.ttl_ms)
        own_overdue = _difference(_difference(str(clock_ms), own_ttl_ms), "_stamp_ms")
        if state is None:
            overdue = own_overdue
        else:
            overdue = (
                f"CASE WHEN {sql.name(rules.ttl_selector)} = {sql.string(state)} THEN {own_overdue} ELSE {overdue} END"
            )
    are_set = _are_set(sql, rules, operator.schema)
    return f"CASE WHEN {are_set} THEN {overdue} END" if are_set else overdue


def _difference(left: str, right: str) -> str:
    """Subtract 64-bit integers; null on overflow, where engines differ."""
    exact = f"(CAST({left} AS DECIMAL(20, 0)) - CAST({right} AS DECIMAL(20, 0)))"
    return f"(CASE WHEN {exact} BETWEEN {Long.MIN} AND {Long.MAX} THEN CAST({exact} AS BIGINT) END)"


def _are_set(sql: Dialect, rules: ExpiryRules, schema: pa.Schema) -> str:
    conditions = []
    for name in rules.any_set:
        is_flag = pa.types.is_boolean(schema.field(name).type)
        conditions.append(f"coalesce({sql.name(name)}, false)" if is_flag else f"{sql.name(name)} IS NOT NULL")
    return " OR ".join(conditions)


@rule("expect_entries_to_expire", "No entry may live $grace_ms ms or more past its time.")
def overdue_entries(sql: Dialect, grace_ms: int) -> str:
    """Pick the entries that still look alive although they should have been dropped.

    Args:
        sql: The dialect.
        grace_ms: How late an entry may be dropped, ms.
    """
    return f"NOT _removed AND _overdue_ms >= {grace_ms}"


@rule(
    "expect_expired_entries_to_be_deleted",
    "No entry may be stored $grace_ms ms or more past its time; run the cleanup job.",
)
def uncollected_entries(sql: Dialect, grace_ms: int) -> str:
    """Pick the expired entries that no cleanup has deleted, dropped ones included.

    Args:
        sql: The dialect.
        grace_ms: How late an entry may be deleted, ms.
    """
    return f"_overdue_ms >= {grace_ms}"


@rule(
    "expect_files_to_keep_no_expired_entry",
    "No data file may keep an entry that was deleted and had expired $grace_ms ms or more before; run the cleanup job.",
)
def kept_entries(sql: Dialect, grace_ms: int) -> str:
    """Select the files that keep deleted entries for too long; `_rows` counts these entries.

    Args:
        sql: The dialect.
        grace_ms: How long a file may keep one, ms.
    """
    return "_rows > 0"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge how long expired entries stay."""
    if not judged.tables.operator.expiry.ttls:
        return
    allowed = judged.tables.spec.checks
    late_ms = to_ms(allowed.expiry_grace)
    stored_ms = to_ms(allowed.cleanup_within)
    yield judged.batch(
        entries(judged),
        overdue_entries.expected(grace_ms=late_ms),
        overdue_entries.expected("warning", grace_ms=0),
        uncollected_entries.expected("warning", grace_ms=stored_ms),
    )
    on_time = judged.tables.operator.expiry.on_time
    if on_time and late_ms > ON_TIME_MS:
        yield judged.batch(entries(judged, on_time), overdue_entries.expected(grace_ms=ON_TIME_MS))
    hidden = hidden_entries(judged, stored_ms)
    if hidden is not None:
        yield judged.batch(hidden, kept_entries.expected("warning", grace_ms=stored_ms))
