"""Opens a session, in this process or in a gateway; a gateway's token is given by reference. Libraries are loaded only then."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ebbtide.errors import ConfigError
from ebbtide.redaction import hide
from ebbtide.sql._py_files import imported_from
from ebbtide.sql._results import Session

LEAST_LENGTH = 16
"""Characters of the shortest token: a shorter one can be guessed."""
MOST_LENGTH = 4096
FORM = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""Form of a token by RFC 6750."""
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]{1,255}")
"""Paths that `refuse_unusable` never refuses: no URI, no control character, no name that is too long."""
TO_GET_ONE = "Make one: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'."
OF_OTHER_USERS = stat.S_IRWXG | stat.S_IRWXO


def given_token(file: Path | None, variable: str | None) -> str | None:
    """Return the token that a file or a variable of this process holds; None without both.

    Raises:
        ConfigError: there is none, or it is not usable.
    """
    if file is not None:
        return token_of_file(file)
    return None if variable is None else token_of_variable(variable, os.environ)


def token_of_variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the token that a variable holds.

    Args:
        name: Name of the variable.
        environment: Variables of this process.

    Raises:
        ConfigError: the variable is not set, or does not hold a token.
    """
    if name not in environment:
        raise ConfigError.of(
            "The variable of the gateway's token is not set.",
            got=f"--token-env {name}",
            next_step=f"Set {name} in the environment of this process. {TO_GET_ONE}",
        )
    return _usable(environment[name], f"the variable {name}")


def token_of_file(path: Path) -> str:
    """Return the token that a file holds.

    Raises:
        ConfigError: the file cannot be read, other users may read it, or it holds no token.
    """
    text = private_text(path, MOST_LENGTH)
    return _usable(text.strip(), f"the file {path}")


def private_text(path: Path, most_characters: int) -> str:
    """Return the text of a file of tokens.

    Args:
        path: Path of the file.
        most_characters: Maximum length; the rest is not read.

    Raises:
        ConfigError: the file cannot be read, or other users may read it.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(most_characters)
    except OSError as error:
        raise ConfigError.of(
            "The file of the gateway's tokens cannot be read.",
            got=error,
        ) from error
    if mode & OF_OTHER_USERS or not stat.S_ISREG(mode):
        raise ConfigError.of(
            "The file of the gateway's tokens is open to other users.",
            got=f"{path}, mode {stat.S_IMODE(mode):o}",
            allowed="a file of mode 600",
            next_step=f"chmod 600 {path}, and put new tokens into it: other users may have read these.",
        )
    return text


def is_token(text: str) -> bool:
    """Return whether a text can be a token."""
    return LEAST_LENGTH <= len(text) < MOST_LENGTH and FORM.fullmatch(text) is not None


def _usable(token: str, place: str) -> str:
    """Return a token, checked and registered as hidden: no output shows it from now on."""
    hide(token)
    if not is_token(token):
        raise ConfigError.of(
            f"The content of {place} is not a token.",
            got=f"{len(token)} characters",
            allowed=f"{LEAST_LENGTH} or more letters, digits and . _ ~ + / = -",
            next_step=TO_GET_ONE,
        )
    return token


@dataclass(frozen=True)
class Target:
    """Place that a session works on.

    Args:
        root: Folder of all pipelines' tables.
        defs: Folder of the definitions.
        environment: File of an environment, see `ebbtide.sql._environment`.
        gateway: URL of a gateway, which has its own root and definitions; root, defs and environment are then ignored.
        token_file: File with the gateway's token.
        token_variable: Name of the variable with the gateway's token.
        py_files: Files of Python code for functions, with commas between them.
    """

    root: str
    defs: str
    environment: Path | None = None
    gateway: str | None = None
    token_file: Path | None = None
    token_variable: str | None = None
    py_files: str = ""

    def open(self) -> Session:
        """Open a session.

        Raises:
            ConfigError: the target is not usable.
            EbbtideError: the gateway opens none.
        """
        if self.gateway is not None:
            from ebbtide.sql._remote import RemoteSession

            return RemoteSession(self.gateway, given_token(self.token_file, self.token_variable))
        from ebbtide.sql._catalog import DEFAULT_CATALOG, Catalog
        from ebbtide.sql._session import EmbeddedSession

        if not _PLAIN_PATH.fullmatch(self.root):
            from ebbtide.storage import Location

            Location(self.root).refuse_unusable("--root")
        py_files = imported_from(self.py_files)
        if self.environment is None:
            own = Catalog(self.root, Path(self.defs))
            return EmbeddedSession({DEFAULT_CATALOG: own}, {}, py_files=py_files)
        from ebbtide.sql._environment import read_environment

        environment = read_environment(self.environment)
        return EmbeddedSession(environment.catalogs(self.root, self.defs), environment.settings, py_files=py_files)

    def variables(self) -> Mapping[str, str]:
        """Return the variables of statements that the environment's file has; none without one.

        Raises:
            ConfigError: the file is not usable.
        """
        if self.environment is None:
            return {}
        from ebbtide.sql._environment import read_environment

        return read_environment(self.environment).variables
