"""The endpoint of followed runs: `/metrics` for Prometheus, `/healthz` for probes. It reads what the run knows, and changes nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import ClassVar

from prometheus_client.exposition import MetricsHandler
from prometheus_client.process_collector import ProcessCollector

from ebbtide.errors import ConfigError
from ebbtide.inspect.exposition import registry
from ebbtide.inspect.watched_fleet import WatchedFleet

METRICS, HEALTH = "/metrics", "/healthz"
ENDS_WITHIN_S = 1.0
"""Seconds to wait at the end for a source that does not answer: the thread ends with the process."""
SILENT_S = 10
"""Seconds after which a client that sends nothing is left."""


class _Handler(MetricsHandler):
    """Answers one connection."""

    timeout = SILENT_S
    watched: ClassVar[WatchedFleet]

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        """Answer with the metrics, or whether the runs go on."""
        path, _, _ = self.path.partition("?")
        if path == METRICS:
            super().do_GET()
        elif path == HEALTH:
            self._answer_health()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"Allowed: {METRICS}, {HEALTH}")

    def _answer_health(self) -> None:
        health = self.watched.health()
        body = json.dumps(health.as_dict()).encode() + b"\n"
        self.send_response(HTTPStatus.SERVICE_UNAVAILABLE if health.reason else HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def _server(host: str, port: int, watched: WatchedFleet) -> _Server:
    """Return a server that listens.

    Raises:
        ConfigError: it cannot listen there.
    """
    metrics = registry(watched.values)
    ProcessCollector(registry=metrics)
    handler = type("Handler", (_Handler,), {"registry": metrics, "watched": watched})
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
    """Serve the metrics of runs while the block runs; give the port.

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
