"""Pauses: a pipeline that is paused reads nothing new until it is resumed.

A pause is stored in the ledger: `pause` commits a turn that differs from the newest only in its `paused`, and each later turn repeats
it. So it needs no lease, is atomic, and the run that holds the lease reads it before its next step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ebbtide.errors import ConfigError, LeaseHeldError, PausedError
from ebbtide.ledger._facts import LedgerFacts, Pause, StepFacts
from ebbtide.ledger._lease import Lease, has_ended
from ebbtide.ledger._turns import commit_next, create_ledger, first_turn, newest_turn

POLL_S = 2.0
"""Seconds between two reads of the ledger by a paused run."""


def pause(ledger: str, pipeline: str, asked: Pause, lease_ttl_s: float, *, last: StepFacts | None = None) -> bool:
    """Pause a pipeline, also while a run is under way; a paused one gets the new reason.

    A continuous run is asked to end its step, and waited for; a bounded one ends after its step.

    Args:
        ledger: Location of the ledger.
        pipeline: Name of the pipeline.
        asked: The pause; a pipeline that is paused keeps its time.
        lease_ttl_s: Seconds for which a silent holder on another host keeps the lease.
        last: Facts of the state's last step; None before the first.

    Returns:
        True if nothing is read any more; False if a run still has to end its step.

    Raises:
        ConfigError: the reason is empty.
    """
    if not asked.reason.strip():
        raise ConfigError.of(
            "A pause needs a reason.",
            got="none",
            allowed="a text, which runs and 'ebbtide status' show",
        )
    create_ledger(ledger, pipeline)

    def paused(turn: LedgerFacts) -> LedgerFacts:
        since_ms = turn.paused.since_ms if turn.paused else asked.since_ms
        new_pause = asked.model_copy(update={"since_ms": since_ms})
        update: dict[str, Any] = {"paused": new_pause}
        # The state is ahead of a ledger that was lost or restored to an older version. The turn then continues from the state:
        # its epoch must not be used twice, and pauses that its clock already left out must not be left out again.
        if last is not None and last.epoch > turn.epoch:
            update["epoch"] = last.epoch
            update["paused_ms"] = max(turn.paused_ms, last.frontier.clock.paused_ms)
        return turn.model_copy(update=update)

    turn = _change(ledger, pipeline, paused)
    if turn.makes_way and not has_ended(turn.holder):
        with contextlib.suppress(LeaseHeldError), Lease(ledger, pipeline, lease_ttl_s, asks=True):
            return True
    return has_ended(turn.holder)


def resume(ledger: str, pipeline: str, now_ms: int) -> Pause | None:
    """Resume a pipeline; return the pause that has ended, None without one.

    Args:
        ledger: Location of the ledger.
        pipeline: Name of the pipeline.
        now_ms: The time, epoch ms.
    """
    _, newest = newest_turn(ledger)
    if newest is None or newest.paused is None:
        return None
    ended = newest.paused

    def resumed(turn: LedgerFacts) -> LedgerFacts:
        paused_ms = turn.paused_until(now_ms)
        return turn.model_copy(update={"paused": None, "paused_ms": paused_ms})

    _change(ledger, pipeline, resumed)
    return ended


def refuse_paused(pipeline: str, turn: LedgerFacts | None) -> None:
    """Refuse to read for a pipeline that is paused.

    Args:
        pipeline: Its name.
        turn: The newest turn of its ledger; None without a ledger.

    Raises:
        PausedError: it is paused.
    """
    if turn is None or turn.paused is None:
        return
    found = turn.paused
    since = datetime.fromtimestamp(found.since_ms / 1000, UTC)
    raise PausedError.of(
        f"'{pipeline}' is paused by {found.by} since {since:%Y-%m-%d %H:%M:%S} UTC: {found.reason.rstrip('.')}.",
        next_step="Run 'ebbtide resume' to let it read again; maintenance may go on meanwhile.",
    )


def wait_until_resumed(ledger: str, stop: threading.Event, looked: Callable[[], None]) -> None:
    """Wait until a pipeline is resumed.

    Args:
        ledger: Location of the ledger.
        stop: Ends the waiting.
        looked: Called after each read that found it paused.
    """
    while not stop.is_set():
        _, turn = newest_turn(ledger)
        if turn is None or turn.paused is None:
            return
        looked()
        stop.wait(POLL_S)


def _change(ledger: str, pipeline: str, changed: Callable[[LedgerFacts], LedgerFacts]) -> LedgerFacts:
    """Commit a changed copy of the newest turn, of the same epoch and holder; return it."""

    def turn_after(newest: LedgerFacts | None) -> LedgerFacts:
        # One heartbeat more: of the turns of an epoch the greatest counts.
        turn = changed(newest or first_turn(pipeline))
        heartbeat = turn.heartbeat + 1
        return turn.model_copy(update={"heartbeat": heartbeat})

    turn, _ = commit_next(ledger, turn_after)
    return turn
