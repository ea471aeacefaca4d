"""Answers what the next run of a pipeline would meet, for status and metrics alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ebbtide.errors import EbbtideError, Transient
from ebbtide.inspect._backlog import Lag
from ebbtide.runtime import AtRest


@dataclass(frozen=True)
class NextRun:
    """The outcome of a look ahead. It leaves out a pause and a live lease.

    Args:
        refusal: Why it would be refused; None: it would not be.
        unavailable: Why the source could not be read just now; a later run may read it. None: it could, or was not asked.
        waiting: What it would read; None: the source was not asked, or could not be read.
        reads_tables: The tables' logs could be read.
    """

    refusal: EbbtideError | None = None
    unavailable: EbbtideError | None = None
    waiting: Lag | None = None
    reads_tables: bool = True

    @classmethod
    def unread(cls, error: EbbtideError) -> Self:
        """Say that the tables' logs cannot be read, for which the next run is refused, or just now."""
        if isinstance(error, Transient):
            return cls(unavailable=error, reads_tables=False)
        return cls(refusal=error, reads_tables=False)

    @classmethod
    def of(cls, found: AtRest, clock_ms: int | None) -> Self:
        """Find what the next run would meet.

        Args:
            found: The pipeline.
            clock_ms: The time, epoch ms; None: the source is not asked.
        """
        refusal = found.refusal
        unavailable = waiting = None
        if clock_ms is not None:
            # Also of a run that is refused for another reason: meanwhile more and more waits.
            try:
                waiting = Lag.at_rest(found, clock_ms)
            except Transient as error:
                unavailable = error
            except EbbtideError as error:
                refusal = refusal or error
        return cls(refusal, unavailable, waiting)
