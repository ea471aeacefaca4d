"""A real pseudo-terminal with a process in it, and what its screen shows."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from types import TracebackType
from typing import Self

import pyte
from frame.waiting import PATIENCE_S

PROMPT = "ebbtide>"
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "end": "\x1b[F",
    "home": "\x1b[H",
    "page down": "\x1b[6~",
    "enter": "\r",
    "tab": "\t",
    "ctrl-c": "\x03",
    "ctrl-d": "\x04",
    "ctrl-l": "\x0c",
    "ctrl-r": "\x12",
}


class Terminal:
    """Runs a Python script as the leader of a session; once it opens the terminal, that is its own, and Ctrl-C a signal to it.

    A context manager that ends it.

    Args:
        arguments: Of Python.
        environment: Variables beside those of this process.
        python: The program.
        columns: Of the screen.
        lines: Of it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        python: str | Path = sys.executable,
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.written = b""
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [python, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def type(self, *parts: str) -> None:
        """Type texts and keys."""
        for part in parts:
            os.write(self._ours, KEYS.get(part, part).encode())

    def shows(self, *texts: str) -> str:
        """Wait until the screen shows some texts; return all of it."""
        return self.until(lambda: all(text in self.text for text in texts), f"{texts} on the screen")

    def prompts(self, *texts: str) -> str:
        """Wait until the screen shows some texts and, below them, an empty prompt."""
        self.shows(*texts)
        return self.until(lambda: self.text.endswith(PROMPT), "a prompt")

    def clear(self) -> None:
        """Have the screen show a prompt alone, and nothing be noted of what was written."""
        self.screen.reset()
        self.type("ctrl-l")
        self.until(lambda: self.text == PROMPT, "a prompt alone")
        self.written = b""

    def hides(self, text: str) -> str:
        """Wait until the screen does not show a text."""
        return self.until(lambda: text not in self.text, f"no {text!r} on the screen")

    def ends(self) -> int:
        """Wait until the process has ended; return its exit code."""
        self.until(lambda: self.process.poll() is not None, "the end")
        return self.process.wait()

    def until(self, is_so: Callable[[], bool], what: str) -> str:
        """Wait until something is so; return what the screen shows then. What is so for a moment alone may be missed."""
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end, f"waited in vain for {what}:\n{self.text}"
            self._read()
        return self.text

    def _read(self) -> None:
        readable, _, _ = select.select([self._ours], [], [], 0.05)
        if not readable:
            return
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other side is closed
            return
        self.written += data
        self._stream.feed(data)


def script(name: str) -> str:
    """Return the path of a script in this folder."""
    return str(Path(__file__).parents[1] / name)
