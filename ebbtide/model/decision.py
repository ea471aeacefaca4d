"""What a step does beside the state: one action for each table, and what becomes of the source. Pure.

A table performs its action once, under the step's transaction mark. A table without an action lacks nothing of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ebbtide.model.schema_change import SchemaChange


@dataclass(frozen=True)
class Apply:
    """Write the change set that the step's commit holds.

    Args:
        only_inserts: The table has no row of any key in the change set.
    """

    only_inserts: bool = False


@dataclass(frozen=True)
class Append:
    """Append what the step's commit names: emitted rows; of the quarantine bad records that come, and those that leave."""


@dataclass(frozen=True)
class Restore:
    """Go back to an earlier version.

    Args:
        version: The table's version.
        changes_rows: Rows change by it; else only how they are stored.
    """

    version: int
    changes_rows: bool


@dataclass(frozen=True)
class Replace:
    """Take all rows of the same table under another root.

    Args:
        incarnation: Of the pipeline there.
        version: Version of the table there; None: there is none, and no row is left.
    """

    incarnation: str
    version: int | None


@dataclass(frozen=True)
class Alter:
    """Take other columns; each row stays.

    Args:
        change: What becomes of the columns.
        columns_before: The user's columns before it, as DDL.
    """

    change: SchemaChange
    columns_before: str


@dataclass(frozen=True)
class Clear:
    """Delete all rows, and take the spec's columns."""


@dataclass(frozen=True)
class Rewrite:
    """Bring the rows to what the state tells, whatever they are now.

    Args:
        alters: The columns may have changed too.
    """

    alters: bool = False


Action = Apply | Append | Restore | Replace | Alter | Clear | Rewrite


class Source(StrEnum):
    """What becomes of the place in the source.

    Values:
        KEEP: It stays.
        ADVANCE: The step reads on from it.
        BEGIN: The next step reads from where this one says; Spark's checkpoint is discarded.
    """

    KEEP = "keep"
    ADVANCE = "advance"
    BEGIN = "begin"


@dataclass(frozen=True)
class Decision:
    """What a step does beside the state.

    Args:
        tables: Name of a table to its action, in the order in which they are performed.
        source: What becomes of the place in the source.
    """

    tables: Mapping[str, Action]
    source: Source = Source.KEEP

    @property
    def is_swap(self) -> bool:
        """Whether tables take the rows of another root."""
        return any(isinstance(action, Replace) for action in self.tables.values())
