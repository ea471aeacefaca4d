"""What a session that writes may have Spark do: one rule keeps every command from the tables that pipelines own.

A command may name no such table outside of the queries that it reads from. So each name, and each text that could be a path, is
looked at, wherever it stands in the plan: Spark and Delta have some hundred commands, and a list of those that write is never whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ebbtide.sql.judging.names import CALLING_JAVA, READING_FILES, Owned, calls_in, table_of
from ebbtide.sql.judging.plans import Node
from ebbtide.sql.judging.reading import (
    BY_PATH,
    EXPLAIN,
    IDENTIFIERS,
    LISTINGS,
    QUERIES,
    Fault,
    Reading,
    function_fault,
    in_words,
    path_fault,
)

READ_IN = frozenset(
    {
        ("InsertIntoStatement", "query"),
        ("AppendData", "query"),
        ("OverwriteByExpression", "query"),
        ("OverwritePartitionsDynamic", "query"),
        ("MergeIntoTable", "sourceTable"),
        ("CreateViewCommand", "plan"),
        ("CreateView", "query"),
        ("CreateTableAsSelect", "query"),
        ("ReplaceTableAsSelect", "query"),
        ("CacheTableAsSelect", "plan"),
        ("InsertIntoDir", "child"),
        ("SetVariable", "sourceQuery"),
    }
)
"""Commands, each with its field that holds the query that it reads from. A table there is read."""
AROUND_NAMES = frozenset(
    {"RelationTimeTravel", "SubqueryAlias", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases"}
)
"""Plans of queries that stand around the name of a command's table too: `MERGE INTO t AS a`."""
READERS = frozenset({"CacheTable", "UncacheTable", "RefreshTable"})
"""Commands that name tables and change none."""
CHANGING_ROWS = frozenset(
    {"InsertIntoStatement", "AppendData", "OverwriteByExpression", "DeleteFromTable", "UpdateTable", "MergeIntoTable"}
)
"""Commands whose target may be a view, by which they change the table below it. Their conditions hold data, not paths."""
ON_VIEWS = frozenset(
    {
        "AlterViewAs",
        "CreateTempViewUsing",
        "CreateView",
        "CreateViewCommand",
        "DropTempView",
        "DropView",
        "RenameTable",
        "SetViewProperties",
        "UnsetViewProperties",
    }
)
"""Commands that change a view itself."""
EXECUTE = "UnresolvedExecuteImmediate"
SETTING = frozenset({"SetCommand", "ResetCommand"})
TIME_ZONE = "spark.sql.session.timeZone"
PROGRAMS = frozenset({"ScriptTransformation"})
OF_JAVA = frozenset(
    {
        "AddJarsCommand",
        "AddFilesCommand",
        "AddArchivesCommand",
        "AddJarCommand",
        "AddFileCommand",
        "CreateFunction",
        "CreateFunctionCommand",
        "Call",
    }
)
"""Commands that give Java code to Spark, or call it."""
OF_FOLDERS = BY_PATH | {"InsertIntoDir", "LoadData", "ConvertToDeltaCommand", "RefreshResource"}
"""Commands, and parts of them, that name a folder."""
LOCATIONS = ("location", "path")
"""What the names of fields that hold a folder have in them."""
PATH_OPTIONS = frozenset({"path", "paths", "location", "checkpointlocation"})
"""Options that hold a folder."""
_JAVA_IN_TEXT = re.compile(r"\b(try_reflect|reflect|java_method|identifier)\b", re.IGNORECASE)
FUNCTIONS = frozenset({"CreateUserDefinedFunction", "CreateSQLFunctionCommand"})
"""Commands that hold the body of a function in SQL as a text."""
MOST_NESTED = 20
"""EXECUTE IMMEDIATE within EXECUTE IMMEDIATE."""


@dataclass(frozen=True)
class Target:
    """What the catalog of Spark has of a name.

    Args:
        is_view: Whether it is a view.
        location: Folder of its files, if it is a table that has one.
    """

    is_view: bool
    location: str | None = None


