"""The text of an error on the terminal, whose commands are ready to type, and the exit code of its command."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection
from pathlib import Path

import click

from ebbtide.errors import ConfigError, EbbtideError

ROOT = ".ebbtide"
"""Default folder of all pipelines' tables."""
NAMED = re.compile(r"'ebbtide ([a-z][\w -]*)'")
"""The form of commands in messages: 'ebbtide rewind --to-step 3 --apply'."""
FAILED, USAGE, NOTHING_MATCHED, PAUSED, REFUSED = 1, 2, 3, 4, 5


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    return error.exit_code if isinstance(error, EbbtideError) else FAILED


def exit_with(codes: Collection[int]) -> None:
    """End a command by the exit codes of its pipelines, if one is not 0.

    `FAILED` goes first: a service manager starts a command again by it, and leaves the other codes to a person.
    """
    code = FAILED if FAILED in codes else max(codes, default=0)
    if code:
        raise click.exceptions.Exit(code)


def error_text(error: Exception, root: str = ROOT, location: str | None = None) -> str:
    """Return an error in one sentence, with spec and root added to commands in it.

    Args:
        error: The error.
        root: Folder of all pipelines' tables.
        location: Location of the spec.
    """
    message = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    return typed(message, root, location)


def typed(message: str, root: str, location: str | None) -> str:
    """Add spec and root to the commands in a message."""
    spec = [location] if location else []
    named_root = ["--root", root] if root != ROOT else []
    return as_typed(message, *spec, *named_root)


def program() -> str:
    """Return the command to start `ebbtide` from the working folder, even if it is not on PATH.

    Example: `.venv/bin/ebbtide`.
    """
    script = Path(sys.executable).with_name("ebbtide")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m ebbtide.cli"
    here = Path.cwd()
    if script.is_relative_to(here):
        script = script.relative_to(here)
    return shlex.quote(str(script))


def as_typed(message: str, *arguments: str) -> str:
    """Complete the commands in a message.

    Args:
        message: A message whose commands have neither spec nor root.
        arguments: Further arguments of those commands.

    Example:
        >>> as_typed("Run 'ebbtide refresh'.", "specs/orders").replace(program(), "ebbtide")
        "Run 'ebbtide refresh specs/orders'."
    """
    rest = " ".join(map(shlex.quote, arguments))

    def completed(command: re.Match[str]) -> str:
        line = f"{program()} {command[1]} {rest}"
        return f"'{line.rstrip()}'"

    return NAMED.sub(completed, message)
