"""Admits requests: it identifies the client by its token, and refuses requests that a foreign page made a browser send."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ebbtide.errors import ConfigError
from ebbtide.hosts import is_loopback, named_host, netloc
from ebbtide.lines import lines_of
from ebbtide.redaction import hide
from ebbtide.sql._gateway.clients import Client, Role
from ebbtide.sql._gateway.requests import SHOWN, Refusal, failure
from ebbtide.sql._opening import LEAST_LENGTH, MOST_LENGTH, is_token, private_text

OPEN_PATHS = ("/v1/health",)
"""Paths that need no token, as a load balancer has none."""
CLIENT = "ebbtide.client"
"""Key of the `Client` in a request's scope."""
SCHEME = "bearer "
HASHED = "sha256:"
HASH = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,63}")
MOST_BYTES = 1024 * 1024
"""Maximum size of the file of clients."""
DEFAULT = Client("default", Role.OWNER)
"""The client with the single token; every client, where no token is needed."""


@dataclass(frozen=True)
class Known:
    """A known token.

    Args:
        digest: (32,) bytes, the SHA-256 of the token.
        client: Client of the token.
    """

    digest: bytes
    client: Client


def known_token(token: str) -> Known:
    """Return the single token of a gateway as a known one."""
    return Known(_digest(token), DEFAULT)


def read_clients(path: Path) -> list[Known]:
    """Read the file of clients.

    Raises:
        ConfigError: the file cannot be read, other users may read it, or a line is not usable. The message has the number of the
            line and no part of it.
    """
    text = private_text(path, MOST_BYTES)
    found: list[Known] = []
    roles: dict[str, Role] = {}
    for number, line in enumerate(lines_of(text), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        known = _known(fields, path, number)
        client = known.client
        if roles.setdefault(client.name, client.role) is not client.role:
            raise _unusable(
                path,
                number,
                "the name of an earlier line with another role",
                "one role for a name",
            )
        if any(known.digest == other.digest for other in found):
            raise _unusable(path, number, "a token of another line", "each token once")
        found.append(known)
    if not found:
        raise ConfigError.of(
            "The file of the gateway's clients is empty.",
            got=path,
            allowed="a line 'role name token' for each client",
        )
    return found


class Clients:
    """The clients of a gateway.

    Args:
        known: Known tokens; none: every request is admitted, as the owner `default`.
    """

    def __init__(self, known: Iterable[Known]) -> None:
        self._known = tuple(known)

    @property
    def need_tokens(self) -> bool:
        """True if a request must have a token."""
        return bool(self._known)

    def of(self, given: list[str]) -> Client:
        """Return the client of a request.

        Args:
            given: The headers `Authorization` of the request.

        Raises:
            Refusal: they are not one known token.
        """
        if not self._known:
            return DEFAULT
        tokens = [value[len(SCHEME) :].strip() for value in given if value.lower().startswith(SCHEME)]
        has_one_token = len(given) == len(tokens) == 1
        found = self._find(tokens[0]) if has_one_token else None
        if found is None:
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "The gateway does not know the client.",
                "another token" if tokens else "no token",
                "the header Authorization: Bearer and a token of the gateway, once",
                "Give the client the token by --token-env or --token-file.",
            )
        return found

    def _find(self, token: str) -> Client | None:
        """Return the client of a token; None if it is unknown."""
        # Each token is compared whole, and all of them are compared: so the time shows neither how much of a token is right nor
        # whose it is.
        digest = _digest(token)
        found = None
        for known in self._known:
            if hmac.compare_digest(digest, known.digest):
                found = known.client
        if found is not None:
            hide(token)  # the file of clients may have had its digest only
        return found


def _known(fields: list[str], path: Path, number: int) -> Known:
    """Return the token of a line of the file."""
    if len(fields) != 3:
        raise _unusable(path, number, f"{len(fields)} fields", "role name token")
    role, name, secret = fields
    if role not in list(Role):
        raise _unusable(path, number, "another first field", ", ".join(Role))
    if not NAME.fullmatch(name) or name == DEFAULT.name:
        allowed = f"1 to 63 letters, digits and _ . @ -; not '{DEFAULT.name}', who has the single token"
        raise _unusable(path, number, "another second field", allowed)
    return Known(_digest_of(secret, path, number), Client(name, Role(role)))


def _digest_of(secret: str, path: Path, number: int) -> bytes:
    if secret.startswith(HASHED):
        hexadecimal = secret.removeprefix(HASHED).lower()
        if not HASH.fullmatch(hexadecimal):
            raise _unusable(
                path,
                number,
                f"{len(hexadecimal)} characters behind {HASHED}",
                "64 hexadecimal digits",
            )
        return bytes.fromhex(hexadecimal)
    hide(secret)
    if not is_token(secret):
        plain = f"{LEAST_LENGTH} to {MOST_LENGTH - 1} letters, digits and . _ ~ + / = -"
        allowed = f"{plain}, or {HASHED} and 64 hexadecimal digits"
        raise _unusable(path, number, f"a token of {len(secret)} characters", allowed)
    return _digest(secret)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _unusable(
    path: Path,
    number: int,
    got: str,
    allowed: str,
) -> ConfigError:
    """Return the error of a line, without its fields: each may be a misplaced token."""
    what = f"Line {number} of the file of the gateway's clients is not usable."
    return ConfigError.of(what, got=f"{got}, {path}", allowed=allowed)


class Guard:
    """Answers the requests that are not admitted.

    Args:
        app: Application that answers all admitted requests.
        clients: Clients of the gateway.
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
        """Answer a request, or pass it on."""
        app = self._app
        if scope["type"] == "http":
            try:
                scope[CLIENT] = self._admit(Headers(scope=scope), scope["path"])
            except Refusal as refusal:
                app = failure(refusal)
        await app(scope, receive, send)

    def _admit(self, headers: Headers, path: str) -> Client | None:
        """Return the client of a request; None for a path that needs no token.

        Raises:
            Refusal: the request is not admitted.
        """
        host = headers.get("host", "")
        if self._listens_on_loopback:
            _refuse_foreign_host(host)
        _refuse_foreign_origin(headers.getlist("origin"), host)
        if path in OPEN_PATHS:
            return None
        return self._clients.of(headers.getlist("authorization"))


def _refuse_foreign_host(host: str) -> None:
    """Refuse a Host that is not this machine's name: a script of a page may use a domain that resolves to loopback."""
    name = named_host(host)
    if name is None or not is_loopback(name):
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "The Host of the request is not this machine.",
            host[:SHOWN] or "none",
            "localhost, 127.0.0.1, [::1]",
            "Call the gateway by the URL that it printed.",
        )


def _refuse_foreign_origin(origins: list[str], host: str) -> None:
    parts = [netloc(origin) for origin in origins]
    is_foreign = [origin is None or origin.netloc != host for origin in parts]
    if any(is_foreign):
        raise Refusal(
            HTTPStatus.FORBIDDEN,
            "The request comes from a page of another origin.",
            ", ".join(origins)[:SHOWN] or "none",
            "no Origin, or the gateway's own",
            "Send it from a program; the gateway has no CORS.",
        )
