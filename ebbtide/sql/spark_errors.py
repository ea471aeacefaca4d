"""Errors of Spark as errors of a statement: the message alone, with the place in what was typed."""

from __future__ import annotations

import re
from collections.abc import Callable

from ebbtide.errors import EbbtideError, SqlError
from ebbtide.sql.tokens import Place

MOST_CHARACTERS = 2_000
"""Of a message."""
_TRACES = ("\n\nJVM stacktrace:", "\n\tat ", "\n\n== SQL", "\n== SQL")
"""How what follows a message begins."""
_CALLED = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")
_RAISED = re.compile(r"An exception was thrown from the Python worker:.*\n(?=\S)", re.DOTALL)
"""What stands before the last line of a Python function's traceback."""
_PLACED = re.compile(r"[;(]?\s*line (\d+),? pos (\d+)[;)]?(?:\n.*)?$", re.DOTALL)


def as_ours(error: BaseException, place: Callable[[int, int], Place] | None = None) -> EbbtideError:
    """Return an error of Spark's, or of a library, as one of ours.

    Args:
        error: It.
        place: Returns where something was written that Spark has found at a line (from 1) and a position (from 0).
    """
    if isinstance(error, EbbtideError):
        return error
    within = EbbtideError.within(error)
    if within is not None:
        return within
    text = _CALLED.sub("", str(error))
    for trace in _TRACES:
        text, _, _ = text.partition(trace)
    text = _RAISED.sub("A Python function raised ", text.rstrip())
    placed = _PLACED.search(text)
    message = _PLACED.sub("", text).strip() or type(error).__name__
    if placed is None or place is None:
        return SqlError(message[:MOST_CHARACTERS])
    written_at = place(int(placed[1]), int(placed[2]))
    sentence = message[:MOST_CHARACTERS].removesuffix(".")
    return SqlError(f"{sentence}. At {written_at}.")
