"""Makes commands in messages ready to type: with the program's path, the spec and the root."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

NAMED = re.compile(r"'ebbtide ([a-z][\w -]*)'")
"""The form of commands in messages: 'ebbtide rewind --to-step 3 --apply'."""


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
