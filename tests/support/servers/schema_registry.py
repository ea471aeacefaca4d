"""A schema registry from its published archive: Apicurio, which speaks as Confluent's does, in memory, on loopback."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from clusters.ivy import JVM, cache_of, fetch
from frame.waiting import PATIENCE_S
from servers.kafka_broker import free_port

VERSION = "2.6.13.Final"  # the last one that runs on Java 17
NAME = f"apicurio-registry-app-{VERSION}"
USER, PASSWORD = "reader", "right-password"
"""Who may come in by the guarded address."""


def unpacked() -> Path:
    """Find its jars, fetched once for a user."""
    folder = cache_of(f"apicurio-{VERSION}")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            whole = Path(work, "whole")
            fetch(Path(work), [f"io.apicurio:apicurio-registry-app:{VERSION}"], type_="tar.gz", classifier="all")
            with tarfile.open(Path(work, f"{NAME}.tar.gz")) as archive:
                archive.extractall(whole, filter="data")
            if not folder.exists():
                shutil.move(whole, folder)
    return folder / f"{NAME}-runner.jar"


class SchemaRegistry:
    """A running registry, and the same behind a password.

    Args:
        folder: Takes its log.
    """

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._log = folder / "registry.txt"
        settings = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
        with self._log.open("wb") as log:
            command = ["java", *JVM, *settings, "-jar", str(unpacked())]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._guard = ThreadingHTTPServer(("127.0.0.1", 0), _guard_of(self.url))
        self.guarded_url = f"http://127.0.0.1:{self._guard.server_port}"
        threading.Thread(target=self._guard.serve_forever, daemon=True).start()
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.ask("subjects")
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise RuntimeError(self._log.read_text()[-3000:]) from None
                time.sleep(0.1)
            else:
                return

    def ask(self, path: str, given: Any = None) -> Any:
        body = None if given is None else json.dumps(given).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = Request(f"{self.url}/{path}", body, headers)  # noqa: S310 - of loopback
        with urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            return json.load(answer)

    def put(self, subject: str, schema: Any, references: Any = (), kind: str = "AVRO") -> int:
        """Register a schema; return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        given = {"schema": text, "schemaType": kind, "references": list(references)}
        return int(self.ask(f"subjects/{subject}/versions", given)["id"])

    def stop(self) -> None:
        """End both."""
        self._guard.shutdown()
        self._guard.server_close()
        self._process.kill()
        self._process.wait()


def _guard_of(url: str) -> type[BaseHTTPRequestHandler]:
    """What passes requests with the right password on, as servers before a registry do."""
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Guard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self._answer(401, b"{}")
                return
            try:
                with urlopen(url + self.path, timeout=PATIENCE_S) as answer:  # noqa: S310
                    self._answer(200, answer.read())
            except HTTPError as error:
                with error:
                    self._answer(error.code, error.read())

        def _answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Guard
