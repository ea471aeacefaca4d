"""Judges plans that only read, by an allowlist of the nodes of plans: every other node is refused by name.

The names in a plan (tables, functions, owned folders) are found here too; the rules for writes use them.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import PurePosixPath
from urllib.parse import unquote

from ebbtide.expressions import Call, Fault, Node, Parser
from ebbtide.sql._catalog import Catalog
from ebbtide.sql._settings import Rights

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
"""Qualifiers of tables in every session."""


@dataclass(frozen=True)
class Databases:
    """Qualifiers of tables.

    Args:
        names: Returns the databases of Spark's own catalog.
        catalogs: Further catalogs in the settings.
    """

    names: Callable[[], Collection[str]] = tuple
    catalogs: Collection[str] = ()

    def has(self, qualifier: Sequence[str]) -> bool:
        """Return whether a qualifier names a database; before a path it names a format."""
        parts = tuple(part.lower() for part in qualifier)
        if not parts or parts in OWN_DATABASES:
            return True
        if parts[0] in self.catalogs:
            return True
        *catalog, database = parts
        return catalog in ([], ["spark_catalog"]) and database in self.names()


def table_of(node: Node) -> list[str] | None:
    """Return the parts of a table's name if a node names one."""
    if node.name in OF_TABLES:
        parts = node.fields.get("multipartIdentifier") or node.fields["nameParts"]
        return list(parts)
    if node.name == "TableIdentifier":
        return node.given_parts("table")
    return None


def tables_in(node: Node) -> Iterator[tuple[Node, list[str]]]:
    """Yield the nodes at and below a node that name tables, each with the name."""
    for below in node.nodes():
        parts = table_of(below)
        if parts is not None:
            yield below, parts


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_OF_S3 = ("s3a", "s3n")
"""Schemes of Hadoop with the meaning of `s3:`."""
_GLOB = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Owned:
    """The names and folders that belong to pipelines.

    Args:
        names: Names of the pipelines.
        folders: Roots of all catalogs, resolved: every table of a pipeline is below its root.
    """

    names: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, catalogs: Iterable[Catalog]) -> Owned:
        """Return the names and folders of the pipelines of catalogs."""
        names: set[str] = set()
        folders: set[str] = set()
        for catalog in catalogs:
            folders |= resolved(catalog.root)
            names |= catalog.pipelines().keys()
        return cls(frozenset(names), frozenset(folders))

    def has(self, path: str) -> bool:
        """Return whether a path is an owned folder, or in one."""
        pairs = product(resolved(path), self.folders)
        return any(_is_in(place, folder) for place, folder in pairs)

    def is_reached_from(self, path: str) -> bool:
        """Return whether a path is an owned folder, in one, or above one, so that its deletion deletes owned tables."""
        pairs = product(resolved(path), self.folders)
        return self.has(path) or any(_is_in(folder, place) for place, folder in pairs)


def resolved(path: str) -> set[str]:
    """Return the possible meanings of a path, absolute, without links and `..`; for a pattern the folder before it.

    There may be two, since Spark takes paths, in which `%` is a character, and URIs, in which it begins an escape.

    Example:
        >>> sorted(resolved("FILE:///a/b/../c")), sorted(resolved("s3a://bucket//a/"))
        (['/a/c'], ['s3://bucket/a'])
    """
    return {_resolved(text) for text in (path, unquote(path))}


def _resolved(path: str) -> str:
    # A pattern may match anything in its folder, so the folder before the first pattern character is checked instead.
    # Links and `..` are resolved before paths are compared, or a path could reach an owned folder under another name.
    scheme, rest = _split(path)
    *before, _ = [*_GLOB.split(rest, maxsplit=1), ""]
    has_pattern = len(before) > 1
    plain = posixpath.dirname(before[0]) if has_pattern else rest
    if scheme in ("", "file"):
        return os.path.realpath(plain)
    bucket_and_key = posixpath.normpath(plain.lstrip("/"))
    return f"{scheme}://{bucket_and_key}"


