"""Statements that are executed and waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ebbtide.sql import EmbeddedSession


def answers(session: EmbeddedSession, patience_s: float = 60) -> Callable[[str], Any]:
    """Return a function that executes a statement, and returns its message, or its rows."""

    def do(text: str) -> Any:
        operation = session.execute(text)
        result = operation.result(patience_s)
        rows = operation.page(0, patience_s).rows
        operation.close()
        return rows if result.columns else result.message

    return do
