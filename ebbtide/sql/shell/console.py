"""Where the client writes: rows to one stream, what is for people alone to the same one or another."""

from __future__ import annotations

import shutil
from typing import TextIO

from ebbtide.redaction import shown

ERASE_LINE = "\r\x1b[2K"
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
SECONDS_UNSHOWN = 1
"""Shorter waits are not worth a line."""


class Console:
    """Two streams, and the line of a terminal that says that something takes time.

    Args:
        out: Of rows.
        err: Of errors.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._has_waiting_line = False

    @property
    def is_terminal(self) -> bool:
        """Whether rows are seen by people at once."""
        return self._out.isatty()

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size().columns

    @property
    def height(self) -> int:
        """Lines of the terminal."""
        return shutil.get_terminal_size().lines

    def put(self, line: str) -> None:
        """Write a line of rows: it has no character that a terminal obeys."""
        self.end_waiting()
        self._out.write(f"{line}\n")

    def say(self, text: str, *, beside_data: bool = False) -> None:
        """Write lines for people.

        Args:
            text: They; empty: nothing is written.
            beside_data: Programs read the rows: this is not to stand among them.
        """
        if not text:
            return
        self.end_waiting()
        stream = self._err if beside_data else self._out
        stream.write(f"{shown(text)}\n")
        stream.flush()

    def error(self, text: str) -> None:
        """Write what went wrong."""
        self.flush()
        self.say(text, beside_data=True)

    def flush(self) -> None:
        """Let be seen what was written."""
        self._out.flush()

    def clear(self) -> None:
        """Clear the screen, if there is one."""
        if self.is_terminal:
            self._out.write(CLEAR_SCREEN)
            self.flush()

    def wait(self, what: str, seconds: float) -> None:
        """Say, on a terminal, what has been waited for so long."""
        if not self._err.isatty() or seconds < SECONDS_UNSHOWN:
            return
        line = f"{what}, {seconds:.0f} s. Ctrl-C cancels."
        self._err.write(ERASE_LINE + line[: self.width - 1])
        self._err.flush()
        self._has_waiting_line = True

    def end_waiting(self) -> None:
        """Take that line away."""
        if self._has_waiting_line:
            self._err.write(ERASE_LINE)
            self._err.flush()
            self._has_waiting_line = False
