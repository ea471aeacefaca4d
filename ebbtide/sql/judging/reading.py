"""What a session may have Spark do that only reads: a list of the nodes of plans that are allowed, all others are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ebbtide.sql.judging.names import (
    BUILT_IN,
    CALLING_JAVA,
    OF_OTHER_SESSIONS,
    READING_FILES,
    REVIEWED_MISC,
    TABLE_FUNCTIONS,
    Databases,
    Rights,
    calls_in,
    tables_in,
)
from ebbtide.sql.judging.plans import CATALYST, Node, Parser

QUERIES = frozenset(
    {
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
    }
)
"""Plans of queries. None of them does anything but return rows."""
LISTINGS = frozenset(
    {
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
    }
)
"""SHOW and DESCRIBE."""
LISTED = frozenset(
    {
        "CurrentNamespace",
        "UnresolvedFunctionName",
        "UnresolvedIdentifier",
        "UnresolvedNamespace",
        "UnresolvedProcedure",
        "UnresolvedTable",
        "UnresolvedTableOrView",
        "UnresolvedView",
    }
)
"""What SHOW and DESCRIBE name."""
EXPLAIN = "ExplainCommand"
BY_PATH = frozenset(
    {"UnresolvedPathBasedTable", "UnresolvedPathBasedDeltaTable", "UnresolvedPathBasedDeltaTableRelation"}
)
"""Tables that are named by a path in quotes."""
EXPRESSIONS = (f"{CATALYST}expressions.", f"{CATALYST}analysis.")
"""Packages of the expressions that Spark's parser makes; it makes functions by name, see `functions`."""
IDENTIFIERS = frozenset({"ExpressionWithUnresolvedIdentifier", "PlanWithUnresolvedIdentifier"})
"""IDENTIFIER(..) of a text that is known only when the statement is executed."""
OPTIONS = frozenset(
    {
        "endingtimestamp",
        "endingversion",
        "readchangefeed",
        "startingtimestamp",
        "startingversion",
        "timestampasof",
        "versionasof",
    }
)
"""What may stand in WITH (..) behind a table. Another option may say what is read."""


@dataclass(frozen=True)
class Fault:
    """Why a statement is refused.

    Args:
        got: The part of it, in a few words.
        allowed: What may stand there.
    """

    got: str
    allowed: str


@dataclass(frozen=True)
class Reading:
    """Judges plans that only read.

    Args:
        parser: Reads the names in arguments of functions.
        rights: Of the session.
        databases: What may stand before the name of a table.
        functions: Built-in ones of Spark that are allowed, and those that the catalog declares.
    """

    parser: Parser
    rights: Rights
    databases: Databases
    functions: frozenset[str]

    def fault(self, plan: Node) -> Fault | None:
        """Return why a plan is refused; None: it is allowed."""
        return next(self._faults(plan), None)

    def _faults(self, plan: Node) -> Iterator[Fault]:
        root = plan
        while root.name == EXPLAIN:
            root = root.fields["logicalPlan"]
        if root is not plan and root.name not in QUERIES:
            yield Fault(f"EXPLAIN of {in_words(root)}", "EXPLAIN of a query")
        is_listing = root.name in LISTINGS
        allowed = QUERIES | LISTED if is_listing else QUERIES
        for node in root.nodes():
            is_known = node.name in allowed or (is_listing and node is root)
            if node.is_plan and not is_known and node.name not in BY_PATH | IDENTIFIERS:
                yield Fault(in_words(node), "SELECT, SHOW, DESCRIBE, EXPLAIN of a query")
            if node.is_tree and not node.is_plan and not node.type.startswith(EXPRESSIONS):
                yield Fault(in_words(node), "expressions that are known to be safe")
        yield from self.faults_of_reach(root)
        for node, parts in calls_in(root):
            fault = self._fault_of_call(node, parts)
            if fault is not None:
                yield fault

    def faults_of_reach(self, plan: Node) -> Iterator[Fault]:
        """Yield why a plan, of any kind, reads what a session may not: files, or what is known only when it is executed."""
        for node in plan.nodes():
            if node.name in IDENTIFIERS:
                yield Fault("IDENTIFIER(..) of more than one literal", "names as they are, or IDENTIFIER('name')")
            if node.name in BY_PATH and not self.rights.folders:
                yield path_fault(str(node.fields["path"]))
            if node.name == "UnresolvedRelation":
                yield from _faults_of_options(node)
        if not self.rights.folders:
            for _, parts in tables_in(plan):
                if not self.databases.has(parts[:-1]):
                    yield path_fault(".".join(parts))

    def _fault_of_call(self, node: Node, parts: list[str]) -> Fault | None:
        """Return why a call of a function is refused."""
        *qualifier, name = parts
        if node.name == "UnresolvedTableValuedFunction":
            return self._fault_of_table_function(node, name)
        if qualifier not in BUILT_IN or name not in self.functions:
            return function_fault(".".join(parts))
        return None

    def _fault_of_table_function(self, node: Node, name: str) -> Fault | None:
        if name == "table_changes_by_path" and self.rights.folders:
            return None
        if name not in TABLE_FUNCTIONS:
            return function_fault(name)
        if name != "table_changes" or self.rights.folders:
            return None
        table = node.fields["functionArgs"][0]
        text = table.fields.get("value") if table.name == "Literal" else None
        if not isinstance(text, str):
            return Fault("table_changes of no literal", "table_changes('table', version)")
        parts = self.parser.name_parts(text)
        return None if self.databases.has(parts[:-1]) else path_fault(text)


def readable_functions(groups: dict[str, str], declared: frozenset[str]) -> frozenset[str]:
    """Return the functions that a session which only reads may call.

    Args:
        groups: Spark's built-in functions to the group that Spark has them in.
        declared: Those of the catalog.
    """
    refused = CALLING_JAVA | READING_FILES | OF_OTHER_SESSIONS
    known = {name for name, group in groups.items() if group != "misc_funcs" or name in REVIEWED_MISC}
    return frozenset(known - refused) | declared


def function_fault(name: str) -> Fault:
    """Say that a function is not called here."""
    return Fault(
        f"{name}(..)", "Spark's built-in functions that compute values, and those that CREATE FUNCTION has declared"
    )


def path_fault(path: str) -> Fault:
    """Say that a path is not read here."""
    return Fault(path, "tables by name; paths where the gateway was started with --folders")


def in_words(node: Node) -> str:
    """Return a node's class as words: `DropTable` is DROP TABLE.

    Example:
        >>> in_words(Node("org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable", {}))
        'DELETE FROM TABLE'
    """
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in node.name)
    return spaced.removesuffix(" Command").strip().upper()


def _faults_of_options(relation: Node) -> Iterator[Fault]:
    for option in relation.fields["options"]:
        name = option.fields["_1"]
        if name.lower() not in OPTIONS and not name.startswith("__required"):
            yield Fault(f"the option '{name}'", ", ".join(sorted(OPTIONS)))
