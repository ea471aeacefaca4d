"""A real gateway on loopback, on a thread, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from frame.waiting import PATIENCE_S
from statements.sql_support import MemorySession

from ebbtide.sql import GatewayServer

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "a-token-of-a-test-0123456789"  # noqa: S105 - of no gateway


@dataclass
class Reply:
    status: int
    raw: bytes
    headers: dict

    @property
    def json(self):
        return json.loads(self.raw)

    @property
    def error(self):
        return self.json["error"]


@dataclass
class Served:
    """A gateway that runs, what it has said, and the sessions it has opened."""

    server: GatewayServer
    token: str | None
    lines: list = field(default_factory=list)
    sessions: list = field(default_factory=list)

    @property
    def url(self):
        return self.server.url

    def call(self, method, path, body=None, headers=None, raw=None):
        """Send a request on a connection of its own."""
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None or raw is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        sent = {name: value for name, value in sent.items() if value is not None}
        data = raw if raw is not None else None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Reply(response.status, response.read(), dict(response.getheaders()))
        finally:
            connection.close()

    def open(self, **settings):
        """Open a session; return its path."""
        return f"/v1/sessions/{self.call('POST', '/v1/sessions', {'settings': settings}).json['session']}"

    def execute(self, session, statement):
        """Execute; return the operation's path."""
        reply = self.call("POST", f"{session}/statements", {"statement": statement})
        assert reply.status == 201, reply.raw
        return f"{session}/operations/{reply.json['operation']}"


@contextmanager
def serving(open_session=MemorySession, token=None, **options):
    """Run a gateway."""
    lines, sessions = [], []

    def opened(settings, client):
        session = open_session(settings)
        sessions.append(session)
        return session

    server = GatewayServer(opened, token=token, say=lines.append, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Served(server, token, lines, sessions)
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def running(folder, *arguments, **environment):
    """Run `ebbtide sql-gateway` as a process; give the process and its URL."""
    started = subprocess.Popen(
        [sys.executable, "-m", "ebbtide.cli", "sql-gateway", "--port", "0", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started, started.stdout.readline().split()[-1]
    finally:
        started.kill()
        started.communicate()
