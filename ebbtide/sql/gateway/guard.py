"""Which requests come through: those with a known token; on loopback, none that a page of elsewhere made a browser send."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ebbtide.errors import GatewayError
from ebbtide.sql.gateway.answers import Refusal, failure
from ebbtide.sql.gateway.clients import Client, Clients

OPEN_PATHS = ("/v1/health",)
"""Need no token: a load balancer has none."""
CLIENT = "ebbtide.client"
"""Key of a request's scope: the `Client` that sent it."""


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is of this machine alone.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Answers what must not come further.

    Args:
        app: Answers all else.
        clients: Who is let in.
        listens_on_loopback: Whether only this machine reaches the gateway.
    """

    def __init__(
        self,
        app: ASGIApp,
        clients: Clients,
        *,
        listens_on_loopback: bool,
    ) -> None:
        self._app = app
        self._clients = clients
        self._listens_on_loopback = listens_on_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        app = self._app
        if scope["type"] == "http":
            try:
                scope[CLIENT] = self._let_in(Headers(scope=scope), scope["path"])
            except Refusal as refusal:
                app = failure(refusal)
        await app(scope, receive, send)

    def _let_in(self, headers: Headers, path: str) -> Client | None:
        """Return who sends a request; None where nobody asks who it is.

        Raises:
            Refusal: it does not come through.
        """
        host = headers.get("host", "")
        if self._listens_on_loopback:
            _refuse_foreign_host(host)
        _refuse_foreign_origin(headers, host)
        if path in OPEN_PATHS:
            return None
        return self._clients.of(headers.getlist("authorization"))


def _refuse_foreign_host(host: str) -> None:
    """Refuse a name that is not this machine's: a page's script reaches it by a name of its own that resolves to loopback."""
    name = _host_name(host)
    if name is None or not is_loopback(name):
        raise _forbidden(
            "The Host of the request is not this machine.",
            host,
            "localhost, 127.0.0.1, [::1]",
            "Call the gateway by the URL that it printed.",
        )


def _refuse_foreign_origin(headers: Headers, host: str) -> None:
    origins = headers.getlist("origin")
    if any(_netloc(origin) != host for origin in origins):
        raise _forbidden(
            "The request comes from a page of another origin.",
            ", ".join(origins),
            "no Origin, or the gateway's own",
            "Send it from a program; the gateway has no CORS.",
        )


def _host_name(host: str) -> str | None:
    """Return the name in `name:port`; None if it is no such thing."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port  # a port that is none raises
    except ValueError:
        return None
    is_plain = parts.netloc == host and "@" not in host
    return name if is_plain else None


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _forbidden(what: str, got: str, allowed: str, next_step: str) -> Refusal:
    error = GatewayError.of(
        what,
        got=got[:255] or "none",
        allowed=allowed,
        next_step=next_step,
    )
    return Refusal(HTTPStatus.FORBIDDEN, error)
