"""Requests for the lease: a process that needs it for a while asks a continuous run to make way.

A request is a file in the pipeline's folder `requests`, named after the requesting process. The run that holds the lease ends the
current step, gives the lease back, and takes it again after the request is withdrawn.
"""

from __future__ import annotations

import threading
import time

from ebbtide.delta import Log
from ebbtide.errors import LeaseAskedError
from ebbtide.ledger._facts import LedgerFacts
from ebbtide.storage import Location

POLL_S = 0.5
ASKED_EVERY_S = 5.0
"""Seconds between polls of a run, if a poll lists an object store, which costs as much as a put."""


class Requests:
    """The requests for one pipeline's lease.

    Args:
        ledger: Location of the ledger.
    """

    def __init__(self, ledger: str) -> None:
        home, _, _ = ledger.rpartition("/")
        self._ledger = ledger
        self._folder = Location(home) / "requests"
        self._looks_s = 0.0

    def leave(self, name: str) -> None:
        """Request the lease."""
        (Location(self._folder) / name).write_bytes(b"")

    def withdraw(self, name: str) -> None:
        """Withdraw the request."""
        (Location(self._folder) / name).delete()

    @property
    def names(self) -> list[str]:
        """Names of the requests."""
        return Location(self._folder).list_files()

    def refuse_asked(self) -> None:
        """Refuse to begin a step while another process asks for the lease; of a store that is asked now and then.

        Raises:
            LeaseAskedError: there is a request.
        """
        now_s = time.monotonic()
        if now_s < self._looks_s:
            return
        if Location(self._folder).is_in_object_store:
            self._looks_s = now_s + ASKED_EVERY_S
        if self.names:
            raise LeaseAskedError.of(
                "The run makes way for maintenance between two steps.",
                next_step="It continues by itself afterwards.",
            )

    def wait_until_served(self, patience_s: float, stop: threading.Event) -> None:
        """Wait until all requests are withdrawn; delete them if neither a requester nor a holder shows activity.

        Args:
            patience_s: Seconds without activity.
            stop: Ends the waiting.
        """
        # A requester that was killed leaves its file behind: without this the run would wait for it forever.
        seen = self._signs()
        end = time.monotonic() + patience_s
        while self.names and not stop.wait(POLL_S):
            found = self._signs()
            if found != seen:
                seen = found
                end = time.monotonic() + patience_s
            elif time.monotonic() > end:
                for name in self.names:
                    self.withdraw(name)

    def _signs(self) -> object:
        """Return a value that changes with activity: the newest turn of the lease, and the requests."""
        newest = next(Log(self._ledger).own_commits(), None)
        turn = None
        if newest is not None:
            _, facts = newest
            turn = LedgerFacts.read(facts, self._ledger)
        return turn, tuple(self.names)
