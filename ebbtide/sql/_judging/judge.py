"""The one gate before Spark: every text that a session lets it execute is judged here first.

A session that writes has one rule: no command changes a table that a pipeline owns. So a command may name such a table only in the
queries that it reads from. Each name, and each text that could be a path, is checked, anywhere in the plan: Spark and
Delta have some hundred commands, and a list of those that write would never be complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ebbtide.errors import GatewayError, SqlError
from ebbtide.expressions import Call, Fault, Node, Parser
from ebbtide.sql._catalog import Catalog, DeclaredKind
from ebbtide.sql._judging.reading import (
    BY_PATH,
    EXPLAIN,
    IDENTIFIERS,
    LISTINGS,
    QUERIES,
    Databases,
    Owned,
    Reading,
    in_words,
    path_fault,
    table_of,
)
from ebbtide.sql._settings import Rights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
"""Commands, each with its field for the query that it reads from. A table in that field is read."""
AROUND_NAMES = frozenset(
    {"RelationTimeTravel", "SubqueryAlias", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases"}
)
"""Plans of queries that a command has around the name of its table too: `MERGE INTO t AS a`."""
READERS = frozenset({"CacheTable", "UncacheTable", "RefreshTable"})
"""Commands that name tables and change none."""
CHANGING_ROWS = frozenset(
    ["InsertIntoStatement", "AppendData", "OverwriteByExpression", "DeleteFromTable", "UpdateTable", "MergeIntoTable"]
)
"""Commands that change a table, also through a view. The texts in their conditions are data, not paths."""
ON_VIEWS = frozenset(
    [
        "AlterViewAs",
        "CreateTempViewUsing",
        "CreateView",
        "CreateViewCommand",
        "DropTempView",
        "DropView",
        "RenameTable",
        "SetViewProperties",
        "UnsetViewProperties",
    ]
)
"""Commands that change a view itself."""
EXECUTE = "UnresolvedExecuteImmediate"
SETTING = frozenset({"SetCommand", "ResetCommand"})
TIME_ZONE = "spark.sql.session.timeZone"
PROGRAMS = frozenset({"ScriptTransformation"})
OF_JAVA = frozenset(
    [
        "AddJarsCommand",
        "AddFilesCommand",
        "AddArchivesCommand",
        "AddJarCommand",
        "AddFileCommand",
        "CreateFunction",
        "CreateFunctionCommand",
        "Call",
    ]
)
"""Commands that add Java code to Spark, or call it."""
OF_FOLDERS = BY_PATH | {"InsertIntoDir", "LoadData", "ConvertToDeltaCommand", "RefreshResource"}
"""Commands, and parts of them, that name a folder."""
LOCATIONS = ("location", "path")
"""Parts of the names of fields that hold a folder."""
PATH_OPTIONS = frozenset({"path", "paths", "basepath", "location", "checkpointlocation"})
"""Options that hold a folder."""
PLACE_OPTIONS = PATH_OPTIONS | {
    "avroschemaurl",
    "descfilepath",
    "host",
    "kafka.bootstrap.servers",
    "rowvalidationxsdpath",
    "url",
}
"""Options of tables and views that name a folder, a file or a host."""
_JAVA_IN_TEXT = re.compile(rf"\b({'|'.join(sorted(Call.CALLING_JAVA))}|identifier)\b", re.IGNORECASE)
_PLACE_IN_TEXT = re.compile(rf"\b({'|'.join(sorted(Call.NAMING_PLACES))})\s*\(", re.IGNORECASE)
"""Calls that may name a place: in a text that is evaluated later their options are not seen."""
FUNCTIONS = frozenset({"CreateUserDefinedFunction", "CreateSQLFunctionCommand"})
"""Commands with the body of an SQL function as a text."""
MOST_NESTED = 20
"""Maximum depth of EXECUTE IMMEDIATE within EXECUTE IMMEDIATE."""


@dataclass(frozen=True)
class OwnedFault:
    """A command that would change a table of a pipeline.

    Args:
        owned: Table or folder of the pipeline.
        command: Command in words.
    """

    owned: str
    command: str


@dataclass(frozen=True)
class Writing:
    """Judges plans of a session that writes.

    Args:
        reading: Judges the queries of the session.
        owned: Names and folders of pipelines.
        parser: Looks names up in Spark's catalog.
    """

    reading: Reading
    owned: Owned
    parser: Parser

    def fault(self, plan: Node) -> Fault | OwnedFault | None:
        """Return the first reason to refuse a plan; None: it is allowed."""
        return next(self._faults(plan, 0), None)

    def _faults(self, plan: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        # Programs and folders are searched in the whole plan, queries included; tables of pipelines only outside of queries.
        yield from self._faults_of_programs(plan)
        if not self.reading.rights.folders:
            yield from self._faults_of_folders(plan)
        for node in plan.nodes():
            is_allowed_setting = node is plan and _is_time_zone(node)
            if node.name == EXECUTE:
                yield from self._faults_of_text(node, depth)
            elif node.name in SETTING and not is_allowed_setting:
                yield Fault(
                    f"{in_words(node)} in a statement of Spark",
                    "SET and RESET as separate statements",
                )
            elif node.name in FUNCTIONS:
                yield from self._faults_of_body(node, depth)
        yield from self._faults_of_targets(plan)

    def _faults_of_programs(self, plan: Node) -> Iterator[Fault]:
        if self.reading.rights.programs:
            return
        for node in plan.nodes():
            if node.name in PROGRAMS | OF_JAVA:
                yield Fault(in_words(node), "statements without programs and Java classes")
        for call in Call.all_in(plan):
            if call.calls_java:
                yield call.refusal()
        for command, _, _, value in _held(plan):
            found = _JAVA_IN_TEXT.search(value) if isinstance(value, str) else None
            if found is not None:  # constraints and defaults are stored as texts, and evaluated later
                yield Fault(
                    f"{found[0]} in {in_words(command)}",
                    "expressions without calls of Java",
                )

    def _faults_of_folders(self, plan: Node) -> Iterator[Fault]:
        yield from self.reading.faults_of_reach(plan)
        for call in Call.all_in(plan):
            fault = call.fault(self.reading.parser)
            if fault is not None and not call.calls_java:  # another right allows these
                yield fault
        for command, _, _, value in _held(plan):
            found = _PLACE_IN_TEXT.search(value) if isinstance(value, str) else None
            if found is not None and command.name not in CHANGING_ROWS:
                yield Fault(f"{found[1]}(..) in {in_words(command)}", "expressions without options")
        for node in plan.nodes():
            if node.name in OF_FOLDERS:
                yield path_fault(in_words(node))
            for name, value in node.below():
                if isinstance(value, str) and _is_location(name):
                    yield path_fault(f"{name} of {in_words(node)}")
                elif _option_in(value, PLACE_OPTIONS):
                    yield path_fault(f"the option {value.fields['_1']}")

    def _faults_of_text(self, node: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        """Judge the statement in EXECUTE IMMEDIATE 'text'."""
        text = node.fields["sqlStmtStr"]
        value = text.fields.get("value") if text.name == "Literal" else None
        if not isinstance(value, str):
            yield Fault(
                "EXECUTE IMMEDIATE of no literal",
                "EXECUTE IMMEDIATE 'statement', whose text can be judged",
            )
        elif depth >= MOST_NESTED:
            yield Fault("EXECUTE IMMEDIATE within EXECUTE IMMEDIATE", f"{MOST_NESTED} times")
        else:
            inner = self.reading.parser.plan(value)
            if inner.name in SETTING:
                yield Fault(in_words(inner), "SET and RESET as separate statements")
            yield from self._faults(inner, depth + 1)

    def _faults_of_body(self, node: Node, depth: int) -> Iterator[Fault | OwnedFault]:
        """Judge the body of CREATE FUNCTION .. RETURN, which the plan has as a text."""
        expression = node.fields["exprText"]
        query = node.fields["queryText"]
        texts = [] if query is None else [query]
        if expression is not None:
            texts.append(f"SELECT ({expression})")
        for text in texts:
            body = self.reading.parser.plan(text)
            yield from self._faults(body, depth + 1)

    def _faults_of_targets(self, plan: Node) -> Iterator[Fault | OwnedFault]:
        """Judge each name and path that a command has outside of its queries."""
        for command, holder, field, value in _held(plan):
            if isinstance(value, Node):
                yield from self._faults_of_node(command, value)
            elif isinstance(value, str) and self._reaches(command, holder, field, value):
                yield _owned_fault(value, command)

    def _faults_of_node(self, command: Node, node: Node) -> Iterator[Fault | OwnedFault]:
        if node.name in IDENTIFIERS:
            yield Fault(
                f"IDENTIFIER(..) in {in_words(command)}",
                "names as they are, or IDENTIFIER('name')",
            )
        parts = table_of(node)
        if parts is None:
            return
        # A name may reach a pipeline's table in three ways: as the path of a table, as the name of the pipeline (of which `$part` and
        # `@pin` are cut off), or as a table or view of Spark's catalog whose files lie in an owned folder.
        *qualifier, last = parts
        is_path = not self.reading.databases.has(qualifier)
        if is_path and self.owned.is_reached_from(last):
            yield _owned_fault(last, command)
            return
        before_part, _, _ = last.lower().partition("$")
        name, _, _ = before_part.partition("@")
        if name in self.owned.names and not is_path:
            yield _owned_fault(name, command)
            return
        target = self.parser.target(parts)
        if target is None:
            return
        if target.is_view and command.name not in ON_VIEWS:
            yield Fault(f"{in_words(command)} on the view '{last}'", "the table itself")
        if target.location is not None and self.owned.has(target.location):
            yield _owned_fault(last, command)

    def _reaches(
        self,
        command: Node,
        holder: Node,
        field: str,
        text: str,
    ) -> bool:
        """Return whether a text in a command means an owned folder."""
        is_value_of_row = holder.name == "Literal" and command.name in CHANGING_ROWS
        if is_value_of_row:
            return False
        # Where a folder is meant, one above the owned folder reaches it too. Any other text counts only if it looks like a path into one:
        # else a comment or a property with a `/` would be refused.
        names_folder = _is_location(field) or _option_in(holder, PATH_OPTIONS)
        if names_folder or command.name in OF_FOLDERS:
            return self.owned.is_reached_from(text)
        return "/" in text and self.owned.has(text)


def _held(plan: Node) -> Iterator[tuple[Node, Node, str, Any]]:
    """Yield the values that commands have outside of their queries.

    Yields:
        The command, the node with the value, the name of its field, and the value.
    """
    # Each node is visited with the command around it; below the field of a command that holds the query which it reads, there is none.
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
    """Return the command of a plan: itself, the one around it, or None for a part of a query."""
    if node.name in QUERIES:
        return outer if node.name in AROUND_NAMES else None
    only_reads = node.name in LISTINGS | READERS or node.name == EXPLAIN
    if only_reads:
        return None
    is_part_of_outer = outer is not None and _is_part(node)
    return outer if is_part_of_outer else node


def _is_part(node: Node) -> bool:
    """Return whether a plan only names the table or object of its command."""
    is_named = table_of(node) is not None or node.name in IDENTIFIERS
    return is_named or node.name.startswith("Unresolved") or node.name == "TimeTravel"


def _is_location(field: str) -> bool:
    return any(word in field.lower() for word in LOCATIONS)


def _option_in(value: Any, names: frozenset[str]) -> bool:
    is_option = isinstance(value, Node) and value.name == "Tuple2"
    return is_option and str(value.fields["_1"]).lower() in names


def _is_time_zone(node: Node) -> bool:
    setting = node.fields.get("kv")
    return isinstance(setting, Node) and setting.fields["_1"] == TIME_ZONE


def _owned_fault(name: str, command: Node) -> OwnedFault:
    return OwnedFault(name, in_words(command))


SUBSTITUTION = "spark.sql.variable.substitute"
"""Spark's setting: replace `${env:NAME}` in statements by variables of the environment and settings."""
ON_FILES = "spark.sql.runSQLOnFiles"
"""Spark's setting: read ``text.`/a/path` `` as a table."""
MOST_KEPT = 1_000
"""Maximum number of allowed texts that are remembered: a query that emits changes is executed at each step."""