def _split(path: str) -> tuple[str, str]:
    """Return the scheme in its canonical spelling, and the rest; for a local file its path."""
    found = _SCHEME.match(path)
    if found is None:
        return "", path
    scheme = found[1].lower()
    rest = path[found.end() :]
    if scheme == "file":
        is_with_host = rest.startswith("//")
        return "file", "/" + rest[2:].partition("/")[2] if is_with_host else rest
    return ("s3" if scheme in _OF_S3 else scheme), rest


def _is_in(place: str, folder: str) -> bool:
    return place == folder or PurePosixPath(place).is_relative_to(folder)


QUERIES = frozenset(
    [
        "Aggregate",
        "AsOfJoin",
        "Distinct",
        "Except",
        "Filter",
        "Generate",
        "GlobalLimit",
        "Intersect",
        "Join",
        "LateralJoin",
        "LocalLimit",
        "LocalRelation",
        "NamedStreamingRelation",
        "Offset",
        "OneRowRelation",
        "PipeOperator",
        "Pivot",
        "Project",
        "Range",
        "RelationTimeTravel",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
        "Union",
        "Unpivot",
        "UnresolvedHaving",
        "UnresolvedHint",
        "UnresolvedInlineTable",
        "UnresolvedQualify",
        "UnresolvedRelation",
        "UnresolvedSubqueryColumnAliases",
        "UnresolvedTVFAliases",
        "UnresolvedTableValuedFunction",
        "UnresolvedWith",
        "Window",
        "WithWindowDefinition",
    ]
)
"""Plans of queries, which only return rows."""
LISTINGS = frozenset(
    [
        "DescribeColumn",
        "DescribeDeltaDetailCommand",
        "DescribeDeltaHistory",
        "DescribeFunction",
        "DescribeNamespace",
        "DescribeProcedureCommand",
        "DescribeQueryCommand",
        "DescribeRelation",
        "DescribeRelationJsonCommand",
        "ShowCatalogsCommand",
        "ShowCollationsCommand",
        "ShowColumns",
        "ShowCreateTable",
        "ShowCurrentNamespaceCommand",
        "ShowFunctions",
        "ShowNamespacesCommand",
        "ShowPartitions",
        "ShowProceduresCommand",
        "ShowTableProperties",
        "ShowTables",
        "ShowTablesExtended",
        "ShowViews",
    ]
)
"""Plans of SHOW and DESCRIBE."""
LISTED = frozenset(
    [
        "CurrentNamespace",
        "UnresolvedFunctionName",
        "UnresolvedIdentifier",
        "UnresolvedNamespace",
        "UnresolvedProcedure",
        "UnresolvedTable",
        "UnresolvedTableOrView",
        "UnresolvedView",
    ]
)
"""Plans for the names in SHOW and DESCRIBE."""
EXPLAIN = "ExplainCommand"
BY_PATH = frozenset(
    {"UnresolvedPathBasedTable", "UnresolvedPathBasedDeltaTable", "UnresolvedPathBasedDeltaTableRelation"}
)
"""Plans of tables that are named by a path in quotes."""
EXPRESSIONS = (f"{Node.CATALYST}expressions.", f"{Node.CATALYST}analysis.")
"""Packages of the expressions that Spark's parser makes; calls of functions are judged by name."""
IDENTIFIERS = frozenset({"ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier"})
"""Nodes of IDENTIFIER(..) with a text that is known only when the statement is executed."""
OPTIONS = frozenset(
    [
        "endingtimestamp",
        "endingversion",
        "readchangefeed",
        "startingtimestamp",
        "startingversion",
        "timestampasof",
        "versionasof",
    ]
)
"""Options of a table in WITH (..) that are allowed; another may change which files are read."""


