"""Small HTTP servers on loopback; one that keeps what is posted to it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Posted:
    """What was posted.

    Args:
        port: Where the server listens.
        status: What it answers.
        bodies: Path and body of each request.
    """

    port: int
    status: int = 200
    bodies: list[tuple[str, bytes]] = field(default_factory=list)


@contextmanager
def posts_kept() -> Iterator[Posted]:
    """Serve while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            posted.bodies.append((self.path, body))
            self.send_response(posted.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        posted = Posted(server.server_port)
        with serving(server):
            yield posted


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Have a server answer while the block runs."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
