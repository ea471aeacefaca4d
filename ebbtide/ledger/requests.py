"""Requests for the lease: a process that needs it for a while asks a run that never ends to make way.

A request is a file in the pipeline's folder `requests`, named after the process that asks. The run that holds the lease ends the step under way,
gives the lease back, and takes it again once the request is withdrawn.
"""

from __future__ import annotations

import threading
import time

from ebbtide.delta import log
from ebbtide.errors import LeaseAskedError
from ebbtide.ledger.facts import LedgerFacts
from ebbtide.storage.paths import delete, join, list_files, write_bytes

POLL_S = 0.5


class Requests:
    """The requests for one pipeline's lease.

    Args:
        ledger: The ledger table's location.
    """

    def __init__(self, ledger: str) -> None:
        home, _, _ = ledger.rpartition("/")
        self._ledger = ledger
        self._folder = join(home, "requests")

    def leave(self, name: str) -> None:
        """Ask for the lease."""
        write_bytes(join(self._folder, name), b"")

    def withdraw(self, name: str) -> None:
        """Ask no more."""
        delete(join(self._folder, name))

    @property
    def names(self) -> list[str]:
        """Who asks."""
        return list_files(self._folder)

    def refuse_asked(self) -> None:
        """Refuse to begin a step while another process asks for the lease.

        Raises:
            LeaseAskedError: one does.
        """
        if self.names:
            raise LeaseAskedError.of(
                "The run makes way for maintenance between two steps.",
                next_step="It goes on by itself once that is done.",
            )

    def wait_until_served(self, patience_s: float, stop: threading.Event) -> None:
        """Wait until all who asked have had the lease. Forget them if neither they nor a holder give a sign of life.

        Args:
            patience_s: How long without such a sign.
            stop: Ends the waiting.
        """
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
        """Return what changes while a holder or a process that asks lives: the newest turn of the lease, and who asks."""
        newest = next(log.own_commits(self._ledger), None)
        turn = None if newest is None else LedgerFacts.read(newest[1], self._ledger)
        return turn, tuple(self.names)
