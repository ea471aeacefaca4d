"""Next commands as they can be typed here: with the program's path, the spec and the root."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

NAMED = re.compile(r"'ebbtide ([a-z][\w -]*)'")
"""The form in which messages name a command: 'ebbtide rewind --to-step 3 --apply'."""


def program() -> str:
    """Return how to start `ebbtide` from the working folder: PATH need not have it.

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
    """Complete the commands that a message names.

    Args:
        message: Its commands name neither spec nor root.
        arguments: What those commands need beside their flags.

    Example:
        >>> as_typed("Run 'ebbtide refresh'.", "specs/orders").replace(program(), "ebbtide")
        "Run 'ebbtide refresh specs/orders'."
    """
    rest = " ".join(map(shlex.quote, arguments))

    def completed(command: re.Match[str]) -> str:
        line = f"{program()} {command[1]} {rest}"
        return f"'{line.rstrip()}'"

    return NAMED.sub(completed, message)
