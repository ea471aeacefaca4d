"""The one gate before Spark: every text that a session has it execute is judged here first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from ebbtide.errors import GatewayError, SqlError
from ebbtide.sql.catalog import Catalog, DeclaredKind
from ebbtide.sql.judging.names import Databases, Owned, Rights
from ebbtide.sql.judging.plans import Node, Parser
from ebbtide.sql.judging.reading import Fault, Reading, readable_functions
from ebbtide.sql.judging.writing import Target, Writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBSTITUTION = "spark.sql.variable.substitute"
"""Whether Spark puts variables of the environment and settings in the place of `${env:NAME}`."""
ON_FILES = "spark.sql.runSQLOnFiles"
"""Whether Spark takes ``text.`/a/path` `` for a table."""
MOST_KEPT = 1_000
"""Texts that are known to be allowed: a query that emits changes is executed at each step."""


class Judge:
    """Judges the statements of one Spark session.

    Args:
        spark: The session.
        rights: Of its statements.
        catalogs: By name: what pipelines own is theirs.
        catalog: Gives the one in use.
    """

    def __init__(
        self,
        spark: SparkSession,
        rights: Rights,
        catalogs: Mapping[str, Catalog],
        catalog: Callable[[], Catalog],
    ) -> None:
        self._spark = spark
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
            text: As Spark is to execute it.

        Raises:
            GatewayError: the session only reads, or the statement reaches what its rights do not cover.
            SqlError: it would change what a pipeline owns.
            ParseException: Spark cannot read it.
        """
        if text in self._allowed:
            return
        try:
            plan = self._parser.plan(text)
        except RecursionError:
            raise SqlError.of("The statement is nested too deeply.", next_step="Divide it.") from None
        reading = self._reading()
        fault = reading.fault(plan)
        if fault is None:
            self._keep(text)
            return
        if not self._rights.writes:
            raise _refusal("This gateway only reads.", fault, "To write, use a gateway without --read-only.")
        self._judge_writing(reading, plan)

    def _keep(self, text: str) -> None:
        """Note a text that only reads: at the next step of a query that emits changes it need not be judged again."""
        if len(self._allowed) >= MOST_KEPT:
            self._allowed.clear()
        self._allowed.add(text)

    def judge_query(self, text: str) -> None:
        """Refuse what is not a query that only reads, whatever the session may write: a view's, for one.

        Raises:
            SqlError: it is none.
        """
        fault = self._reading().fault(self._parser.plan(text))
        if fault is not None:
            raise _refusal("The query does more than read.", fault, "Take that part out.")

    def judge_expressions(self, texts: Iterable[str]) -> None:
        """Refuse expressions over a row that a session which only reads could not have Spark evaluate: those of an INSERT INTO, which its job evaluates.

        Args:
            texts: As the job is to evaluate them.

        Raises:
            GatewayError: one calls a program, a Java method or an unknown function, or reads a file.
            ParseException: Spark cannot read one.
        """
        reading = self._reading()
        for text in texts:
            fault = reading.fault(self._parser.expression(text))
            if fault is not None:
                raise _refusal("The session may not fill a table by this query.", fault, "Take that part out.")

    def _judge_writing(self, reading: Reading, plan: Node) -> None:
        writing = Writing(reading, Owned.of(self._catalogs.values()), self._target)
        fault = writing.fault(plan)
        if fault is None:
            return
        if isinstance(fault, Fault):
            raise _refusal(
                "The session may not execute this statement.",
                fault,
                "docs/sql-gateway.md lists the rights of sessions.",
            )
        raise SqlError.of(
            f"'{fault.owned}' is kept by its pipeline; {fault.command} would make it wrong.",
            allowed="changes of its source",
            next_step="After a change by other means: 'ebbtide repair' or 'ebbtide acknowledge'.",
        )

    def _reading(self) -> Reading:
        declared = frozenset(self._catalog().declared(DeclaredKind.FUNCTION))
        functions = readable_functions(self._groups, declared)
        return Reading(self._parser, self._rights, self._databases(), functions)

    def _databases(self) -> Databases:
        return Databases(self._database_names, self._further_catalogs)

    def _database_names(self) -> set[str]:
        names = self._spark._jsparkSession.sessionState().catalog().listDatabases().iterator()
        found = set()
        while names.hasNext():
            found.add(str(names.next()).lower())
        return found

    @cached_property
    def _further_catalogs(self) -> set[str]:
        """Catalogs that the settings name, beside Spark's own."""
        prefix = "spark.sql.catalog."
        found = set()
        for key in self._spark.conf.getAll:
            if key.startswith(prefix):
                found.add(key.removeprefix(prefix).partition(".")[0].lower())
        return found - {"spark_catalog"}

    @cached_property
    def _groups(self) -> dict[str, str]:
        """Spark's built-in functions to their groups."""
        jvm: Any = self._spark._jvm
        registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        names = registry.listFunction().iterator()
        found = {}
        while names.hasNext():
            name = names.next()
            found[str(name.funcName())] = str(registry.lookupFunction(name).get().getGroup())
        return found

    def _target(self, parts: list[str]) -> Target | None:
        """Look a name up in Spark's own catalog."""
        session = self._spark._jsparkSession.sessionState()
        try:
            name = session.sqlParser().parseTableIdentifier(
                ".".join(f"`{part.replace('`', '``')}`" for part in parts[-2:])
            )
            table = session.catalog().getTempViewOrPermanentTableMetadata(name)
            if str(table.tableType().name()) == "VIEW":
                return Target(is_view=True)
            has_location = table.storage().locationUri().isDefined()
            return Target(is_view=False, location=str(table.location().toString()) if has_location else None)
        except Py4JJavaError:
            return None
        except Exception as error:
            if type(error).__module__.startswith("pyspark.errors"):
                return None  # there is no such table
            raise


def _refusal(what: str, fault: Fault, next_step: str) -> GatewayError:
    return GatewayError.of(what, got=fault.got, allowed=fault.allowed, next_step=next_step)