class Judge:
    """Judges the statements of one Spark session.

    Args:
        spark: The session.
        rights: Rights of the session.
        catalogs: Catalogs by name, whose pipelines own tables.
        catalog: Returns the catalog in use.
    """

    def __init__(
        self,
        spark: SparkSession,
        rights: Rights,
        catalogs: Mapping[str, Catalog],
        catalog: Callable[[], Catalog],
    ) -> None:
        self._rights = rights
        self._catalogs = catalogs
        self._catalog = catalog
        self._parser = Parser(spark)
        self._allowed: set[str] = set()
        spark.conf.set(SUBSTITUTION, "false")
        if not rights.folders:
            spark.conf.set(ON_FILES, "false")

    def judge(self, text: str) -> None:
        """Refuse a statement that its session may not execute.

        Args:
            text: Text for Spark.

        Raises:
            GatewayError: the session only reads, or its rights do not cover the statement.
            SqlError: the statement would change a table of a pipeline.
            ParseException: Spark cannot read it.
        """
        if text in self._allowed:
            return
        try:
            plan = self._parser.plan(text)
        except RecursionError:
            raise SqlError.of(
                "The statement is nested too deeply.",
                next_step="Divide it.",
            ) from None
        reading = self._reading()
        fault = reading.fault(plan)
        if fault is None:
            self._keep(text)
            return
        if not self._rights.writes:
            raise _refusal(
                "This gateway only reads.",
                fault,
                "To write, use a gateway without --read-only.",
            )
        self._judge_writing(reading, plan)

    def _keep(self, text: str) -> None:
        """Remember a text that only reads, so that the next step of a query that emits changes need not judge it again."""
        if len(self._allowed) >= MOST_KEPT:
            self._allowed.clear()
        self._allowed.add(text)

    def judge_query(self, text: str) -> None:
        """Refuse a query that does more than read, for any rights of the session: a view's, for example.

        Raises:
            GatewayError: the query does.
        """
        plan = self._parser.plan(text)
        fault = self._reading().fault(plan)
        if fault is not None:
            raise _refusal("The query does more than read.", fault, "Take that part out.")

    def judge_expressions(self, texts: Iterable[str]) -> None:
        """Refuse expressions of an INSERT INTO that a read-only session may not evaluate: a job evaluates them for the session.

        Args:
            texts: Expressions over a row.

        Raises:
            GatewayError: one calls a program, a Java method or an unknown function, or reads a file.
            ParseException: Spark cannot read one.
        """
        reading = self._reading()
        for text in texts:
            fault = reading.fault(self._parser.expression(text))
            if fault is not None:
                raise _refusal(
                    "The session may not fill a table by this query.",
                    fault,
                    "Take that part out.",
                )

    def _judge_writing(self, reading: Reading, plan: Node) -> None:
        writing = Writing(reading, Owned.of(self._catalogs.values()), self._parser)
        fault = writing.fault(plan)
        if fault is None:
            return
        if isinstance(fault, Fault):
            raise _refusal(
                "The session may not execute this statement.",
                fault,
                "docs/reference/sql-gateway.md lists the rights of sessions.",
            )
        raise SqlError.of(
            f"'{fault.owned}' is kept by its pipeline; {fault.command} would make it wrong.",
            allowed="changes of its source",
            next_step="After a change by other means: 'ebbtide repair' or 'ebbtide acknowledge'.",
        )

    def _reading(self) -> Reading:
        parser = self._parser
        declared = self._catalog().declared(DeclaredKind.FUNCTION)
        databases = Databases(parser.databases, parser.catalogs)
        return Reading(parser, self._rights, databases, frozenset(declared))


def _refusal(what: str, fault: Fault, next_step: str) -> GatewayError:
    return GatewayError.of(what, got=fault.got, allowed=fault.allowed, next_step=next_step)
