"""Pause and resume: a paused pipeline reads nothing new; maintenance of its tables still runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ebbtide.durations import to_ms
from ebbtide.operations._operation import Report
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline


def pause(spec: Pipeline, root: str, by: str, reason: str, clock_ms: int) -> Report:
    """Pause a pipeline: runs end after their step, and continuous ones wait until it is resumed. Starts no Spark.

    Args:
        root: Folder of all pipelines' tables.
        by: Who asks.
        reason: The reason, shown by runs, schedules and `ebbtide status`.
        clock_ms: The time, epoch ms.

    Raises:
        ConfigError: there is no reason.
    """
    tables = Plan.under(root, spec)
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    newest = tables.state.last(older=True)
    last = None
    if newest is not None:
        _, last = newest
    is_at_rest = tables.ledger.pause(by, reason, clock_ms, lease_ttl_s, last=last)
    under_way = "A run is under way: it ends after its step."
    if is_at_rest:
        under_way = "Nothing more is read."
    return Report(
        spec.name,
        [f"paused: {_sentence(reason)}. {under_way}"],
        {"seconds": 0.0},
        {"paused": True, **_details(by, clock_ms, reason), "is_at_rest": is_at_rest},
        next_step="To continue: 'ebbtide resume'.",
    )


def resume(spec: Pipeline, root: str, clock_ms: int) -> Report:
    """Resume a pipeline. Starts no Spark.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
    """
    tables = Plan.under(root, spec)
    ended = tables.ledger.resume(clock_ms)
    if ended is None:
        nothing = {
            "paused": False,
            "by": "",
            "since": None,
            "reason": "",
            "is_at_rest": True,
        }
        return Report(spec.name, ["it was not paused."], {"seconds": 0.0}, nothing)
    took_ms = max(clock_ms - ended.since_ms, 0)
    seconds = took_ms / 1000
    reason = _sentence(ended.reason)
    return Report(
        spec.name,
        [f"resumed after {seconds:,.0f} s; it was paused by {ended.by}: {reason}."],
        {"seconds": seconds},
        {"paused": False, **_details(ended.by, ended.since_ms, ended.reason), "is_at_rest": True},
    )


def _details(by: str, since_ms: int, reason: str) -> dict[str, Any]:
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return {
        "by": by,
        "since": since,
        "reason": reason,
    }


def _sentence(reason: str) -> str:
    return reason.rstrip(".")