@dataclass(frozen=True)
class Reading:
    """Judges plans that only read.

    Args:
        parser: Reads the names in arguments of functions.
        rights: Rights of the session.
        databases: Qualifiers of tables.
        declared: Functions that the catalog declares.
    """

    parser: Parser
    rights: Rights
    databases: Databases
    declared: frozenset[str]

    def fault(self, plan: Node) -> Fault | None:
        """Return the first reason to refuse a plan; None: it is allowed."""
        return next(self._faults(plan), None)

    def _faults(self, plan: Node) -> Iterator[Fault]:
        root = plan
        while root.name == EXPLAIN:
            root = root.fields["logicalPlan"]
        if root is not plan and root.name not in QUERIES:
            yield Fault(f"EXPLAIN of {in_words(root)}", "EXPLAIN of a query")
        allowed = QUERIES | BY_PATH | IDENTIFIERS  # the latter two are judged by what they reach
        is_listing = root.name in LISTINGS
        if is_listing:
            allowed |= LISTED
        for node in root.nodes():
            is_root_of_listing = is_listing and node is root
            is_expression = node.is_tree and not node.is_plan
            if node.is_plan and node.name not in allowed and not is_root_of_listing:
                yield Fault(in_words(node), "SELECT, SHOW, DESCRIBE, EXPLAIN of a query")
            if is_expression and not node.type.startswith(EXPRESSIONS):
                yield Fault(in_words(node), "expressions that are known to be safe")
        yield from self.faults_of_reach(root)
        for call in Call.all_in(root):
            fault = self._fault_of_call(call)
            if fault is not None:
                yield fault

    def faults_of_reach(self, plan: Node) -> Iterator[Fault]:
        """Yield the reasons to refuse the reads of any plan: files, and names that are known only when it is executed."""
        for node in plan.nodes():
            if node.name in IDENTIFIERS:
                yield Fault(
                    "IDENTIFIER(..) of more than one literal",
                    "names as they are, or IDENTIFIER('name')",
                )
            if node.name in BY_PATH and not self.rights.folders:
                yield path_fault(str(node.fields["path"]))
            if node.name == "UnresolvedRelation":
                yield from _faults_of_options(node)
        if not self.rights.folders:
            for _, parts in tables_in(plan):
                if not self.databases.has(parts[:-1]):
                    yield path_fault(".".join(parts))

    def _fault_of_call(self, call: Call) -> Fault | None:
        """Return the reason to refuse a call of a function."""
        if call.is_of_table:
            return self._fault_of_table_function(call)
        if not call.is_built_in or not (call.name in self.declared or call.is_listed):
            return call.refusal()
        return None if self.rights.folders else call.option_fault()

    def _fault_of_table_function(self, call: Call) -> Fault | None:
        if call.name == "table_changes_by_path" and self.rights.folders:
            return None
        if call.is_built_in and call.name in self.declared:
            return None
        if not call.is_listed:
            return call.refusal()
        if call.name != "table_changes" or self.rights.folders:
            return None
        table = call.node.fields["functionArgs"][0]
        text = table.fields.get("value") if table.name == "Literal" else None
        if not isinstance(text, str):
            return Fault("table_changes of no literal", "table_changes('table', version)")
        parts = self.parser.name_parts(text)
        return None if self.databases.has(parts[:-1]) else path_fault(text)


def path_fault(path: str) -> Fault:
    """Return the reason to refuse a path."""
    return Fault(path, "tables by name; paths where the gateway was started with --folders")


def in_words(node: Node) -> str:
    """Return the class of a node as words: `DropTable` is DROP TABLE.

    Example:
        >>> in_words(Node("org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable", {}))
        'DELETE FROM TABLE'
    """
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in node.name)
    return spaced.removesuffix(" Command").strip().upper()


def _faults_of_options(relation: Node) -> Iterator[Fault]:
    allowed = ", ".join(sorted(OPTIONS))
    for option in relation.fields["options"]:
        name = option.fields["_1"]
        is_of_parser = name.startswith("__required")
        if name.lower() not in OPTIONS and not is_of_parser:
            yield Fault(f"the option '{name}'", allowed)
