"""Errors of Spark as errors of a statement: the message alone, with the place in what was typed."""

from __future__ import annotations

import re

from ebbtide.errors import EbbtideError, SqlError
from ebbtide.sql.tokens import Place, Statement

MOST_CHARACTERS = 2_000
"""Of a message."""
_TRACES = ("\n\nJVM stacktrace:", "\n\tat ", "\n\n== SQL", "\n== SQL")
"""How what follows a message begins."""
_CALLED = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")
_PLACED = re.compile(r"[;(]?\s*line (\d+),? pos (\d+)[;)]?(?:\n.*)?$", re.DOTALL)


def told(error: BaseException, statement: Statement | None = None) -> EbbtideError:
    """Return an error of Spark's, or of a library, as one of ours.

    Args:
        error: It.
        statement: What was executed, of which Spark tells lines and columns.
    """
    if isinstance(error, EbbtideError):
        return error
    within = EbbtideError.within(error)
    if within is not None:
        return within
    text = _CALLED.sub("", str(error))
    for trace in _TRACES:
        text, _, _ = text.partition(trace)
    placed = _PLACED.search(text)
    message = _PLACED.sub("", text).strip() or type(error).__name__
    if placed is None or statement is None:
        return SqlError(message[:MOST_CHARACTERS])
    place = _place(statement, int(placed[1]), int(placed[2]))
    sentence = message[:MOST_CHARACTERS].removesuffix(".")
    return SqlError(f"{sentence}. At {place}.")


def _place(statement: Statement, line: int, position: int) -> Place:
    """Return a place in a statement, as Spark counts, as one in its script."""
    begins = statement.place
    if line == 1:
        return Place(begins.line, begins.column + position)
    return Place(begins.line + line - 1, position + 1)
