"""Who asks, and which requests come through: known tokens; on loopback none that a page of elsewhere made a browser send."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ebbtide.errors import ConfigError
from ebbtide.redaction import hide
from ebbtide.sql.gateway.clients import Client, Role
from ebbtide.sql.gateway.requests import SHOWN, Refusal, failure
from ebbtide.sql.opening import LEAST_LENGTH, MOST_LENGTH, is_token, private_text

OPEN_PATHS = ("/v1/health",)
"""Need no token: a load balancer has none."""
CLIENT = "ebbtide.client"
"""Key of a request's scope: the `Client` that sent it."""
SCHEME = "bearer "
HASHED = "sha256:"
HASH = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,63}")
MOST_BYTES = 1024 * 1024
"""Of the file of clients."""


DEFAULT = Client("default", Role.OWNER)
"""The client that has the single token; every client, where no token is needed."""


@dataclass(frozen=True)
class Known:
    """A token that is let in.

    Args:
        digest: (32,) bytes, the SHA-256 of the token.
        client: Whose it is.
    """

    digest: bytes
    client: Client


def known_token(token: str) -> Known:
    """Return the single token of a gateway as one that is let in."""
    return Known(_digest(token), DEFAULT)


def read_clients(path: Path) -> list[Known]:
    """Read the file of clients.

    Raises:
        ConfigError: it cannot be read, other users may read it, or a line of it is not usable; with the line's number, without its token.
    """
    text = private_text(path, MOST_BYTES)
    found: list[Known] = []
    roles: dict[str, Role] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        known = _known(fields, path, number)
        client = known.client
        if roles.setdefault(client.name, client.role) is not client.role:
            raise _unusable(path, number, "the name of an earlier line with another role", "one role for a name")
        if any(known.digest == other.digest for other in found):
            raise _unusable(path, number, "a token of another line", "each token once")
        found.append(known)
    if not found:
        raise ConfigError.of(
            "The file of the gateway's clients names none.",
            got=path,
            allowed="a line 'role name token' for each client",
        )
    return found


class Clients:
    """Those that a gateway lets in.

    Args:
        known: Their tokens; none: each request is let in, as the owner `default`.
    """

    def __init__(self, known: Iterable[Known]) -> None:
        self._known = tuple(known)

    @property
    def need_tokens(self) -> bool:
        """True if a request must have one."""
        return bool(self._known)

    def of(self, given: list[str]) -> Client:
        """Return whose request it is.

        Args:
            given: Its headers `Authorization`.

        Raises:
            Refusal: it has not one token that is known.
        """
        if not self._known:
            return DEFAULT
        tokens = [value[len(SCHEME) :].strip() for value in given if value.lower().startswith(SCHEME)]
        found = self._find(tokens[0]) if len(given) == len(tokens) == 1 else None
        if found is None:
            raise Refusal(
                HTTPStatus.UNAUTHORIZED,
                "The gateway does not know who asks.",
                "another token" if tokens else "no token",
                "the header Authorization: Bearer and a token of the gateway, once",
                "Give the client the token by --token-env or --token-file.",
            )
        return found

    def _find(self, token: str) -> Client | None:
        """Compare with all tokens, in a time that depends neither on how much of one is right nor on whose it is."""
        digest = _digest(token)
        found = None
        for known in self._known:
            if hmac.compare_digest(digest, known.digest):
                found = known.client
        if found is not None:
            hide(token)  # of a hashed one this is the first sight
        return found


def _known(fields: list[str], path: Path, number: int) -> Known:
    """Read a line of the file."""
    if len(fields) != 3:
        raise _unusable(path, number, f"{len(fields)} fields", "role name token")
    role, name, secret = fields
    if role not in set(Role):
        raise _unusable(path, number, "another first field", ", ".join(Role))
    if not NAME.fullmatch(name) or name == DEFAULT.name:
        allowed = f"1 to 63 letters, digits and _ . @ -; not '{DEFAULT.name}', who has the single token"
        raise _unusable(path, number, "another second field", allowed)
    return Known(_digest_of(secret, path, number), Client(name, Role(role)))


def _digest_of(secret: str, path: Path, number: int) -> bytes:
    if secret.startswith(HASHED):
        hexadecimal = secret.removeprefix(HASHED).lower()
        if not HASH.fullmatch(hexadecimal):
            raise _unusable(path, number, f"{len(hexadecimal)} characters behind {HASHED}", "64 hexadecimal digits")
        return bytes.fromhex(hexadecimal)
    hide(secret)
    if not is_token(secret):
        allowed = f"{LEAST_LENGTH} to {MOST_LENGTH - 1} letters, digits and . _ ~ + / = -, or {HASHED} and 64 hexadecimal digits"
        raise _unusable(path, number, f"a token of {len(secret)} characters", allowed)
    return _digest(secret)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _unusable(path: Path, number: int, got: str, allowed: str) -> ConfigError:
    """Say what is wrong with a line; nothing that stands in it, as each of its fields may be a misplaced token."""
    what = f"Line {number} of the file of the gateway's clients is not usable."
    return ConfigError.of(what, got=f"{got}, {path}", allowed=allowed)


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

    def __init__(self, app: ASGIApp, clients: Clients, *, listens_on_loopback: bool) -> None:
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
        """Return who sends a request; None for a path that needs no token.

        Raises:
            Refusal: it does not come through.
        """
        host = headers.get("host", "")
        if self._listens_on_loopback:
            _refuse_foreign_host(host)
        _refuse_foreign_origin(headers.getlist("origin"), host)
        if path in OPEN_PATHS:
            return None
        return self._clients.of(headers.getlist("authorization"))


def _refuse_foreign_host(host: str) -> None:
    """Refuse a name that is not this machine's: a page's script reaches it by a name of its own that resolves to loopback."""
    parts = _netloc(f"//{host}")
    is_plain = parts is not None and parts.netloc == host and "@" not in host
    if parts is None or not is_plain or not is_loopback(parts.hostname or ""):
        what = "The Host of the request is not this machine."
        next_step = "Call the gateway by the URL that it printed."
        raise Refusal(HTTPStatus.FORBIDDEN, what, host[:SHOWN] or "none", "localhost, 127.0.0.1, [::1]", next_step)


def _refuse_foreign_origin(origins: list[str], host: str) -> None:
    parts = [_netloc(origin) for origin in origins]
    if any(each is None or each.netloc != host for each in parts):
        what = "The request comes from a page of another origin."
        got = ", ".join(origins)[:SHOWN] or "none"
        next_step = "Send it from a program; the gateway has no CORS."
        raise Refusal(HTTPStatus.FORBIDDEN, what, got, "no Origin, or the gateway's own", next_step)


def _netloc(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is none, or its port is none."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        return None
    return parts
