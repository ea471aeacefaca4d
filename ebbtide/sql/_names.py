"""The catalog as one statement sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ebbtide.runtime import Plan
from ebbtide.sql._catalog import Entry, Filled, filled, queryable


@dataclass(frozen=True)
class Names:
    """The catalog for one statement: its files are read once.

    Args:
        root: Folder of all pipelines' tables.
        entries: Entries of the catalog, by name.
    """

    root: str
    entries: Mapping[str, Entry]

    def queryable(self) -> list[str]:
        """Return the names that a query may read; see `ebbtide.sql._catalog.queryable`."""
        return queryable(self.entries)

    def filled(self, name: str) -> Filled:
        """Return a table with its pipeline; see `ebbtide.sql._catalog.filled`."""
        return filled(self.entries, name)

    def plan(self, name: str) -> Plan:
        """Return the plan of a table's pipeline."""
        return Plan.under(self.root, self.filled(name).spec)
