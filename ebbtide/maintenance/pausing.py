"""Pause and resume: a pipeline reads nothing new until it is resumed; what is stored may be looked after meanwhile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ebbtide.ledger import pauses
from ebbtide.ledger.facts import Pause
from ebbtide.model.durations import to_ms
from ebbtide.runtime.plan import Plan
from ebbtide.spec.pipeline import Pipeline


@dataclass(frozen=True)
class PauseReport:
    """What became of a pipeline's pause.

    Args:
        pipeline: Its name.
        paused: Whether it is paused now.
        by: Who paused it; empty if nobody had.
        since: Since when.
        reason: Why.
        seconds: How long it was paused, of one that is resumed.
        is_at_rest: Nothing is read any more. Else a run ends its step.
    """

    pipeline: str
    paused: bool
    by: str = ""
    since: datetime | None = None
    reason: str = ""
    seconds: float = 0.0
    is_at_rest: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if self.paused:
            run = "Nothing is read any more." if self.is_at_rest else "A run is under way: it ends after its step."
            return f"{self.pipeline}: paused: {self.reason.rstrip('.')}. {run} To go on: 'ebbtide resume'."
        if not self.by:
            return f"{self.pipeline}: it was not paused."
        return f"{self.pipeline}: resumed after {self.seconds:,.0f} s; it was paused by {self.by}: {self.reason.rstrip('.')}."


def pause(spec: Pipeline, root: str, by: str, reason: str, clock_ms: int) -> PauseReport:
    """Pause a pipeline: runs end after their step, those that go on wait, until it is resumed. Starts no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        by: Who asks.
        reason: Why; runs, schedules and `ebbtide status` tell it.
        clock_ms: The time, epoch ms.

    Raises:
        ConfigError: there is no reason.
    """
    tables = Plan.under(root, spec)
    asked = Pause(by=by, since_ms=clock_ms, reason=reason)
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    newest = tables.state.last(older=True)
    last = newest[1] if newest else None
    is_at_rest = pauses.pause(tables.at("ledger"), spec.name, asked, lease_ttl_s, last=last)
    since = _time(clock_ms)
    return PauseReport(spec.name, paused=True, by=by, since=since, reason=reason, is_at_rest=is_at_rest)


def resume(spec: Pipeline, root: str, clock_ms: int) -> PauseReport:
    """Let a pipeline read again. Starts no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
    """
    tables = Plan.under(root, spec)
    ended = pauses.resume(tables.at("ledger"), spec.name, clock_ms)
    if ended is None:
        return PauseReport(spec.name, paused=False)
    return PauseReport(
        spec.name,
        paused=False,
        by=ended.by,
        since=_time(ended.since_ms),
        reason=ended.reason,
        seconds=max(clock_ms - ended.since_ms, 0) / 1000,
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
