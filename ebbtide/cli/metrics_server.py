"""The endpoint of followed runs: `/metrics` for Prometheus, `/healthz` for probes. It only reads data of the run."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any, ClassVar

from prometheus_client.exposition import MetricsHandler
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from ebbtide.errors import ConfigError
from ebbtide.hosts import is_loopback, named_host
from ebbtide.inspect import WatchedFleet

METRICS, HEALTH = "/metrics", "/healthz"
ENDS_WITHIN_S = 1.0
"""Seconds to wait at the end for a source that does not answer; then the thread ends with the process."""
PRIVATE_DOMAINS = ("internal", "local", "localdomain", "svc")
"""Top domains that no public name server knows: no one outside can point a name in them at this machine."""
CONNECTION_S = 10.0
"""Seconds that a connection may live: also for a client that sends its headers byte by byte."""
MOST_CONNECTIONS = 16
"""Maximum open connections. A scrape takes milliseconds, so it is never the oldest of so many."""
_log = logging.getLogger(__name__)


class _Handler(MetricsHandler):
    """Answers one connection."""

    timeout = CONNECTION_S
    watched: ClassVar[WatchedFleet]
    host: ClassVar[str]

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        """Answer with the metrics, or with the health of the runs."""
        path, _, _ = self.path.partition("?")
        if not self._names_this_machine():
            self.send_error(HTTPStatus.FORBIDDEN, "The Host of the request is not this machine")
        elif path == METRICS:
            super().do_GET()
        elif path == HEALTH:
            self._answer_health()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"Allowed: {METRICS}, {HEALTH}")

    def _names_this_machine(self) -> bool:
        """Return whether the Host is a name of this server: a web page may use its domain that resolves to this machine."""
        headers = self.headers.get_all("Host") or []
        if len(headers) != 1:
            return False
        name = named_host(headers[0])
        if name is None:
            return False
        if is_loopback(name) or name == self.host.lower():
            return True
        is_own = _is_private(name) or name == socket.gethostname().lower()
        return is_own and not is_loopback(self.host)

    def _answer_health(self) -> None:
        health = self.watched.health()
        body = json.dumps(health.as_dict()).encode() + b"\n"
        self.send_response(HTTPStatus.SERVICE_UNAVAILABLE if health.reason else HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    """Serves each connection in a thread; number and lifetime of connections are bounded."""

    daemon_threads = True
    request_queue_size = 128
    block_on_close = False

    def __init__(self, *arguments: Any) -> None:
        self._lock = threading.Lock()
        self._began_s: dict[socket.socket, float] = {}
        """The open connections, the oldest first."""
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin to serve a connection; if there are too many, close the oldest."""
        with self._lock:
            oldest = next(iter(self._began_s)) if len(self._began_s) >= MOST_CONNECTIONS else None
            self._began_s[request] = time.monotonic()
        if oldest is not None:
            self._end(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """End connections that are too old. The server calls this twice a second."""
        since_s = time.monotonic() - CONNECTION_S
        with self._lock:
            aged = [connection for connection, began_s in self._began_s.items() if began_s < since_s]
        for connection in aged:
            self._end(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that was served."""
        self._forget(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log that a client closed or lost its connection."""
        _log.debug("A connection from %s ended early.", client_address[0], exc_info=True)

    def _end(self, connection: socket.socket) -> None:
        """End a connection: its thread sees the end and closes it."""
        self._forget(connection)
        with suppress(OSError):  # already closed
            connection.shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._began_s.pop(connection, None)


def _server(host: str, port: int, watched: WatchedFleet) -> _Server:
    """Return a server that listens.

    Raises:
        ConfigError: it cannot listen there.
    """
    metrics = CollectorRegistry()
    metrics.register(watched.exposition())
    ProcessCollector(registry=metrics)
    handler = type("Handler", (_Handler,), {"registry": metrics, "watched": watched, "host": host})
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        server = type("Server", (_Server,), {"address_family": family})
        made: _Server = server(address[:2], handler)
    except OSError as error:
        raise ConfigError.of(
            "The metrics of the run cannot be served.",
            got=f"{host}:{port}: {error.strerror or error}",
            next_step="Give another --metrics-port or --metrics-host.",
        ) from error
    return made


@contextmanager
def served(watched: WatchedFleet, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of runs during the block; yield the port.

    Args:
        watched: The runs.
        host: Name or address to listen at.
        port: The port; 0: any that is free.

    Raises:
        ConfigError: it cannot listen there.
    """
    stop = threading.Event()
    with _server(host, port, watched) as server:
        threads = (
            threading.Thread(target=server.serve_forever, daemon=True, name="metrics"),
            threading.Thread(target=watched.keep_measuring, args=(stop,), daemon=True, name="measure"),
        )
        for thread in threads:
            thread.start()
        try:
            yield server.server_port
        finally:
            stop.set()
            server.shutdown()
            for thread in threads:
                thread.join(ENDS_WITHIN_S)


def _is_private(host: str) -> bool:
    """Return whether no one outside decides what a host means: an address, or a name that public name servers do not have.

    Example:
        >>> [_is_private(host) for host in ("10.0.0.7", "ebbtide", "orders.shop.svc", "rebound.example.com")]
        [True, True, True, False]
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        _, dot, top = host.lower().rpartition(".")
        return not dot or top in PRIVATE_DOMAINS
    return True
