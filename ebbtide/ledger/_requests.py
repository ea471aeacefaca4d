"""Requests for the lease: a process that needs it for a while asks a continuous run to make way.

A request is a turn of the ledger that differs from the newest only in its `requests`, as a pause differs only in its `paused`. The run that
holds the lease ends the current step, gives the lease back, and takes it again after the request is withdrawn.
"""

from __future__ import annotations

import threading
import time

from ebbtide.ledger._facts import LedgerFacts
from ebbtide.ledger._turns import change_turn, newest_turn

POLL_S = 0.5


class Requests:
    """The requests for one pipeline's lease.

    Args:
        ledger: Location of the ledger.
        pipeline: Name of the pipeline.
    """

    def __init__(self, ledger: str, pipeline: str) -> None:
        self._ledger = ledger
        self._pipeline = pipeline

    def leave(self, name: str) -> None:
        """Request the lease."""

        def asked(turn: LedgerFacts) -> LedgerFacts:
            return turn.model_copy(update={"requests": (*turn.requests, name)})

        if name not in self.names:
            change_turn(self._ledger, self._pipeline, asked)

    def withdraw(self, *names: str) -> None:
        """Withdraw requests."""

        def without(turn: LedgerFacts) -> LedgerFacts:
            left = tuple(each for each in turn.requests if each not in names)
            return turn.model_copy(update={"requests": left})

        if not set(names).isdisjoint(self.names):
            change_turn(self._ledger, self._pipeline, without)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the requests."""
        newest = self._newest()
        return newest.requests if newest else ()

    def wait_until_served(self, patience_s: float, stop: threading.Event) -> None:
        """Wait until all requests are withdrawn; withdraw them if neither a requester nor a holder shows activity.

        Args:
            patience_s: Seconds without activity.
            stop: Ends the waiting.
        """
        # A requester that was killed leaves its request behind: without this the run would wait for it forever.
        seen = self._newest()
        end = time.monotonic() + patience_s
        while seen is not None and seen.requests and not stop.wait(POLL_S):
            found = self._newest()
            if found != seen:
                end = time.monotonic() + patience_s
            elif time.monotonic() > end:
                self.withdraw(*seen.requests)
                found = self._newest()
            seen = found

    def _newest(self) -> LedgerFacts | None:
        _, newest = newest_turn(self._ledger)
        return newest
