"""The decision of a step: one action per output table, and one for the source. Pure; stored with the step.

A table performs its action once, under the step's transaction mark. A table without an action is up to date already. Code
reads the actions of a step; the cause is shown to people only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from ebbtide.facts import Facts
from ebbtide.model._schema_change import SchemaChange

_CLOSED = ConfigDict(extra="forbid")
"""A field that this release does not know belongs to a newer one; see `ebbtide.model._stored`."""


@dataclass(frozen=True)
class Apply:
    """Write the change set that the step's commit holds.

    Args:
        only_inserts: The table has no row of any key in the change set.
    """

    __pydantic_config__ = _CLOSED

    only_inserts: bool = False
    do: Literal["apply"] = field(default="apply", kw_only=True)


@dataclass(frozen=True)
class Append:
    """Append the rows that the step's commit names: emitted rows to the changelog, bad records to the quarantine.

    Args:
        actions: Actions of the quarantine's log: bad records added from staged files, and records removed.
        removed: Records removed from the quarantine, by reason: replayed, erased, dropped, max_age, max_bytes.
    """

    __pydantic_config__ = _CLOSED

    actions: tuple[dict[str, Any], ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    do: Literal["append"] = field(default="append", kw_only=True)


@dataclass(frozen=True)
class Restore:
    """Go back to an earlier version.

    Args:
        version: The table's version.
        changes_rows: The rows change; otherwise only their storage changes.
    """

    __pydantic_config__ = _CLOSED

    version: int
    changes_rows: bool
    do: Literal["restore"] = field(default="restore", kw_only=True)


@dataclass(frozen=True)
class RestoreAndApply:
    """Restore a version that the pipeline wrote and apply the change sets of later steps again, in one commit.

    Args:
        version: The table's version; None: begin without rows.
        first_step: The first step that is applied again.
        last_step: The last step that is applied again; less than `first_step` if there is none.
    """

    __pydantic_config__ = _CLOSED

    version: int | None
    first_step: int
    last_step: int
    do: Literal["restore_and_apply"] = field(default="restore_and_apply", kw_only=True)


@dataclass(frozen=True)
class Replace:
    """Take all rows of the same table under another root.

    Args:
        incarnation: The incarnation of the pipeline there.
        version: Version of that table; None if it does not exist: no rows remain.
    """

    __pydantic_config__ = _CLOSED

    incarnation: str
    version: int | None
    do: Literal["replace"] = field(default="replace", kw_only=True)


@dataclass(frozen=True)
class Alter:
    """Change the columns and keep each row.

    Args:
        change: The change.
        columns_before: The user's columns before it, as DDL.
    """

    __pydantic_config__ = _CLOSED

    change: SchemaChange
    columns_before: str
    do: Literal["alter"] = field(default="alter", kw_only=True)


@dataclass(frozen=True)
class Clear:
    """Delete all rows, and take the spec's columns."""

    __pydantic_config__ = _CLOSED

    do: Literal["clear"] = field(default="clear", kw_only=True)


@dataclass(frozen=True)
class Rewrite:
    """Replace all rows by those that the state shows; of a further output, by those of the sink.

    Args:
        alters: The columns may have changed too.
        overwrites: Rewrite all rows, since the present ones cannot be read.
    """

    __pydantic_config__ = _CLOSED

    alters: bool = False
    overwrites: bool = False
    do: Literal["rewrite"] = field(default="rewrite", kw_only=True)


@dataclass(frozen=True)
class Erase:
    """Rewrite the files that hold rows of erased keys, without these rows.

    Args:
        erasures: Name of the file of the pipeline's ledger of erasures that lists the keys, as salted hashes.
    """

    __pydantic_config__ = _CLOSED

    erasures: str
    do: Literal["erase"] = field(default="erase", kw_only=True)


Action = Apply | Append | Restore | RestoreAndApply | Replace | Alter | Clear | Rewrite | Erase
StoredAction = Annotated[Action, Field(discriminator="do")]


class Source(StrEnum):
    """The step's effect on the position in the source.

    Values:
        KEEP: The position stays.
        ADVANCE: The step reads on from it.
        BEGIN: The next step reads from the position that this one names.
    """

    KEEP = "keep"
    ADVANCE = "advance"
    BEGIN = "begin"


