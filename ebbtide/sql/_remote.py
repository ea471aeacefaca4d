"""A session in a gateway, reached over HTTP, with the same methods as an embedded session. Needs `pip install 'ebbtide[sql]'`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

from ebbtide.errors import (
    ConfigError,
    EbbtideError,
    GatewayError,
    GatewayGoneError,
    MissingExtraError,
    SessionGoneError,
    Transient,
)
from ebbtide.sql._results import (
    Completion,
    CompletionKind,
    Operation,
    OperationStatus,
    Page,
    Result,
    ResultColumn,
    ResultKind,
)

try:
    import urllib3
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("sql", "The SQL gateway's client") from missing

VERSION = "/v1"
CONNECT_S = 10
"""Maximum time to open a connection."""
ANSWER_S = 30
"""Time to wait for an answer, after the waiting time that the request asked for."""
CONNECTIONS = 4
"""Connections kept open: one waits for rows, one cancels, one completes, one sends heartbeats."""
UNAVAILABLE = (502, 503, 504)
"""Statuses of a proxy before a gateway that does not answer."""
NEXT_STEP = (
    "Check that the gateway runs and can be reached from this machine. "
    "When it ends, its queries are cancelled and its jobs continue."
)


class GatewayClient:
    """Sends requests to a gateway; safe for threads.

    Args:
        url: URL of the gateway.
        token: Token of the client; None: none.

    Raises:
        ConfigError: the URL is not usable.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = _usable(url)
        self._headers = {"Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._pool = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        waits_s: float = 0,
    ) -> dict[str, Any]:
        """Send a request; return the JSON of its answer.

        Args:
            method: GET, POST or DELETE.
            path: Path below /v1.
            body: Body to be sent as JSON; None: none.
            waits_s: How long the request asks the gateway to wait.

        Raises:
            EbbtideError: the error in the gateway's answer.
            GatewayGoneError: the gateway does not answer.
        """
        timeout = urllib3.Timeout(connect=CONNECT_S, read=ANSWER_S + waits_s)
        headers = dict(self._headers)
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode("ascii")
        url = f"{self._url}{VERSION}{path}"
        try:
            response = self._pool.request(
                method,
                url,
                body=data,
                headers=headers,
                timeout=timeout,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._gone(type(error).__name__) from error
        return self._read(response.status, response.data)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _read(self, status: int, data: bytes) -> dict[str, Any]:
        try:
            answered = json.loads(data)
        except (ValueError, RecursionError):
            answered = None
        found: dict[str, Any] = answered if isinstance(answered, dict) else {}
        if found and status < 300:
            return found
        error = found.get("error")
        if isinstance(error, dict):
            class_name = str(error.get("class"))
            message = str(error.get("message"))
            named = EbbtideError.named(class_name, message)
            if named is not None:
                raise named
        if status in UNAVAILABLE:
            raise self._gone(f"HTTP {status}")
        raise GatewayError.of(
            f"What answers at {self._url} is not a SQL gateway of this version.",
            got=f"HTTP {status}",
            allowed="the URL that 'ebbtide sql-gateway' prints",
        )

    def _gone(self, got: str) -> GatewayGoneError:
        return GatewayGoneError.of(
            f"The gateway at {self._url} does not answer.",
            got=got,
            next_step=NEXT_STEP,
        )


def _usable(url: str) -> str:
    unusable = ConfigError.of(
        "The URL of the gateway is not usable.",
        got=url,
        allowed="http://host:port or https://host:port, without credentials, '?' and '#'",
    )
    try:
        parts = urllib3.util.parse_url(url)
    except urllib3.exceptions.LocationParseError as error:
        raise unusable from error
    has_host = parts.scheme in ("http", "https") and parts.host
    has_more = parts.auth or parts.query or parts.fragment
    if has_more or not has_host:
        raise unusable
    return url.rstrip("/")


Answered = TypeVar("Answered")
POLL_S = 15
"""Maximum wait of one request; a longer wait is several requests."""
HEARTBEATS_PER_TIMEOUT = 4
"""Heartbeats before a session times out: one or two may be lost."""


class RemoteSession:
    """A session in a gateway; heartbeats keep it alive until it is closed, or this process ends.

    Args:
        url: URL that the gateway printed.
        token: Token of the client; None: none.
        settings: Initial settings.

    Raises:
        ConfigError: the URL is not usable.
        GatewayGoneError: no gateway answers there.
        GatewayError: the token is not known.
        GatewayBusyError: there are as many sessions as the gateway allows.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._client = GatewayClient(url, token)
        body = {"settings": dict(settings or {})}
        opened = self._client.call("POST", "/sessions", body)
        self.id: str = opened["session"]
        """Id in the gateway: a client that has it and the token may use the session."""
        self._path = f"/sessions/{quote(self.id, safe='')}"
        self._is_closed = threading.Event()
        interval_s = opened["idle_timeout_s"] / HEARTBEATS_PER_TIMEOUT
        heartbeats = threading.Thread(
            target=self._keep_alive,
            args=(interval_s,),
            daemon=True,
            name="heartbeat",
        )
        heartbeats.start()

    @property
    def catalog_name(self) -> str:
        """Name of the catalog in use."""
        name: str = self._client.call("GET", self._path)["catalog"]
        return name

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the session, credentials masked."""
        settings: dict[str, str] = self._client.call("GET", self._path)["settings"]
        return settings

    def execute(self, statement: str) -> Operation:
        """Begin to execute one statement.

        Raises:
            EbbtideError: the gateway refuses it or is gone.
        """
        begun = self._client.call("POST", f"{self._path}/statements", {"statement": statement})
        return _RemoteOperation(self._client, self._path, begun["operation"])

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return the completions of the word before an offset."""
        body = {"text": text, "offset": offset}
        answered = self._client.call("POST", f"{self._path}/complete", body)
        found = []
        for completion in answered["completions"]:
            kind = CompletionKind(completion["kind"])
            found.append(Completion(completion["text"], completion["start"], kind))
        return found

    def close(self) -> None:
        """End the session: its queries are cancelled, its jobs continue. Succeeds too if the gateway is gone or has ended it."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        with suppress(SessionGoneError, Transient):  # the gateway ends it by itself when it hears no heartbeat
            self._client.call("DELETE", self._path)
        self._client.close()

    def _keep_alive(self, interval_s: float) -> None:
        while not self._is_closed.wait(interval_s):
            try:
                self._client.call("POST", f"{self._path}/heartbeat")
            except Transient:
                continue  # the next statement reports it
            except EbbtideError:
                return  # the session has ended


class _RemoteOperation:
    """A statement that a gateway executes."""

    def __init__(
        self,
        client: GatewayClient,
        session_path: str,
        operation_id: str,
    ) -> None:
        self.id = operation_id
        self._client = client
        self._path = f"{session_path}/operations/{quote(operation_id, safe='')}"

    @property
    def status(self) -> OperationStatus:
        answered = self._client.call("GET", self._path)
        return OperationStatus(answered["status"])

    def result(self, timeout_s: float | None = None) -> Result | None:
        return self._wait(f"{self._path}/result", "columns", _result, timeout_s)

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        return self._wait(f"{self._path}/pages/{token}", "rows", _page, timeout_s)

    def cancel(self) -> None:
        self._client.call("POST", f"{self._path}/cancel")

    def close(self) -> None:
        self._client.call("DELETE", self._path)

    def _wait(
        self,
        path: str,
        field: str,
        read: Callable[[dict[str, Any]], Answered],
        timeout_s: float | None,
    ) -> Answered | None:
        """Repeat a request until the answer has a field; None if the time is up."""
        # A proxy may end a long request, so a long wait is several of `POLL_S`; the last one has the time that is left.
        ends_at = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = POLL_S if ends_at is None else ends_at - time.monotonic()
            wait_s = min(max(left_s, 0), POLL_S)
            answered = self._client.call(
                "GET",
                f"{path}?timeout_s={wait_s:.3f}",
                waits_s=wait_s,
            )
            if field in answered:
                return read(answered)
            if ends_at is not None and time.monotonic() >= ends_at:
                return None


def _result(answered: dict[str, Any]) -> Result:
    columns = tuple(ResultColumn(column["name"], column["type"]) for column in answered["columns"])
    return Result(ResultKind(answered["kind"]), columns, answered["message"])


def _page(answered: dict[str, Any]) -> Page:
    return Page(answered["rows"], answered["next"], answered["position"], answered["notice"])
