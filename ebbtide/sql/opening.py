"""Where a session comes from: this process, or a gateway. Libraries are loaded when one is opened."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ebbtide.sql.session import Session


@dataclass(frozen=True)
class Target:
    """What a session is to work on.

    Args:
        root: Folder of all pipelines' tables.
        defs: Folder of the definitions.
        environment: A file, see `ebbtide.sql.environment`.
        gateway: URL of a gateway, that has a root and definitions of its own; the others are then not looked at.
        token_file: Holds the gateway's token.
        token_variable: Name of the variable that holds it.
    """

    root: str
    defs: str
    environment: Path | None = None
    gateway: str | None = None
    token_file: Path | None = None
    token_variable: str | None = None


def open_session(target: Target) -> Session:
    """Open a session.

    Raises:
        ConfigError: what it is to work on is not usable.
        EbbtideError: the gateway gives none.
    """
    if target.gateway is not None:
        return _remote(target, target.gateway)
    return _embedded(target)


def _embedded(target: Target) -> Session:
    from ebbtide.paths import refuse_unusable
    from ebbtide.sql.embedded import EmbeddedSession
    from ebbtide.sql.environment import beginning_of

    refuse_unusable("--root", target.root)
    beginning = beginning_of(target.root, target.defs, target.environment)
    session: Session = EmbeddedSession(
        beginning.catalog,
        beginning.settings,
        further=beginning.catalogs,
    )
    return session


def _remote(target: Target, url: str) -> Session:
    from ebbtide.sql.remote import RemoteSession

    session: Session = RemoteSession(url, _token(target))
    return session


def _token(target: Target) -> str | None:
    from ebbtide.sql.bearer import token_of_file, token_of_variable

    if target.token_file is not None:
        token: str = token_of_file(target.token_file)
        return token
    if target.token_variable is not None:
        return str(token_of_variable(target.token_variable, os.environ))
    return None
