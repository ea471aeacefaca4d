"""What the statements of a session in this process work on: catalogs, settings, jobs, and Spark, started when first needed."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ebbtide.sql import statements as ast
from ebbtide.sql.catalog import DEFAULT_CATALOG, Catalog
from ebbtide.sql.declare import register
from ebbtide.sql.jobs import Jobs
from ebbtide.sql.judging.names import Rights
from ebbtide.sql.operations import Output, RunningOperation
from ebbtide.sql.settings import SPARK, Settings
from ebbtide.sql.tokens import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.sql.judging.statements import Judge


class Workspace:
    """What the statements of a session work on: catalogs, settings, jobs, and Spark, which is started when first needed.

    Args:
        catalog: What names stand for.
        settings: What it begins with.
        further: Further catalogs, for USE, by name.
        catalog_name: Of `catalog`.
        start_spark: Gives a Spark session of its own. Default: one of this process's JVM, started if there is none.
        client: Name of the gateway's client that has it: jobs that it begins are recorded as that client's.
        rights: What its statements may do. Default: all but to change what pipelines own.
    """

    def __init__(
        self,
        catalog: Catalog,
        settings: Mapping[str, str],
        *,
        further: Mapping[str, Catalog] | None = None,
        catalog_name: str = DEFAULT_CATALOG,
        start_spark: Callable[[], SparkSession] | None = None,
        client: str = "",
        rights: Rights | None = None,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.catalog_name = catalog_name
        self.catalogs = {catalog_name: catalog, **(further or {})}
        self._settings = Settings(settings)
        self.client = client
        self._start_spark = start_spark or (lambda: new_spark_session(self.folder / "spark.log"))
        self.rights = rights or Rights()
        self._spark: SparkSession | None = None
        self._judge: Judge | None = None
        self._starting = threading.Lock()
        self._analysing = threading.Lock()
        self.folder = Path(tempfile.mkdtemp(prefix="ebbtide-sql-"))
        self.operations: dict[str, RunningOperation] = {}
        """Statements that are executed and not closed, by id."""

    @property
    def catalog(self) -> Catalog:
        """The catalog in use."""
        return self.catalogs[self.catalog_name]

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings, credentials masked."""
        return self._settings.shown()

    def spark(self) -> SparkSession:
        """Return its Spark session; started now if it was not."""
        from ebbtide.sql.judging.statements import Judge  # only once Spark is needed

        with self._starting:
            if self._spark is None:
                spark = self._start_spark()
                for key, value in self._settings.of_spark().items():
                    spark.conf.set(key, value)
                self._judge = Judge(spark, self.rights, self.catalogs, lambda: self.catalog)
                self._spark = spark
            return self._spark

    def judge(self) -> Judge:
        """Return what judges the statements that its Spark session is to execute."""
        self.spark()
        assert self._judge is not None  # noqa: S101 - made with the session
        return self._judge

    def interrupt(self, operation: str) -> None:
        """End what Spark does for an operation."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobsWithTag(operation)

    @property
    def jobs(self) -> Jobs:
        """The jobs below the root of the catalog in use."""
        return Jobs(self.catalog.root)

    def set(self, key: str, value: str) -> None:
        """Change a setting; Spark's also where Spark was started.

        Raises:
            SqlError: there is none of that name, or it does not take the value.
        """
        self._settings.set(key, value)
        if self._spark is not None and key.startswith(SPARK):
            self._spark.conf.set(key, value)

    def reset(self, key: str | None) -> None:
        """Bring a setting, or all, back to what the session began with.

        Raises:
            SqlError: there is none of that name.
        """
        before = self._settings.of_spark()
        self._settings.reset(key)
        now = self._settings.of_spark()
        if self._spark is None:
            return
        for gone in before.keys() - now.keys():
            self._spark.conf.unset(gone)
        for name, value in now.items():
            if before.get(name) != value:
                self._spark.conf.set(name, value)

    def query(self, asked: ast.Select | ast.SparkStatement, operation: str) -> Output:
        """Execute what Spark executes.

        Args:
            asked: The statement.
            operation: Id of what executes it.
        """
        from ebbtide.sql.query import Queries  # only once Spark is needed
        from ebbtide.sql.rows import Names

        spark = self.spark()
        spark.sparkContext.addJobTag(operation)  # the tags of Spark sessions are known to their threads alone
        # Each session has a pool: a large query of one does not hold up the others.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.id)
        names = Names(self.catalog.root, self.catalog.entries())
        admit = partial(self._admit, asked.statement)
        queries = Queries(spark, names, self._settings, self.folder / operation, admit, self._analysing)
        return queries.execute(asked)

    def _admit(self, statement: Statement, text: str) -> None:
        """Let a statement come to Spark, with the functions that it calls; these are imported only then.

        Args:
            statement: As it was written.
            text: As Spark is to execute it.
        """
        self.judge().judge(text)
        register(self.spark(), self.catalog, statement)


def new_spark_session(log_file: Path | None = None) -> SparkSession:
    """Return a Spark session of its own in this process's JVM; for queries of any kind, not for steps.

    Args:
        log_file: Takes what the JVM writes, if it is started here. Default: this process's output.
    """
    from ebbtide import build_session
    from ebbtide.runtime.session import sigint_kept

    settings = {
        "spark.driver.extraJavaOptions": "",
        "spark.sql.adaptive.enabled": "true",
        "spark.scheduler.mode": "FAIR",
    }
    with sigint_kept():
        return build_session("ebbtide-sql", settings, log_file).newSession()
