"""The server of a gateway: it listens, limits connections, ends idle sessions, and stops in order."""

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
from ebbtide.hosts import is_loopback
from ebbtide.sql._gateway.app import Gateway
from ebbtide.sql._gateway.clients import Audit
from ebbtide.sql._gateway.guard import Clients, Guard, Known, known_token
from ebbtide.sql._gateway.requests import on_thread
from ebbtide.sql._gateway.sessions import Limits, OpenSession, Sessions

MOST_CONNECTIONS = 500
"""Maximum number of connections. A process may open 1,024 files by default, and sessions with their JVM need the other half."""
MOST_OF_ADDRESS = 200
"""Maximum number of connections from one address."""
WAITING = 100
"""Backlog of the socket: this many connections can be accepted at once, before any is closed."""
HEADERS_TIMEOUT_S = 10
"""Maximum time to receive the headers of a request."""


class BoundedConnection(H11Protocol):
    """A connection with a time limit for headers, which uvicorn has not."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._headers_timer: asyncio.TimerHandle | None = None
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close another connection if there are too many, then wait for headers."""
        super().connection_made(transport)
        self._make_room()
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the wait for headers."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take received bytes; the wait ends once the headers are whole."""
        super().data_received(data)
        if self.is_idle:
            self._expect_headers()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Note the time at which the connection became idle."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """True if no request is being answered."""
        return self.conn.their_state is h11.IDLE

    @property
    def order_of_closing(self) -> tuple[bool, float]:
        """Sort key for closing: connections without a request come first, then the longest idle ones."""
        has_sent_request = self.cycle is not None
        return has_sent_request, self._idle_since

    @property
    def address(self) -> str:
        """Address of the client, without the port."""
        return self.client[0] if self.client else ""

    def _make_room(self) -> None:
        """If there are too many connections, close the longest idle one of the busiest address; this one if none is idle."""
        # An address with too many connections makes room among its own. If all together are too many, the busiest address does, so
        # that a client with few connections is never shut out by one with many.
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
"""Time that a connection stays open without requests: longer than the interval of heartbeats."""
ENDING_S = 5
"""Maximum time that sessions may take to end with the gateway."""
LAST_ANSWERS_S = 2
"""Maximum time that requests may take after that."""
LOOKS_PER_TIMEOUT = 10
"""Number of looks for idle sessions within their timeout."""


class GatewayServer:
    """A gateway that listens once it is constructed, and serves while `run` runs.

    Args:
        open_session: Opens a session for a client.
        host: Name or address to listen on.
        port: Port to listen on; 0: any free one.
        token: Token of the owner `default`.
        clients: Tokens of further clients. On loopback, without any token, each request is the owner's.
        limits: Limits of the clients. Without `clients` there is one client, which may have all sessions.
        read_only: Whether statements that write are refused.
        audit: File of the audit. Default: none is recorded.
        say: Takes a line for each session that begins or ends.

    Raises:
        ConfigError: other machines would reach it without a token, or it cannot listen there.
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
        admitted = Clients([*single, *clients])
        if not admitted.need_tokens and not listens_on_loopback:
            raise ConfigError.of(
                "The gateway would be open to any client that reaches this machine.",
                got=f"--host {host} without a token",
                allowed="a token, or a loopback address such as 127.0.0.1",
                next_step="Give it one by --token-env or --token-file, or several by --clients.",
            )
        self._limits = limits or Limits()
        if not clients:  # all requests are of the one client `default`
            self._limits = replace(self._limits, client_sessions=self._limits.sessions)
        self._sessions = Sessions(open_session, self._limits, say)
        gateway = Gateway(
            self._sessions,
            self._limits,
            read_only=read_only,
            audit=Audit(audit),
        )
        self._socket = _listening(host, port)
        guard = Guard(gateway.app(), admitted, listens_on_loopback=listens_on_loopback)
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
        """URL of the gateway."""

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`, then end the sessions. On the main thread it handles these signals."""
        with _signals_that_end():
            asyncio.run(self._serve())

    def stop(self) -> None:
        """Stop the gateway, from any thread."""
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
    """Ends the sessions before it waits for its connections, since these wait for sessions."""

    def __init__(self, config: uvicorn.Config, sessions: Sessions) -> None:
        super().__init__(config)
        self._sessions = sessions

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the sessions, then the connections."""
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
    # Connections inherit this option. Without it the body of an answer waits 40 ms until its headers are acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


@contextmanager
def _signals_that_end() -> Iterator[None]:
    """Ignore SIGTERM and SIGINT around the server: it raises them again at its end, but the process must continue."""
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
    """Ignore a signal; unlike SIG_IGN, child processes do not inherit this."""
