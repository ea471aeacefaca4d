"""The traits of kinds of pipelines. Code outside this room asks for traits, not for the kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.changelog import RowKind
from ebbtide.formats import PositionField
from ebbtide.keyed_state import StateTtlConfig
from ebbtide.spec._parts import SpecPart


class Traits(SpecPart):
    """Default traits; each kind overrides those that differ."""

    @property
    def is_view(self) -> bool:
        """Return whether its rows are those of a query over tables, so that it reads no changelog."""
        return False

    @property
    def tables_read(self) -> tuple[str, ...]:
        """The pipelines whose sinks it reads, in place of a changelog."""
        return ()

    @property
    def sql(self) -> str:
        """The query that computes its rows; empty without one."""
        return ""

    @property
    def filter_columns(self) -> list[str]:
        """The source's columns that decide which rows the sink shows."""
        return []

    @property
    def sequence(self) -> tuple[str, ...]:
        """The columns that order changes; none: they apply in order of arrival."""
        return ()

    @property
    def applies_in_order(self) -> bool:
        """Return whether changes apply in order of arrival: a record that is read twice applies twice."""
        return not self.sequence

    @property
    def positions(self) -> tuple[PositionField, ...]:
        """Fields of the records' envelope that order changes; none if columns do, or in order of arrival."""
        return ()

    @property
    def ttls(self) -> Mapping[str | None, StateTtlConfig]:
        """Name of a state, None for the only one, to its time to live; of those that expire."""
        return {}

    @property
    def expires_live(self) -> bool:
        """Return whether entries of live rows expire too; the sink's row then replaces the entry."""
        return False

    @property
    def selects_changes(self) -> bool:
        """Return whether a transform applies to each change before the decision."""
        return False

    @property
    def selects_rows(self) -> bool:
        """Return whether a transform applies to each decided row."""
        return False

    @property
    def knows_keys(self) -> bool:
        """Return whether the state knows which keys of the source have a row."""
        return False

    @property
    def emits_every(self) -> bool:
        """Return whether what each record emits is appended to a changelog table."""
        return False

    @property
    def leaves_orphans(self) -> bool:
        """Return whether the sink may keep rows that the state forgets."""
        return False

    @property
    def kinds_taken(self) -> frozenset[RowKind]:
        """Kinds of changes that are not skipped."""
        return frozenset(RowKind)

    @property
    def takes_truncate(self) -> bool:
        """Return whether a TRUNCATE can be applied."""
        return True

    @property
    def retracts(self) -> bool:
        """Return whether an update must come as a retraction and an addition."""
        return False

    @property
    def migrates(self) -> frozenset[str]:
        """Parts of `identity` that a migration can change."""
        return frozenset({"ttl"})

    @classmethod
    def imports(cls, attributes: Mapping[str, Any]) -> bool:
        """Return whether a spec names functions of its project."""
        return False