@dataclass(frozen=True)
class OwnedFault:
    """A command that would change what a pipeline owns.

    Args:
        owned: The table or the folder.
        command: The command, in words.
    """

    owned: str
    command: str


@dataclass(frozen=True)
class Writing:
    """Judges plans of a session that writes.

    Args:
        reading: What its queries may do.
        owned: What pipelines own.
        target: Looks a name up in Spark's catalog; None: there is nothing of this name.
    """

    reading: Reading
    owned: Owned
    target: Callable[[list[str]], Target | None]

    def fault(self, plan: Node) -> Fault | OwnedFault | None:
        """Return why a plan is refused; None: it is allowed."""
        return next(self._faults(plan, 0), None)

    def _faults(self, plan: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        yield from self._faults_of_programs(plan)
        if not self.reading.rights.folders:
            yield from self._faults_of_folders(plan)
        for node, is_root in _each(plan):
            if node.name == EXECUTE:
                yield from self._faults_of_text(node, depth)
            elif node.name in SETTING and not (is_root and _is_time_zone(node)):
                yield Fault(f"{in_words(node)} in a statement of Spark", "SET and RESET as statements of their own")
            elif node.name in FUNCTIONS:
                yield from self._faults_of_body(node, depth)
        yield from self._faults_of_targets(plan)

    def _faults_of_programs(self, plan: Node) -> Iterator[Fault]:
        if self.reading.rights.programs:
            return
        for node in plan.nodes():
            if node.name in PROGRAMS | OF_JAVA:
                yield Fault(in_words(node), "statements without programs and Java classes")
        for _, parts in calls_in(plan):
            if parts[-1] in CALLING_JAVA:
                yield function_fault(parts[-1])
        for command, _, _, value in _held(plan):
            found = _JAVA_IN_TEXT.search(value) if isinstance(value, str) else None
            if found is not None:  # constraints and defaults are kept as texts, and evaluated later
                yield Fault(f"{found[0]} in {in_words(command)}", "expressions without calls of Java")

    def _faults_of_folders(self, plan: Node) -> Iterator[Fault]:
        yield from self.reading.faults_of_reach(plan)
        for _, parts in calls_in(plan):
            if parts[-1] in READING_FILES:
                yield function_fault(parts[-1])
        for node in plan.nodes():
            if node.name in OF_FOLDERS:
                yield path_fault(in_words(node))
            for name, value in node.below():
                is_location = isinstance(value, str) and _is_location(name)
                if is_location or _is_path_option(value):
                    yield path_fault(f"{name} of {in_words(node)}" if is_location else "the option path")

    def _faults_of_text(self, node: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        """Judge the statement in EXECUTE IMMEDIATE 'text'."""
        text = node.fields["sqlStmtStr"]
        value = text.fields.get("value") if text.name == "Literal" else None
        if not isinstance(value, str):
            yield Fault("EXECUTE IMMEDIATE of no literal", "EXECUTE IMMEDIATE 'statement', whose text can be judged")
        elif depth >= MOST_NESTED:
            yield Fault("EXECUTE IMMEDIATE within EXECUTE IMMEDIATE", f"{MOST_NESTED} times")
        else:
            inner = self.reading.parser.plan(value)
            if inner.name in SETTING:
                yield Fault(in_words(inner), "SET and RESET as statements of their own")
            yield from self._faults(inner, depth + 1)

    def _faults_of_body(self, node: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        """Judge what CREATE FUNCTION .. RETURN has as a text."""
        expression, query = node.fields["exprText"], node.fields["queryText"]
        if expression is not None:
            yield from self._faults(self.reading.parser.plan(f"SELECT ({expression})"), depth + 1)
        if query is not None:
            yield from self._faults(self.reading.parser.plan(query), depth + 1)

    def _faults_of_targets(self, plan: Node) -> Iterator[Fault | OwnedFault]:
        """Look at each name and path that a command holds outside of its queries."""
        for command, holder, field, value in _held(plan):
            if isinstance(value, Node):
                yield from self._faults_of_node(command, value)
            elif isinstance(value, str) and self._reaches(command, holder, field, value):
                yield _owned_fault(value, command)

    def _faults_of_node(self, command: Node, node: Node) -> Iterator[Fault | OwnedFault]:
        if node.name in IDENTIFIERS:
            yield Fault(f"IDENTIFIER(..) in {in_words(command)}", "names as they are, or IDENTIFIER('name')")
        parts = table_of(node)
        if parts is None:
            return
        name = parts[-1].lower().partition("$")[0].partition("@")[0]
        if name in self.owned.names and self.reading.databases.has(parts[:-1]):
            yield _owned_fault(name, command)
            return
        is_path = not self.reading.databases.has(parts[:-1])
        if is_path and self.owned.is_reached_from(parts[-1]):
            yield _owned_fault(parts[-1], command)
            return
        target = self.target(parts)
        if target is None:
            return
        if target.is_view and command.name not in ON_VIEWS:
            yield Fault(f"{in_words(command)} on the view '{parts[-1]}'", "the table itself")
        if target.location is not None and self.owned.has(target.location):
            yield _owned_fault(parts[-1], command)

    def _reaches(self, command: Node, holder: Node, field: str, text: str) -> bool:
        """Return whether a text in a command means a folder that is owned."""
        if holder.name == "Literal" and command.name in CHANGING_ROWS:
            return False  # a value of a row
        is_value = holder.name == "Tuple2" and str(holder.fields["_1"]).lower() not in PATH_OPTIONS
        names_folder = _is_location(field) or (holder.name == "Tuple2" and not is_value) or command.name in OF_FOLDERS
        if names_folder:
            return self.owned.is_reached_from(text)
        return "/" in text and self.owned.has(text)


def _each(plan: Node) -> Iterator[tuple[Node, bool]]:
    for node in plan.nodes():
        yield node, node is plan


def _held(plan: Node) -> Iterator[tuple[Node, Node, str, Any]]:
    """Yield what commands hold outside of their queries: the command, the node in which a value stands, its field, the value."""
    waiting: list[tuple[Node | None, Node]] = [(None, plan)]
    while waiting:
        command, node = waiting.pop()
        if node.is_plan:
            command = _command(command, node)
        for field, value in node.below():
            is_read = (node.name, field) in READ_IN and isinstance(value, Node)
            inner = None if is_read else command
            if inner is not None:
                yield inner, node, field, value
            if isinstance(value, Node):
                waiting.append((inner, value))


def _command(outer: Node | None, node: Node) -> Node | None:
    """Return the command that a plan is a part of: itself, the one around it, or none if it is a query's."""
    if node.name in QUERIES:
        return outer if node.name in AROUND_NAMES else None
    if node.name in LISTINGS | READERS or node.name == EXPLAIN:
        return None
    return node if outer is None or not _is_part(node) else outer


def _is_part(node: Node) -> bool:
    """Return whether a plan only names what its command is about."""
    is_named = table_of(node) is not None or node.name in IDENTIFIERS
    return is_named or node.name.startswith("Unresolved") or node.name == "TimeTravel"


def _is_location(field: str) -> bool:
    return any(word in field.lower() for word in LOCATIONS)


def _is_path_option(value: Any) -> bool:
    is_option = isinstance(value, Node) and value.name == "Tuple2"
    return is_option and str(value.fields["_1"]).lower() in PATH_OPTIONS


def _is_time_zone(node: Node) -> bool:
    setting = node.fields.get("kv")
    return isinstance(setting, Node) and setting.fields["_1"] == TIME_ZONE


def _owned_fault(name: str, command: Node) -> OwnedFault:
    return OwnedFault(name, in_words(command))
