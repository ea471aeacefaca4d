"""A gateway as a server: it listens, bounds connections, ends idle sessions, and ends in order when it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ebbtide.errors import ConfigError
from ebbtide.sql.gateway.app import Gateway
from ebbtide.sql.gateway.clients import Audit
from ebbtide.sql.gateway.guard import Clients, Guard, Known, is_loopback, known_token
from ebbtide.sql.gateway.requests import on_thread
from ebbtide.sql.gateway.sessions import Limits, OpenSession, Sessions

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
        """True if no request is being answered: none has whole headers and no answer."""
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


KEEP_ALIVE_S = 75
"""How long a connection stays open without requests: longer than clients wait between two heartbeats."""
ENDING_S = 5
"""How long sessions may take to end when the gateway does."""
LAST_ANSWERS_S = 2
"""How long requests may take after that."""
LOOKS_PER_TIMEOUT = 10
"""How often idle sessions are looked for."""


class GatewayServer:
    """Listens from when it is made; serves while it runs.

    Args:
        open_session: Opens a session for a client.
        host: A name or an address to listen on.
        port: 0: any that is free.
        token: Of the owner `default`.
        clients: Tokens of further clients; where there is neither, on loopback, each request is that owner's.
        limits: What clients may have. Without `clients` there is one, which may have all sessions.
        read_only: Whether statements that write are refused.
        audit: Takes a line of each statement. Default: none is recorded.
        say: Takes a line for each session that begins or ends.

    Raises:
        ConfigError: it would be open to other machines without a token, or cannot listen there.
    """

    def __init__(
        self,
        open_session: OpenSession,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        clients: Sequence[Known] = (),
        limits: Limits | None = None,
        read_only: bool = False,
        audit: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        listens_on_loopback = is_loopback(host)
        single = [known_token(token)] if token is not None else []
        let_in = Clients([*single, *clients])
        if not let_in.need_tokens and not listens_on_loopback:
            raise ConfigError.of(
                "The gateway would be open to everybody who reaches this machine.",
                got=f"--host {host} without a token",
                allowed="a token, or a loopback address such as 127.0.0.1",
                next_step="Give it one by --token-env or --token-file, or several by --clients.",
            )
        self._limits = limits or Limits()
        if not clients:  # all requests are of the one client `default`
            self._limits = replace(self._limits, client_sessions=self._limits.sessions)
        self._sessions = Sessions(open_session, self._limits, say)
        gateway = Gateway(self._sessions, self._limits, read_only=read_only, audit=Audit(audit))
        self._socket = _listening(host, port)
        guard = Guard(gateway.app(), let_in, listens_on_loopback=listens_on_loopback)
        config = uvicorn.Config(
            guard,
            http=BoundedConnection,  # its h11 bounds the headers' size
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=WAITING,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_ANSWERS_S,
        )
        self._server = _Server(config, self._sessions)
        address = f"[{host}]" if ":" in host else host
        self.url = f"http://{address}:{self._socket.getsockname()[1]}"
        """Where it is reached."""

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; then end sessions and return. On the main thread it takes those signals."""
        with _signals_that_end():
            asyncio.run(self._serve())

    def stop(self) -> None:
        """End it, from any thread."""
        self._server.should_exit = True

    async def _serve(self) -> None:
        looking = asyncio.create_task(self._close_idle_sessions())
        try:
            await self._server.serve([self._socket])
        finally:
            looking.cancel()

    async def _close_idle_sessions(self) -> None:
        pause_s = self._limits.idle_timeout_s / LOOKS_PER_TIMEOUT
        while True:
            await asyncio.sleep(pause_s)
            await on_thread(self._sessions.close_idle)


class _Server(uvicorn.Server):
    """Ends the sessions before it waits for its connections: what they wait for is over then."""

    def __init__(self, config: uvicorn.Config, sessions: Sessions) -> None:
        super().__init__(config)
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        await on_thread(self._sessions.end, ENDING_S)
        await super().shutdown(sockets)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        listening = socket.create_server(
            address[:2],
            family=family,
            backlog=WAITING,
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError.of(
            "The gateway cannot listen there.",
            got=f"{host}:{port}, {error}",
            next_step="Give another --host or --port; port 0 is any that is free.",
        ) from error
    # Connections inherit it. Without it an answer's body waits 40 ms for its headers to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def _signals_that_end() -> Iterator[None]:
    """Let the server take SIGTERM and SIGINT: it raises them again once it has ended, and the process must not end by them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(number: int, frame: Any) -> None:
    """Take a signal; unlike SIG_IGN, processes that are started do not inherit it."""
