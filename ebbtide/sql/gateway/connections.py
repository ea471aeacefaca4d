"""Connections that cannot shut others out: headers must come in time, an address has a part of the places, idle ones make room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 500
"""Below half of the files that a process may open by default, 1,024: sessions and their JVM need the rest."""
MOST_OF_ADDRESS = 200
"""Of the connections, those of one client's address: the rest is for other addresses."""
WAITING = 100
"""Connections that the system takes before the gateway does: as many can be accepted at once, before any is closed."""
HEADERS_TIMEOUT_S = 10
"""How long a client may take to send the headers of a request."""


class BoundedConnection(H11Protocol):
    """A connection of the gateway; uvicorn itself waits for headers without a limit."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._headers_timer: asyncio.TimerHandle | None = None
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room if there is none, then wait for headers."""
        super().connection_made(transport)
        self._make_room()
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; the wait for headers goes on until they are whole."""
        super().data_received(data)
        if self.is_idle:
            self._expect_headers()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Note when the connection became idle."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Whether it has no request whose headers are whole and that is not answered."""
        return self.conn.their_state is h11.IDLE

    @property
    def order_of_closing(self) -> tuple[bool, float]:
        """Those that never sent a request go first, the longest idle of them before the rest."""
        has_sent_request = self.cycle is not None
        return has_sent_request, self._idle_since

    @property
    def address(self) -> str:
        """The client's, without its port."""
        return self.client[0] if self.client else ""

    def _make_room(self) -> None:
        """Close the longest idle connection of the address that has too many; if none of them is idle, this one."""
        open_ones = [known for known in self._known() if not known.transport.is_closing()]
        n_of_address = Counter(known.address for known in open_ones)
        if n_of_address[self.address] > MOST_OF_ADDRESS:
            crowded = self.address
        elif len(open_ones) >= MOST_CONNECTIONS:
            [(crowded, _)] = n_of_address.most_common(1)
        else:
            return
        closed = _longest_idle(known for known in open_ones if known.address == crowded and known is not self)
        (closed or self).transport.abort()

    def _known(self) -> list[BoundedConnection]:
        return [cast(BoundedConnection, connection) for connection in self.connections]

    def _expect_headers(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self.loop.call_later(HEADERS_TIMEOUT_S, self._close)

    def _stop_timer(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

    def _close(self) -> None:
        self._headers_timer = None
        self.transport.abort()


def _longest_idle(connections: Iterable[BoundedConnection]) -> BoundedConnection | None:
    idle = [connection for connection in connections if connection.is_idle]
    return min(idle, key=lambda connection: connection.order_of_closing, default=None)
