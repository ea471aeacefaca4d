"""A session in this process: what the catalog's files say is answered at once, queries are Spark's, which is started when first needed."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial, singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.errors import SqlError
from ebbtide.spec.load import load
from ebbtide.sql import statements as ast
from ebbtide.sql.catalog import DEFAULT_CATALOG, Catalog, Filled, refuse_shared_tables, written
from ebbtide.sql.completion import completions
from ebbtide.sql.declaring import create_function, create_source, create_table, drop, kind_of
from ebbtide.sql.filling import plan_insert, write_filling
from ebbtide.sql.functions import register
from ebbtide.sql.jobs import Jobs, JobStatus
from ebbtide.sql.judging.rights import Rights
from ebbtide.sql.listing import catalogs, columns, describe, fits, show, show_create
from ebbtide.sql.operations import Listed, Output, RunningOperation, Whole
from ebbtide.sql.parsing import parse, parse_text
from ebbtide.sql.results import Result, ResultColumn, ResultKind, Row
from ebbtide.sql.session import Completion
from ebbtide.sql.settings import SPARK, Settings
from ebbtide.sql.statements import ObjectKind
from ebbtide.sql.tokens import Statement
from ebbtide.sql.views import plan_view, write_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.sql.judging.statements import Judge


class EmbeddedSession:
    """See `ebbtide.sql.session.Session`.

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
        self._catalogs = {catalog_name: catalog, **(further or {})}
        self._settings = Settings(settings)
        self._client = client
        self._start_spark = start_spark or (lambda: new_spark_session(self._folder / "spark.log"))
        self.rights = rights or Rights()
        self._spark: SparkSession | None = None
        self._judge: Judge | None = None
        self._starting = threading.Lock()
        self._analysing = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="ebbtide-sql-"))
        self._operations: dict[str, RunningOperation] = {}

    @property
    def catalog(self) -> Catalog:
        """The catalog in use."""
        return self._catalogs[self.catalog_name]

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings, credentials masked."""
        return self._settings.shown()

    def execute(self, statement: str) -> RunningOperation:
        """Begin to execute one statement."""
        operation = RunningOperation(on_cancel=self._interrupt, on_close=self._forget)
        self._operations[operation.id] = operation
        operation.start(lambda: self._answer(parse_text(statement), operation.id))
        return operation

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return what the word before an offset may become."""
        return completions(self.catalog, text, offset)

    def close(self) -> None:
        """End it: its queries are cancelled, its jobs go on."""
        for operation in list(self._operations.values()):
            operation.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def spark(self) -> SparkSession:
        """Return its Spark session; started now if it was not."""
        with self._starting:
            if self._spark is None:
                spark = self._start_spark()
                for key, value in self._settings.of_spark().items():
                    spark.conf.set(key, value)
                self._judge = self._new_judge(spark)
                self._spark = spark
            return self._spark

    def _new_judge(self, spark: SparkSession) -> Judge:
        from ebbtide.sql.judging.statements import Judge  # only once Spark is needed

        return Judge(spark, self.rights, self._catalogs, lambda: self.catalog)

    def judge(self) -> Judge:
        """Return what judges the statements that its Spark session is to execute."""
        self.spark()
        assert self._judge is not None  # noqa: S101 - made with the session
        return self._judge

    def _interrupt(self, operation: str) -> None:
        if self._spark is not None:
            self._spark.sparkContext.cancelJobsWithTag(operation)

    def _forget(self, operation: str) -> None:
        self._operations.pop(operation, None)
        shutil.rmtree(self._folder / operation, ignore_errors=True)

    @singledispatchmethod
    def _answer(self, asked: Any, operation: str) -> Output:
        """Do what a statement asks for.

        Args:
            asked: The statement.
            operation: Id of what executes it.
        """
        raise SqlError.of("This is the client's to do, not the session's.", got=str(asked))

    @_answer.register
    def _(self, asked: ast.Select, operation: str) -> Output:
        return self._query(asked, operation)

    @_answer.register
    def _(self, asked: ast.SparkStatement, operation: str) -> Output:
        return self._query(asked, operation)

    @_answer.register
    def _(self, asked: ast.Describe, operation: str) -> Output:
        described = describe(self.catalog.entries(), asked.name.lower())
        if described is None:
            return self._query(ast.SparkStatement(asked.statement), operation)
        return _listed(*described)

    @_answer.register
    def _(self, asked: ast.Explain, operation: str) -> Output:
        explained = parse(asked.statement)
        if isinstance(explained, ast.Insert):
            planned_insert = plan_insert(self.catalog, explained)
            text = written(planned_insert.attributes)
            return _plan([text.rstrip()])
        if isinstance(explained, ast.CreateView):
            planned = plan_view(self.catalog, explained, self.spark)
            return _plan([planned.text()] if planned else [])
        if not isinstance(explained, ast.Select | ast.SparkStatement):
            return _done(f"{type(explained).__name__}: done at once, from files.")
        return self._query(ast.SparkStatement(asked.whole), operation)

    @_answer.register
    def _(self, asked: ast.Show, operation: str) -> Output:
        if asked.what is ast.Shown.CATALOGS:
            return _listed(*catalogs(self._catalogs, self.catalog_name, asked.pattern))
        if asked.what is not ast.Shown.JOBS:
            return _listed(*show(self.catalog, asked))
        rows: list[Row] = []
        for job in self._jobs.all():
            names = ", ".join(job.pipelines)
            if fits(names, asked.pattern):
                row = [job.id, names, job.status.value, job.started, job.message]
                rows.append(row)
        return _listed(columns("id", "pipelines", "status", "started", "message"), rows)

    @_answer.register
    def _(self, asked: ast.ShowCreate, operation: str) -> Output:
        entry = self.catalog.entries().get(asked.name.lower())
        if entry is None or kind_of(entry) is not asked.kind:
            raise SqlError.of(
                f"There is no {asked.kind.lower()} '{asked.name}'.",
                next_step="SHOW TABLES and SHOW SOURCES list them.",
            )
        return _listed(columns("statement"), [[show_create(entry)]])

    @_answer.register
    def _(self, asked: ast.SetOption, operation: str) -> Output:
        if asked.key is None or asked.value is None:
            return self._shown_settings(asked.key)
        self._settings.set(asked.key, asked.value)
        is_of_spark = asked.key.startswith(SPARK)
        if is_of_spark and self._spark is not None:
            self._spark.conf.set(asked.key, asked.value)
        return _done(f"Set '{asked.key}'.")

    def _shown_settings(self, key: str | None) -> Output:
        """List one setting, or all."""
        rows: list[Row] = []
        for name, value in self.settings.items():
            if key in (None, name):
                rows.append([name, value])
        return _listed(columns("key", "value"), rows)

    @_answer.register
    def _(self, asked: ast.Reset, operation: str) -> Output:
        changed = self._settings.of_spark()
        self._settings.reset(asked.key)
        if self._spark is not None:
            self._reset_spark(self._spark, changed)
        return _done("Reset all settings." if asked.key is None else f"Reset '{asked.key}'.")

    def _reset_spark(self, spark: SparkSession, before: Mapping[str, str]) -> None:
        """Give Spark the values that its settings had as the session began."""
        now = self._settings.of_spark()
        for key in before.keys() - now.keys():
            spark.conf.unset(key)
        for key, value in now.items():
            if before.get(key) != value:
                spark.conf.set(key, value)

    @_answer.register
    def _(self, asked: ast.Use, operation: str) -> Output:
        if asked.catalog not in self._catalogs:
            raise SqlError.of(
                "There is no such catalog.",
                got=asked.catalog,
                allowed=", ".join(self._catalogs),
                next_step="The environment's file names catalogs; DATABASE or SCHEMA before the name is Spark's.",
            )
        known = list(self._catalogs)
        earlier = known[: known.index(asked.catalog)]
        others = {name: self._catalogs[name] for name in earlier}
        wanted = self._catalogs[asked.catalog]
        refuse_shared_tables(wanted.pipelines(), wanted, others)
        self.catalog_name = asked.catalog
        return _done(f"Names now stand for those of '{asked.catalog}'.")

    @_answer.register
    def _(self, asked: ast.Insert, operation: str) -> Output:
        return self._fill((asked,))

    @_answer.register
    def _(self, asked: ast.StatementSet, operation: str) -> Output:
        return self._fill(asked.inserts)

    @_answer.register
    def _(self, asked: ast.StopJob, operation: str) -> Output:
        job = self._jobs.get(asked.job)
        if self.rights.stops_own_jobs_only and job.started_by != self._client:
            raise SqlError.of(
                f"Job '{job.id}' is another client's.",
                got=job.started_by or "a job that no client of a gateway began",
                allowed=f"jobs that '{self._client}' began",
                next_step="A client of the role owner can stop it.",
            )
        job.stop()
        return _done(f"Job '{job.id}' ends after its step.")

    @_answer.register
    def _(self, asked: ast.CreateSource, operation: str) -> Output:
        return _done(create_source(self.catalog, asked))

    @_answer.register
    def _(self, asked: ast.CreateTable, operation: str) -> Output:
        return _done(create_table(self.catalog, asked))

    @_answer.register
    def _(self, asked: ast.CreateFunction, operation: str) -> Output:
        return _done(create_function(self.catalog, asked))

    @_answer.register
    def _(self, asked: ast.CreateView, operation: str) -> Output:
        planned = plan_view(self.catalog, asked, partial(self._spark_for, asked.query))
        if planned is None:
            return _done(f"There is a materialized view '{asked.name}' already.")
        folder = write_view(self.catalog, planned)
        entry = Filled(folder, load(folder))
        said = [f"Created materialized view '{entry.name}'."]
        if not self._is_running(entry.name):
            job = self._jobs.start([entry], by=self._client)
            said.append(f"Job '{job.id}' fills it; SHOW JOBS tells how it goes.")
        return _done(" ".join(said))

    @_answer.register
    def _(self, asked: ast.RefreshView, operation: str) -> Output:
        entry = self.catalog.pipeline(asked.name.lower())
        if kind_of(entry) is not ObjectKind.MATERIALIZED_VIEW:
            raise SqlError.of(
                f"There is no materialized view '{asked.name}'.",
                got="a table",
                next_step="SHOW TABLES lists both.",
            )
        job = self._jobs.start([entry], once=True, by=self._client)
        return _done(f"Job '{job.id}' brings '{entry.name}' up to date; SHOW JOBS tells how it goes.")

    @_answer.register
    def _(self, asked: ast.Drop, operation: str) -> Output:
        return _done(drop(self.catalog, asked))

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self.catalog.root)

    def _is_running(self, pipeline: str) -> bool:
        """Return whether a job runs a pipeline."""
        of_pipeline = [job for job in self._jobs.all() if pipeline in job.pipelines]
        return any(job.status is JobStatus.RUNNING for job in of_pipeline)

    def _query(self, asked: ast.Select | ast.SparkStatement, operation: str) -> Output:
        from ebbtide.sql.frames import Names
        from ebbtide.sql.queries import Queries  # only once Spark is needed

        spark = self.spark()
        spark.sparkContext.addJobTag(operation)  # the tags of Spark sessions are known to their threads alone
        # Each session has a pool: a large query of one does not hold up the others.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.id)
        names = Names(self.catalog.root, self.catalog.entries())
        queries = Queries(
            spark,
            names,
            self._settings,
            self._folder / operation,
            partial(self._admit, asked.statement),
            self._analysing,
        )
        return queries.execute(asked)

    def _spark_for(self, query: Statement) -> SparkSession:
        """Return the Spark session for a view's query.

        Raises:
            GatewayError: the query does more than read.
        """
        self.judge().judge_query(query.text)
        return self.spark()

    def _admit(self, statement: Statement, text: str) -> None:
        """Let a statement come to Spark, with the functions that it calls; these are imported only then.

        Args:
            statement: As it was written.
            text: As Spark is to execute it.
        """
        self.judge().judge(text)
        register(self.spark(), self.catalog, statement)

    def _admit_expressions(self, texts: list[str]) -> None:
        """Let expressions come to the Spark of a job. Where programs may be called anyway, a JVM is not started to judge them."""
        if texts and not self.rights.programs:
            self.judge().judge_expressions(texts)

    def _fill(self, inserts: tuple[ast.Insert, ...]) -> Output:
        """Make pipelines of statements, and begin a job that runs them; all are checked before any is written."""
        fillings = [plan_insert(self.catalog, insert) for insert in inserts]
        names_filled = [filling.name for filling in fillings]
        others = dict(self._catalogs)
        del others[self.catalog_name]
        refuse_shared_tables(names_filled, self.catalog, others)
        self._admit_expressions([text for filling in fillings for text in filling.expressions])
        for filling in fillings:
            write_filling(self.catalog, filling)
        pipelines = [self.catalog.pipeline(name) for name in names_filled]
        job = self._jobs.start(pipelines, by=self._client)
        names = ", ".join(job.pipelines)
        return _done(f"Job '{job.id}' fills {names}. SHOW JOBS tells how it goes, STOP JOB '{job.id}' ends it.")


def new_spark_session(log_file: Path | None = None) -> SparkSession:
    """Return a Spark session of its own in this process's JVM; for queries of any kind, not for steps.

    Args:
        log_file: Takes what the JVM writes, if it is started here. Default: this process's output.
    """
    from ebbtide.runtime.session import build_session, sigint_kept

    settings = {
        "spark.driver.extraJavaOptions": "",
        "spark.sql.adaptive.enabled": "true",
        "spark.scheduler.mode": "FAIR",
    }
    with sigint_kept():
        return build_session("ebbtide-sql", settings, log_file).newSession()


def _done(message: str) -> Output:
    return Whole(Result.done(message), Listed([]))


def _plan(lines: Iterable[str]) -> Output:
    return _listed(columns("plan"), [[line] for line in lines])


def _listed(shown: tuple[ResultColumn, ...], rows: list[Row]) -> Output:
    result = Result(ResultKind.ROWS, shown)
    return Whole(result, Listed(rows))
