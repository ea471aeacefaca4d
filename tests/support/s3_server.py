"""A published server that speaks S3, moto's, as a process on loopback, and a proxy before it that fails when it is told to.

`s3_server.py` by itself is that process: it prints its port. S3 looks whether a file is there and puts it in one; moto in two
steps, so that requests are let in one at a time.
"""

from __future__ import annotations

import http.client
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import unquote

BUCKET = "tables"
SECRET = "wJalrXUtnFEMI7MDENG"  # noqa: S105 - of nobody
ANSWERS = {
    "503": b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
    "409": b"<Error><Code>ConditionalRequestConflict</Code></Error>",
    "403": f"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>{SECRET}</StringToSign></Error>".encode(),
}
CONDITIONS = ("If-None-Match", "x-goog-if-generation-match")
"""Headers with the condition of a put."""
POLL_S = 0.01
"""How soon the proxy sees that it is to end: each test has one."""
Fault = Callable[[str, str], str | None]
"""Given a request's method and path, returns how it is to fail, see `Proxy`; None: not at all."""


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answered:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def send(port: int, asked: Asked) -> Answered:
    """Send a request to a server on loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(asked.method, asked.path, asked.body, dict(asked.headers))
    answer = connection.getresponse()
    answered = Answered(answer.status, dict(answer.headers), answer.read())
    connection.close()
    return answered


class Store(Protocol):
    """A server."""

    def handle(self, asked: Asked) -> Answered:
        """Answer a request."""


def serve() -> None:
    """Serve until killed."""
    import logging

    from moto.core import serialize
    from moto.server import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # A listing parses the time of each file again: 0.3 ms each.
    serialize.parse_to_aware_datetime = lru_cache(10_000)(serialize.parse_to_aware_datetime)
    answer = create_backend_app("s3")
    one_at_a_time = threading.Lock()

    def app(environ: Any, start_response: Any) -> Any:
        with one_at_a_time:
            return answer(environ, start_response)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.port, flush=True)  # noqa: T201 - the answer
    server.serve_forever()


class S3Server:
    """The server, as a process of its own, with one empty bucket; a context manager."""

    root = f"s3://{BUCKET}"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def handle(self, asked: Asked) -> Answered:
        """Answer a request."""
        return send(self.port, asked)

    def environment(self, port: int, _: Path | None = None) -> dict[str, str]:
        """Return the variables that lead to the proxy at a port."""
        return environment(port)


def environment(port: int) -> dict[str, str]:
    """Return the variables that lead to a server."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@dataclass
class Served:
    """A request.

    Args:
        method: `PUT`, `POST`, `LIST`, `GET`, `HEAD` or `DELETE`.
        path: What follows the bucket, with the query.
        began_s: Time of its arrival, of a clock that only goes on.
        ended_s: Time of its answer; until then later than all times.
    """

    method: str
    path: str
    began_s: float
    ended_s: float = math.inf


def longest_chain(served: Iterable[Served]) -> int:
    """Return the most requests of which none began before the one before it was answered."""
    # The known greedy choice: of all that begin after the last one, the one that ends first.
    n = 0
    end_s = 0.0
    for each in sorted(served, key=lambda one: one.ended_s):
        if each.began_s >= end_s:
            n += 1
            end_s = each.ended_s
    return n


class Proxy:
    """Hands requests on to a server, and fails some; a context manager.

    | failure | what becomes of the request |
    |---|---|
    | `503`, `403`, `409` | answered by that, not handed on |
    | `503 after` | handed on, and then answered by 503 |
    | `lost` | handed on, and then the connection is closed without an answer |
    | `heedless` | handed on without its condition |

    Args:
        server: The server.
        delay_s: Time that each request takes at least, seconds.
    """

    def __init__(self, server: Store, delay_s: float = 0.0) -> None:
        self.fault: Fault = lambda method, path: None
        self.delay_s = delay_s
        self.asked: list[tuple[str, str]] = []
        self.served: list[Served] = []
        self._server = _Server(("127.0.0.1", 0), _handler(self, server))
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Fail some requests for a while."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = lambda method, path: None


def first(how: str, method: str, part: str, times: int = 1) -> Fault:
    """Return a fault of the first requests of a method whose path has a part."""
    left = times

    def fault(asked: str, path: str) -> str | None:
        nonlocal left
        if left == 0 or asked != method or part not in path:
            return None
        left -= 1
        return how

    return fault


def _handler(proxy: Proxy, server: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def _pass_on(self) -> None:
            is_listing = "list-type=" in self.path or "comp=list" in self.path
            path = self.path.removeprefix(f"/{BUCKET}")
            served = Served("LIST" if is_listing else self.command, path, time.monotonic())
            proxy.served.append(served)
            self._hand_on()
            served.ended_s = time.monotonic()

        def _hand_on(self) -> None:
            time.sleep(proxy.delay_s)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            proxy.asked.append((self.command, self.path))
            how = proxy.fault(self.command, unquote(self.path))
            if how in ANSWERS:
                self._answer(int(how), {}, ANSWERS[how])
                return
            if how == "heedless":
                for condition in CONDITIONS:
                    del self.headers[condition]
            answer = server.handle(Asked(self.command, self.path, dict(self.headers), body))
            if how == "lost":
                self.close_connection = True
            elif how == "503 after":
                self._answer(503, {}, ANSWERS["503"])
            else:
                self._answer(answer.status, dict(answer.headers), answer.body)

        def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            if self.command != "HEAD":
                headers["Content-Length"] = str(len(data))
            for name, value in headers.items():
                if name not in ("Connection", "Transfer-Encoding"):
                    self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
            self.wfile.flush()

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815 - as the library names them

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    serve()
