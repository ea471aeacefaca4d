"""Pauses: a pipeline that is paused reads nothing new until it is resumed.

A pause stands in the ledger: to pause is to commit a turn that differs from the newest in that alone, and each later turn carries
it on. So it needs no lease, is there whole or not at all, and is seen by the run that holds the lease before its next step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ebbtide.delta.table import create_if_absent
from ebbtide.errors import ConfigError, LeaseHeldError, PausedError
from ebbtide.ledger.facts import LedgerFacts, Pause, StepFacts
from ebbtide.ledger.lease import Lease, has_ended
from ebbtide.ledger.puts import puts_of, refuse_unsafe
from ebbtide.ledger.turns import COLUMNS, commit_next, first_turn, newest_turn
from ebbtide.storage.paths import make_private

POLL_S = 2.0
"""From one look whether a pipeline was resumed to the next."""


def pause(ledger: str, pipeline: str, asked: Pause, lease_ttl_s: float, *, last: StepFacts | None = None) -> bool:
    """Pause a pipeline, whether a run is under way or not; one that is paused already gets the new reason.

    A ledger that was lost, or put back to an older version, is made good: its newest turn is then of the epoch that wrote the state last,
    and the pauses that the state has left out are left out already.

    A run that goes on until it is stopped is asked to end its step, and waited for; one that ends does so after its step.

    Args:
        ledger: Location of the ledger.
        pipeline: Name of the pipeline.
        asked: Who, since when and why; of a pipeline that is paused the time stays.
        lease_ttl_s: Seconds for which a silent holder on another host keeps the lease.
        last: Facts of the state's last step; None before the first.

    Returns:
        Whether nothing is read any more; else a run ends its step.

    Raises:
        ConfigError: there is no reason.
    """
    if not asked.reason.strip():
        raise ConfigError.of(
            "A pause takes a reason.", got="none", allowed="a text, which runs and 'ebbtide status' tell"
        )
    home, _, _ = ledger.rpartition("/")
    make_private(home)
    refuse_unsafe(ledger)
    create_if_absent(puts_of(ledger), ledger, COLUMNS, {}, name=f"{pipeline} ledger")

    def paused(turn: LedgerFacts) -> LedgerFacts:
        since_ms = turn.paused.since_ms if turn.paused else asked.since_ms
        update: dict[str, Any] = {"paused": asked.model_copy(update={"since_ms": since_ms})}
        if last is not None and last.epoch > turn.epoch:
            update |= {"epoch": last.epoch, "paused_ms": max(turn.paused_ms, last.frontier.clock.paused_ms)}
        return turn.model_copy(update=update)

    turn = _change(ledger, pipeline, paused)
    if turn.makes_way and not has_ended(turn.holder):
        with contextlib.suppress(LeaseHeldError), Lease(ledger, pipeline, lease_ttl_s, asks=True):
            return True
    return has_ended(turn.holder)


def resume(ledger: str, pipeline: str, now_ms: int) -> Pause | None:
    """Let a pipeline read again; return the pause that has ended, None if there was none.

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
        return turn.model_copy(update={"paused": None, "paused_ms": turn.paused_until(now_ms)})

    _change(ledger, pipeline, resumed)
    return ended


def refuse_paused(pipeline: str, turn: LedgerFacts | None) -> None:
    """Refuse to read for a pipeline that is paused.

    Args:
        pipeline: Its name.
        turn: The newest one of its ledger; None if there is none.

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
        looked: Called after each look that found it paused.
    """
    while not stop.is_set():
        _, turn = newest_turn(ledger)
        if turn is None or turn.paused is None:
            return
        looked()
        stop.wait(POLL_S)


def _change(ledger: str, pipeline: str, changed: Callable[[LedgerFacts], LedgerFacts]) -> LedgerFacts:
    """Commit a turn that follows on the newest one, of the same epoch and holder; return it."""

    def turn_after(newest: LedgerFacts | None) -> LedgerFacts:
        turn = changed(newest or first_turn(pipeline))
        return turn.model_copy(update={"heartbeat": turn.heartbeat + 1})

    turn, _ = commit_next(ledger, turn_after)
    return turn
