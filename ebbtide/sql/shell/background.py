"""A session that is opened while the user types: only a statement that needs it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait

from ebbtide.sql.session import Session


class BackgroundSession:
    """Opens a session on a thread of its own.

    Args:
        open_session: Opens it.
    """

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()

    def begin(self) -> Future[Session]:
        """Begin to open it, unless that was begun."""
        with self._lock:
            if self._opening is None:
                self._opening = Future()
                threading.Thread(
                    target=self._open,
                    args=(self._opening,),
                    daemon=True,
                    name="session",
                ).start()
            return self._opening

    def get(self, timeout_s: float) -> Session | None:
        """Return the session; None if it is not open in time.

        Raises:
            EbbtideError: it could not be opened; the next call tries again.
        """
        opening = self.begin()
        if not wait([opening], timeout_s).done:
            return None
        if opening.exception() is not None:
            self.forget()
        return opening.result()

    def forget(self) -> None:
        """Forget it: the next call of `get` opens another."""
        with self._lock:
            self._opening = None

    def close(self) -> None:
        """Close it, if it is open; one that is still being opened ends with the process."""
        opening = self._opening
        if opening is not None and opening.done() and opening.exception() is None:
            opening.result().close()

    def _open(self, opening: Future[Session]) -> None:
        try:
            session = self._open_session()
        except BaseException as error:  # noqa: BLE001 - it is raised where the session is asked for
            opening.set_exception(error)
        else:
            opening.set_result(session)
