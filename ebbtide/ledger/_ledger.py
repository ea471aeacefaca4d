"""The ledger of one pipeline: who holds it, whether it is paused, and who asks for it.

It is a Delta table without rows, `ROOT/NAME/ledger`. Each of its commits holds one turn: the lease, the pause, and the requests for the
lease. A pause is a turn that differs from the newest only in its `paused`, a request in its `requests`, and each later turn repeats both. So
they need no lease, are atomic, and the run that holds the lease reads them before its next step.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ebbtide.errors import ConfigError, LeaseHeldError
from ebbtide.ledger._facts import FREE, LedgerFacts, Pause, StepFacts
from ebbtide.ledger._lease import TURNS_KEPT, Lease, has_ended
from ebbtide.ledger._requests import Requests
from ebbtide.ledger._turns import change_turn, create_ledger, newest_turn
from ebbtide.ledger._writers import writer_of

POLL_S = 2.0
"""Seconds between two reads of the ledger by a paused run."""


class Ledger:
    """The ledger of one pipeline; it may not exist yet.

    Args:
        location: Location of its table.
        pipeline: Name of the pipeline.
    """

    def __init__(self, location: str, pipeline: str) -> None:
        self.location = location
        self.pipeline = pipeline

    @property
    def turn(self) -> LedgerFacts | None:
        """The newest turn, read now; None before the first one."""
        _, newest = newest_turn(self.location)
        return newest

    @property
    def turn_of_whole(self) -> LedgerFacts | None:
        """The same of a ledger that no commit is missing from, as a run needs it."""
        _, newest = newest_turn(self.location, is_whole=True)
        return newest

    def lease(self, ttl_s: float, *, makes_way: bool = False, asks: bool = False) -> Lease:
        """Return the lease, to be entered.

        Args:
            ttl_s: Seconds for which a silent holder on another host keeps the lease.
            makes_way: This run gives the lease back for a while on request.
            asks: Request the lease from a run that makes way, and wait for the end of its step.
        """
        return Lease(self.location, self.pipeline, ttl_s, makes_way=makes_way, asks=asks)

    @cached_property
    def requests(self) -> Requests:
        """The requests for the lease."""
        return Requests(self.location, self.pipeline)

    def pause(
        self,
        by: str,
        reason: str,
        now_ms: int,
        lease_ttl_s: float,
        *,
        last: StepFacts | None = None,
    ) -> bool:
        """Pause the pipeline, also while a run is under way; a paused one gets the new reason and keeps its begin.

        A continuous run is asked to end its step, and waited for; a bounded one ends after its step.

        Args:
            by: User that pauses it.
            reason: Why.
            now_ms: The time, epoch ms.
            lease_ttl_s: Seconds for which a silent holder on another host keeps the lease.
            last: Facts of the state's last step; None before the first.

        Returns:
            True if nothing more is read; False if a run must still end its step.

        Raises:
            ConfigError: the reason is empty.
        """
        if not reason.strip():
            raise ConfigError.of(
                "A pause needs a reason.",
                got="none",
                allowed="a text, which runs and 'ebbtide status' show",
            )
        create_ledger(self.location, self.pipeline)

        def paused(turn: LedgerFacts) -> LedgerFacts:
            since_ms = turn.paused.since_ms if turn.paused else now_ms
            update: dict[str, Any] = {"paused": Pause(by=by, since_ms=since_ms, reason=reason)}
            # The state is ahead of a ledger that was lost or restored to an older version. The turn then continues from the state:
            # its epoch must not be used twice, and pauses that its clock already left out must not be left out again.
            if last is not None and last.epoch > turn.epoch:
                update["epoch"] = last.epoch
                update["paused_ms"] = max(turn.paused_ms, last.frontier.clock.paused_ms)
            return turn.model_copy(update=update)

        turn = change_turn(self.location, self.pipeline, paused)
        if turn.makes_way and not has_ended(turn.holder):
            with contextlib.suppress(LeaseHeldError), self.lease(lease_ttl_s, asks=True):
                return True
        return has_ended(turn.holder)

    def resume(self, now_ms: int) -> Pause | None:
        """Resume the pipeline; return the pause that has ended, None without one.

        Args:
            now_ms: The time, epoch ms.
        """
        newest = self.turn
        if newest is None or newest.paused is None:
            return None
        ended = newest.paused

        def resumed(turn: LedgerFacts) -> LedgerFacts:
            paused_ms = turn.paused_until(now_ms)
            return turn.model_copy(update={"paused": None, "paused_ms": paused_ms})

        change_turn(self.location, self.pipeline, resumed)
        return ended

    def begin_as(self, turn: LedgerFacts, now_ms: int) -> None:
        """Begin this ledger, of a copy of a pipeline, with a free turn of the pipeline's; its pause has ended.

        Args:
            turn: The pipeline's newest turn.
            now_ms: The time, epoch ms.
        """
        create_ledger(self.location, self.pipeline)
        ended = {"holder": FREE, "makes_way": False, "requests": (), "paused": None}
        begun = turn.model_copy(update={**ended, "paused_ms": turn.paused_until(now_ms)})
        change_turn(self.location, self.pipeline, lambda newest: begun if newest.epoch < begun.epoch else newest)

    def refuse_paused(self) -> None:
        """Refuse to read while the pipeline is paused; see `LedgerFacts.refuse_paused`."""
        newest = self.turn
        if newest is not None:
            newest.refuse_paused()

    def wait_until_resumed(self, stop: threading.Event, looked: Callable[[], None]) -> None:
        """Wait until the pipeline is resumed.

        Args:
            stop: Ends the waiting.
            looked: Called after each read that found it paused.
        """
        while not stop.is_set():
            newest = self.turn
            if newest is None or newest.paused is None:
                return
            looked()
            stop.wait(POLL_S)

    def trim(self) -> None:
        """Delete all turns but the newest ones."""
        writer_of(self.location).trim_log(self.location, commits_kept=TURNS_KEPT)
