"""Requests to a gateway: JSON there and back, errors raised again as the gateway's session raised them."""

from __future__ import annotations

import json
from typing import Any

from ebbtide.errors import (
    ConfigError,
    EbbtideError,
    GatewayError,
    GatewayGoneError,
    MissingExtraError,
)

try:
    import urllib3
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("sql", "The SQL gateway's client") from missing

VERSION = "/v1"
CONNECT_S = 10
"""How long a gateway may take to take a connection."""
ANSWER_S = 30
"""How long it may take to answer, beside what it was asked to wait."""
CONNECTIONS = 4
"""Kept open: one waits for rows, one cancels, one completes, one tells that the session is in use."""
UNAVAILABLE = (502, 503, 504)
"""What is in front of a gateway says so where that does not answer."""
TO_DO = "See whether it runs and is reached from here. Its queries are cancelled when it ends, its jobs go on."


class GatewayClient:
    """Sends requests to a gateway; any number of threads may.

    Args:
        url: Of the gateway.
        token: That it wants; None: none.

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
            path: Below /v1.
            body: As JSON; None: none.
            waits_s: How long the gateway was asked to wait.

        Raises:
            EbbtideError: that which the gateway answered with.
            GatewayGoneError: it does not answer.
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
        """Close its connections."""
        self._pool.clear()

    def _read(self, status: int, data: bytes) -> dict[str, Any]:
        try:
            answered = json.loads(data)
        except (ValueError, RecursionError):
            answered = None
        is_ours = isinstance(answered, dict)
        if is_ours and status < 300:
            return answered  # type: ignore[no-any-return]
        error = _named(answered["error"]) if is_ours and "error" in answered else None
        if error is not None:
            raise error
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
            next_step=TO_DO,
        )


def _named(error: Any) -> EbbtideError | None:
    """Make the error that an answer describes; None if it describes none."""
    if not isinstance(error, dict):
        return None
    name = str(error.get("class"))
    message = str(error.get("message"))
    return EbbtideError.named(name, message)


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
