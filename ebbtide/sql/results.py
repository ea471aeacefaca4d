"""What a statement returns: columns, and rows page by page, as plain JSON values; the same embedded and through the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Row = Sequence[Any]
"""JSON values: numbers that JSON cannot hold exactly, dates, times and bytes as text, structures as lists and objects."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result.

    Args:
        name: Its name.
        type: Its type, as Spark writes it.
    """

    name: str
    type: str = "string"


class ResultKind(StrEnum):
    """What the rows are."""

    DONE = "done"
    """None: the statement did something; its message says what."""
    ROWS = "rows"
    """A table's, all of one moment."""
    CHANGES = "changes"
    """Changes of it: before the columns asked for stand `op` (+I -U +U -D) and `version`, the table's; they may go on for ever."""


@dataclass(frozen=True)
class Result:
    """What is known of a result before its rows.

    Args:
        kind: What they are.
        columns: Of each row.
        message: For people: what was done, or what is to be known of the rows (cut off at a limit).
    """

    kind: ResultKind
    columns: tuple[ResultColumn, ...] = ()
    message: str = ""

    @classmethod
    def done(cls, message: str) -> Result:
        """Say what a statement did."""
        return cls(ResultKind.DONE, message=message)


@dataclass(frozen=True)
class Page:
    """Some of the rows.

    Args:
        rows: They, in order.
        next: What to ask the next page by; None: there is none.
        position: Of changes, where they can be taken up again: `EMIT CHANGES FROM 'position'`.
        notice: What is to be known now, such as that rows were cut off at a limit; empty: nothing.
    """

    rows: list[Row] = field(default_factory=list)
    next: int | None = None
    position: str | None = None
    notice: str = ""


class OperationStatus(StrEnum):
    """Where an operation stands."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self is not OperationStatus.RUNNING
