"""The tables that a plan names, and whether a name is a path: ``delta.`/a/b` ``, ``text.`s3://b/c` ``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from ebbtide.sql.judging.plans import Node

OF_TABLES = frozenset(
    {
        "UnresolvedRelation",
        "UnresolvedTable",
        "UnresolvedTableOrView",
        "UnresolvedView",
        "UnresolvedIdentifier",
    }
)
"""Nodes of Spark's parser that name a table."""
OWN_DATABASES = (("default",), ("spark_catalog", "default"), ("session",), ("global_temp",))
"""Qualifiers that every session has."""


@dataclass(frozen=True)
class Databases:
    """What may stand before the name of a table.

    Args:
        names: Gives the databases of Spark's own catalog.
        catalogs: Further catalogs, as the settings name them.
    """

    names: Callable[[], Collection[str]] = tuple
    catalogs: Collection[str] = ()

    def has(self, qualifier: Sequence[str]) -> bool:
        """Return whether a qualifier is one of a database; that of a path is the name of a format."""
        parts = tuple(part.lower() for part in qualifier)
        if not parts or parts in OWN_DATABASES:
            return True
        if parts[0] in self.catalogs:
            return True
        *catalog, database = parts
        return catalog in ([], ["spark_catalog"]) and database in self.names()


def table_of(node: Node) -> list[str] | None:
    """Return the parts of the name of a table if a node names one."""
    if node.name in OF_TABLES:
        [parts] = [value for name, value in node.fields.items() if name in {"multipartIdentifier", "nameParts"}]
        return list(parts)
    if node.name == "TableIdentifier":
        given = (node.fields["catalog"], node.fields["database"], node.fields["table"])
        return [part for part in given if part is not None]
    return None


def tables_in(node: Node) -> Iterator[tuple[Node, list[str]]]:
    """Yield the nodes at and below one that name tables, with the names."""
    for each in node.nodes():
        parts = table_of(each)
        if parts is not None:
            yield each, parts
