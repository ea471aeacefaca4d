"""A gateway as a server: it listens, ends idle sessions, and ends in order when it is stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from ebbtide.errors import ConfigError
from ebbtide.sql.gateway.app import Gateway
from ebbtide.sql.gateway.audit import Audit
from ebbtide.sql.gateway.clients import Clients, Known, known_token
from ebbtide.sql.gateway.connections import WAITING, BoundedConnection
from ebbtide.sql.gateway.guard import Guard, is_loopback
from ebbtide.sql.gateway.limits import Limits
from ebbtide.sql.gateway.sessions import OpenSession, Sessions
from ebbtide.sql.gateway.threads import on_thread

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
        clients: Tokens of further clients; where there is neither, on loopback, everybody is that owner.
        limits: What clients may have. Without `clients` there is one, which may have all sessions.
        read_only: Whether statements that write are refused.
        audit: Takes a line of each statement. Default: none is recorded.
        say: Takes a line for each session that begins or ends.

    Raises:
        ConfigError: it would be open to others without a token, or cannot listen there.
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
    """Let the server take SIGTERM and SIGINT: it raises them again once it has ended, and then nobody is to die of them."""
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