class Decision(Facts):
    """The actions of a step on the outputs and on the source.

    Attributes:
        OWN_OUTPUTS: The outputs that are Delta tables of the pipeline: a step writes each after the state, in a separate commit.
    """

    OWN_OUTPUTS: ClassVar[tuple[str, ...]] = ("sink", "changelog", "quarantine")

    tables: Mapping[str, StoredAction] = Field(
        default_factory=dict, description="Name of a table to its action, in the order in which they are performed."
    )
    source: Source = Field(default=Source.KEEP, description="Effect on the position in the source.")
    counts: dict[str, int] = Field(default_factory=dict, description="Counts of the decision by name, without zeros.")
    accepts_sink: int | None = Field(
        default=None, description="Version of the sink that is accepted, including commits of other clients."
    )

    @property
    def reads_source(self) -> bool:
        """Return whether the step reads on in the source."""
        return self.source is Source.ADVANCE

    @property
    def begins(self) -> bool:
        """Return whether the source is read from a position other than the end of the last batch."""
        return self.source is Source.BEGIN

    @property
    def is_reset(self) -> bool:
        """Return whether all tables are emptied, and the source is read again."""
        return self.begins and self._has(Clear)

    @property
    def is_rewind(self) -> bool:
        """Return whether all tables go back to an earlier step and the source is read again from there."""
        return self.begins and self._has(Restore)

    def _has(self, kind: type[Action]) -> bool:
        """Return whether some table has an action of a kind."""
        return any(isinstance(action, kind) for action in self.tables.values())

    @property
    def is_repair(self) -> bool:
        """Return whether the sink is rebuilt from the state, which does not change."""
        match self.tables.get("sink"):
            case RestoreAndApply() | Rewrite(alters=False):
                return True
            case _:
                return False

    @property
    def swapped(self) -> str | None:
        """The incarnation whose tables take the place of these; None if none do."""
        # All tables are replaced by the tables of one pipeline: the first action names it.
        for action in self.tables.values():
            if isinstance(action, Replace):
                return action.incarnation
        return None

    @property
    def bad_rows(self) -> tuple[dict[str, Any], ...]:
        """Actions of the quarantine's log: bad records added, and records removed."""
        action = self.tables.get("quarantine")
        return action.actions if isinstance(action, Append) else ()

    @property
    def removed(self) -> Mapping[str, int]:
        """Records removed from the quarantine, by reason."""
        action = self.tables.get("quarantine")
        return action.removed if isinstance(action, Append) else {}

    @property
    def changes_columns(self) -> bool:
        """Return whether sink and changelog may have other columns after the step than before it."""
        return any(_changes_columns(action) for action in self.tables.values())

    @property
    def ends_window(self) -> bool:
        """Return whether checks start after this step: it changes rows without a change in the source, or accepts rows."""
        return not self.is_by_changes or self.accepts_sink is not None

    @property
    def is_acknowledgement(self) -> bool:
        """Return whether the sink was accepted as it is. A repair accepts it, too, but rewrites other tables."""
        return self.accepts_sink is not None and self.is_by_changes

    @property
    def settles_input(self) -> bool:
        """Return whether checks of what the input did start after this step.

        An acknowledgement, a rewind, a migration and a refresh settle it. A repair does not: it brings tables to what the state
        shows, and the state keeps what the input did to it.
        """
        actions = [self.tables.get(name) for name in ("state", "sink")]
        is_by_changes = all(action is None or isinstance(action, Apply | Append) for action in actions)
        return self.is_acknowledgement or not (is_by_changes or self.is_repair)

    @property
    def is_by_changes(self) -> bool:
        """Return whether every action applies or appends the step's own rows."""
        return all(isinstance(action, Apply | Append) for action in self.tables.values())


def _changes_columns(action: Action) -> bool:
    match action:
        case Alter() | Rewrite(alters=True):
            return True
        case Restore():
            # A restore that keeps the rows undoes a change of how they are stored, columns included.
            return not action.changes_rows
        case _:
            return False
