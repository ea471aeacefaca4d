"""Who asks: a name and a role for each token.

The tokens of several clients stand in a file:

    # role   name       token, or its SHA-256
    reader   dashboard  sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    writer   loader     d3JpdGVyLXRva2VuLW9mLWEtdGVzdA
    owner    anna       b3duZXItdG9rZW4tb2YtYS10ZXN0

A client may have several tokens, all of one role. The single token of a gateway is that of the owner `default`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from ebbtide.errors import ConfigError, GatewayError
from ebbtide.redaction import hide
from ebbtide.sql.bearer import LEAST_LENGTH, MOST_LENGTH, is_token, private_text
from ebbtide.sql.gateway.answers import Refusal
from ebbtide.sql.gateway.roles import Role

SCHEME = "bearer "
HASHED = "sha256:"
HASH = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[A-Za-z0-9_.@-]{1,63}")
MOST_BYTES = 1024 * 1024
"""Of the file of clients."""


@dataclass(frozen=True)
class Client:
    """Who sends a request.

    Args:
        name: Sessions and jobs belong to it.
        role: What it may do.
    """

    name: str
    role: Role


DEFAULT = Client("default", Role.OWNER)
"""Who has the single token; where none is needed, everybody."""


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
        ConfigError: it cannot be read, others may read it, or a line of it is not usable; with the line's number, without its token.
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
        known: Their tokens; none: everybody is let in, as the owner `default`.
    """

    def __init__(self, known: Iterable[Known]) -> None:
        self._known = tuple(known)

    @property
    def need_tokens(self) -> bool:
        """Whether a request must have one."""
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
            raise _unknown(has_token=bool(tokens))
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
    return ConfigError.of(
        f"Line {number} of the file of the gateway's clients is not usable.",
        got=f"{got}, {path}",
        allowed=allowed,
    )


def _unknown(*, has_token: bool) -> Refusal:
    error = GatewayError.of(
        "The gateway does not know who asks.",
        got="another token" if has_token else "no token",
        allowed="the header Authorization: Bearer and a token of the gateway, once",
        next_step="Give the client the token by --token-env or --token-file.",
    )
    return Refusal(HTTPStatus.UNAUTHORIZED, error)
