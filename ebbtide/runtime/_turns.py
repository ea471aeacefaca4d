"""The pieces of a run's work are made at once, or in turn with other runs of its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class InTurn(Protocol):
    """Makes a piece of a run's work when it is the run's turn."""

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Return the work's result, or raise its error."""


def at_once(work: Callable[[], Result]) -> Result:
    """Make a piece of work of a run that shares its process with no other."""
    return work()
