"""A session in this process: its catalogs, settings, jobs and Spark, and the execution of each kind of statement.

Modules that only some statements need are loaded by these: `ebbtide sql -e "SHOW TABLES"` loads neither Arrow nor the models of specs.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.errors import SqlError
from ebbtide.sql import _statements as ast
from ebbtide.sql._catalog import Catalog, Filled, written
from ebbtide.sql._jobs import Job, Jobs
from ebbtide.sql._listing import catalogs, columns, completions, describe, describe_function, fits, show, show_create
from ebbtide.sql._operations import Listed, Output, RunningOperation, Whole
from ebbtide.sql._parsing import parse, parse_text
from ebbtide.sql._py_files import for_spark
from ebbtide.sql._results import Completion, Result, ResultColumn, ResultKind, Row
from ebbtide.sql._settings import SPARK, Rights, Settings, own_name
from ebbtide.sql._statements import ObjectKind
from ebbtide.sql._tokens import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.sql._judging.judge import Judge


class EmbeddedSession:
    """A session in this process. Spark is started when it is first needed.

    Args:
        catalogs: Catalogs by name; the first is in use until USE names another.
        settings: Initial settings.
        start_spark: Returns a new Spark session. Default: one of this process's JVM, started if there is none.
        client: Name of the gateway's client; its jobs are recorded under the name.
        rights: Rights of the statements. Default: all; tables of pipelines are never changed.
        clock: Clock in seconds, for the age of results.
        py_files: Files of Python code for its functions, which this process can import.
    """

    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        settings: Mapping[str, str],
        *,
        start_spark: Callable[[], SparkSession] | None = None,
        client: str = "",
        rights: Rights | None = None,
        clock: Callable[[], float] = time.monotonic,
        py_files: tuple[str, ...] = (),
    ) -> None:
        self.id = secrets.token_hex(8)
        self.catalogs = dict(catalogs)
        self.catalog_name = next(iter(catalogs))
        self._settings = Settings(settings)
        self.client = client
        self._py_files = py_files
        self._start_spark = start_spark or (lambda: new_spark_session(self.folder / "spark.log", py_files))
        self.rights = rights or Rights()
        self._clock = clock
        self._spark: SparkSession | None = None
        self._judge: Judge | None = None
        self._starting = threading.Lock()
        self._analysing = threading.Lock()
        self.folder = Path(tempfile.mkdtemp(prefix=f"ebbtide-sql-{os.getpid()}-"))
        self.operations: dict[str, RunningOperation] = {}
        """Operations that are not closed, by id."""

    @property
    def catalog(self) -> Catalog:
        """The catalog in use."""
        return self.catalogs[self.catalog_name]

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the session, credentials masked."""
        return self._settings.shown()

    @property
    def external_catalogs(self) -> Mapping[str, str]:
        """Classes of the catalogs of Spark in the settings, by name."""
        return self._settings.external_catalogs()

    def execute(self, statement: str) -> RunningOperation:
        """Begin to execute one statement."""
        self.drop_old_results()
        operation = RunningOperation(
            on_cancel=self.interrupt,
            on_close=self._forget,
            max_age_s=int(self._settings["max-age"]),
            clock=self._clock,
        )
        self.operations[operation.id] = operation
        executor = Executor(self, operation.id)
        operation.start(lambda: executor.execute(parse_text(statement)))
        return operation

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return the completions of the word before an offset."""
        return completions(self.catalog, text, offset)

    def close(self) -> None:
        """End the session: its queries are cancelled, its jobs continue."""
        for operation in list(self.operations.values()):
            operation.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def drop_old_results(self) -> None:
        """Drop the results that were not read within `max-age`, with their files."""
        for operation in list(self.operations.values()):
            if operation.drop_if_old():
                shutil.rmtree(self.folder / operation.id, ignore_errors=True)

    def _forget(self, operation: str) -> None:
        self.operations.pop(operation, None)
        shutil.rmtree(self.folder / operation, ignore_errors=True)

    def spark(self) -> SparkSession:
        """Return the Spark session, started if necessary."""
        from ebbtide.sql._judging.judge import Judge  # only once Spark is needed

        with self._starting:
            if self._spark is None:
                spark = self._start_spark()
                for key, value in self._settings.of_spark().items():
                    spark.conf.set(key, value)
                self._judge = Judge(spark, self.rights, self.catalogs, lambda: self.catalog)
                self._spark = spark
            return self._spark

    def judge(self) -> Judge:
        """Return the judge of the statements for the Spark session."""
        self.spark()
        assert self._judge is not None  # noqa: S101 - made with the session
        return self._judge

    def interrupt(self, operation: str) -> None:
        """Cancel the jobs of Spark for an operation."""
        if self._spark is not None:
            self._spark.sparkContext.cancelJobsWithTag(operation)

    @property
    def jobs(self) -> Jobs:
        """The jobs below the root of the catalog in use."""
        return Jobs(self.catalog.root, self._py_files)

    def set(self, key: str, value: str) -> None:
        """Change a setting; a setting of Spark also in the Spark session.

        Raises:
            SqlError: there is none of that name, or it does not take the value.
        """
        self._settings.set(key, value)
        if self._spark is not None and key.startswith(SPARK):
            self._spark.conf.set(key, value)

    def reset(self, key: str | None) -> None:
        """Set a setting, or all, back to the initial value.

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

    def query(
        self, asked: ast.Select | ast.SparkStatement, operation: str, explained: ast.Select | None = None
    ) -> Output:
        """Execute a statement of Spark, or answer it in this process.

        Args:
            asked: The statement.
            operation: Id of the operation.
            explained: The query that it explains.
        """
        from ebbtide.sql._here import answered_here
        from ebbtide.sql._names import Names

        names = Names(self.catalog.root, self.catalog.entries())
        here = answered_here(asked, names, self._settings)
        if here is not None:
            return here
        from ebbtide.sql._query import Queries  # only once Spark is needed

        spark = self.spark()
        spark.sparkContext.addJobTag(operation)  # tags of Spark sessions are known in their thread only
        # Each session has a pool: a large query of one does not delay the other sessions.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.id)
        admit = partial(self._admit, asked.statement)
        queries = Queries(
            spark,
            names,
            self._settings,
            self.folder / operation,
            admit,
            self._analysing,
        )
        if explained is not None:
            queries.analyse(explained)
        return queries.execute(asked)

    def _admit(self, statement: Statement, text: str) -> None:
        """Judge a statement for Spark, then import and register the functions that it calls.

        Args:
            statement: Statement as it was written.
            text: Text for Spark.
        """
        from ebbtide.sql._declare import register

        self.judge().judge(text)
        register(self.spark(), self.catalog, statement)


def refuse_shared_tables(
    names: Collection[str],
    catalog: Catalog,
    further: Mapping[str, Catalog],
) -> None:
    """Refuse pipelines that would share tables with a pipeline of the same name and root in another catalog.

    Args:
        names: Names of the pipelines.
        catalog: Catalog of the pipelines.
        further: Further catalogs, by name.

    Raises:
        SqlError: there is such a pipeline.
    """
    for other_name, other in further.items():
        if other.root != catalog.root:
            continue
        shared = other.pipelines().keys() & set(names)
        if shared:
            raise SqlError.of(
                f"The catalog '{other_name}' has a pipeline of one name, and the same root.",
                got=", ".join(sorted(shared)),
                allowed="each pipeline in one of them",
                next_step="Give one of the catalogs another root in the environment's file.",
            )


def new_spark_session(log_file: Path | None = None, py_files: Sequence[str] = ()) -> SparkSession:
    """Return a new Spark session in this process's JVM, with settings for queries of any size instead of small steps.

    Args:
        log_file: File for the output of the JVM, if it is started here. Default: this process's output.
        py_files: Files of Python code for its workers.
    """
    from ebbtide.sessions import build_session

    settings = {
        "spark.driver.extraJavaOptions": "",
        "spark.sql.adaptive.enabled": "true",
        "spark.scheduler.mode": "FAIR",
        **for_spark(py_files),
    }
    return build_session("ebbtide-sql", settings, log_file, keeps_sigint=True).newSession()


@dataclass(frozen=True)
class Executor:
    """Executes one statement of a session.

    Args:
        session: Session that executes it.
        operation: Id of the operation.
    """

    session: EmbeddedSession
    operation: str

    @singledispatchmethod
    def execute(self, asked: Any) -> Output:
        """Execute a statement; there is a method for each kind.

        Args:
            asked: The statement.

        Raises:
            EbbtideError: the statement is refused or fails.
        """
        raise SqlError.of(
            "This statement is executed by the client, not by the session.",
            got=str(asked),
        )

    @execute.register(ast.CreateSource)
    @execute.register(ast.CreateTable)
    @execute.register(ast.CreateFunction)
    @execute.register(ast.Drop)
    def _(self, asked: Any) -> Output:
        from ebbtide.sql._declare import DECLARING

        declare = DECLARING[type(asked)]
        return _done(declare(self.session.catalog, asked))

    @execute.register(ast.Select)
    @execute.register(ast.SparkStatement)
    def _(self, asked: ast.Select | ast.SparkStatement) -> Output:
        return self.session.query(asked, self.operation)

    @execute.register
    def _(self, asked: ast.Describe) -> Output:
        entries = self.session.catalog.entries()
        describing = describe_function if asked.is_function else describe
        described = describing(entries, asked.name.lower())
        if described is None:
            statement = ast.SparkStatement(asked.statement)
            return self.session.query(statement, self.operation)
        return _listed(*described)

    @execute.register
    def _(self, asked: ast.Explain) -> Output:
        explained = parse(asked.statement)
        if isinstance(explained, ast.Insert):
            from ebbtide.sql._fill import plan_insert

            filling = plan_insert(self.session.catalog, explained)
            text = written(filling.attributes)
            return _listed(columns("plan"), [[text.rstrip()]])
        if isinstance(explained, ast.CreateView):
            from ebbtide.sql._views import plan_view

            planned = plan_view(self.session.catalog, explained, self.session.spark)
            rows: list[Row] = [[planned.text()]] if planned else []
            return _listed(columns("plan"), rows)
        if not isinstance(explained, ast.Select | ast.SparkStatement):
            kind = type(explained).__name__
            return _done(f"{kind}: done at once, from files.")
        whole = ast.SparkStatement(asked.whole)
        query = explained if isinstance(explained, ast.Select) else None
        return self.session.query(whole, self.operation, query)

    @execute.register
    def _(self, asked: ast.Show) -> Output:
        session = self.session
        if asked.what is ast.Shown.CATALOGS:
            listed = catalogs(session.catalogs, session.catalog_name, session.external_catalogs, asked.pattern)
            return _listed(*listed)
        if asked.what is not ast.Shown.JOBS:
            listed = show(session.catalog, asked)
            return _listed(*listed)
        rows: list[Row] = []
        for job in session.jobs.all():
            names = ", ".join(job.pipelines)
            if fits(names, asked.pattern):
                row = [job.id, names, job.status.value, job.started, job.message]
                rows.append(row)
        shown = columns("id", "pipelines", "status", "started", "message")
        return _listed(shown, rows)

    @execute.register
    def _(self, asked: ast.ShowCreate) -> Output:
        entry = self.session.catalog.entry(asked.kind, asked.name)
        statement = show_create(entry)
        return _listed(columns("statement"), [[statement]])

    @execute.register
    def _(self, asked: ast.SetOption) -> Output:
        if asked.key is None or asked.value is None:
            rows: list[Row] = []
            for key, value in self.session.settings.items():
                if asked.key is None or own_name(asked.key) == key:
                    rows.append([key, value])
            return _listed(columns("key", "value"), rows)
        self.session.set(asked.key, asked.value)
        return _done(f"Set '{asked.key}'.")

    @execute.register
    def _(self, asked: ast.Reset) -> Output:
        self.session.reset(asked.key)
        is_all = asked.key is None
        return _done("Reset all settings." if is_all else f"Reset '{asked.key}'.")

    @execute.register
    def _(self, asked: ast.Use) -> Output:
        if asked.catalog not in self.session.catalogs:
            raise SqlError.of(
                "There is no such catalog.",
                got=asked.catalog,
                allowed=", ".join(self.session.catalogs),
                next_step=(
                    f"It is a catalog of Spark: query {asked.catalog}.database.table by its whole name."
                    if asked.catalog in self.session.external_catalogs
                    else "The environment's file names catalogs; DATABASE or SCHEMA before the name is Spark's."
                ),
            )
        known = list(self.session.catalogs)
        position = known.index(asked.catalog)
        earlier = {name: self.session.catalogs[name] for name in known[:position]}
        wanted = self.session.catalogs[asked.catalog]
        refuse_shared_tables(wanted.pipelines(), wanted, earlier)
        self.session.catalog_name = asked.catalog
        return _done(f"The catalog in use is '{asked.catalog}'.")

    @execute.register(ast.Insert)
    @execute.register(ast.StatementSet)
    def _(self, asked: ast.Insert | ast.StatementSet) -> Output:
        """Make pipelines of statements, and begin a job that runs them. All are checked before any is written."""
        inserts = (asked,) if isinstance(asked, ast.Insert) else asked.inserts
        jobs = self.session.jobs
        with jobs.alone([insert.table.lower() for insert in inserts], self.session.catalog.folder):
            pipelines = self._fill(inserts)
            job = jobs.start(pipelines, by=self.session.client)
        names = ", ".join(job.pipelines)
        return _done(f"Job '{job.id}' fills {names}. SHOW JOBS lists its state, STOP JOB '{job.id}' ends it.")

    def _fill(self, inserts: Sequence[ast.Insert]) -> list[Filled]:
        """Write the pipelines of some statements; return them."""
        from ebbtide.sql._fill import plan_insert, write_filling

        catalog = self.session.catalog
        fillings = [plan_insert(catalog, insert) for insert in inserts]
        names_filled = [filling.name for filling in fillings]
        further = dict(self.session.catalogs)
        del further[self.session.catalog_name]
        refuse_shared_tables(names_filled, catalog, further)
        expressions: list[str] = []
        for filling in fillings:
            expressions += filling.expressions
        if expressions and not self.session.rights.programs:  # with all rights no JVM is started to judge them
            self.session.judge().judge_expressions(expressions)
        for filling in fillings:
            write_filling(catalog, filling)
        return [catalog.pipeline(name) for name in names_filled]

    @execute.register
    def _(self, asked: ast.StopJob) -> Output:
        job = self._own_job(asked.job)
        job.stop()
        return _done(f"Job '{job.id}' ends after its step.")

    @execute.register
    def _(self, asked: ast.RestartJob) -> Output:
        session = self.session
        ended = self._own_job(asked.job)
        with session.jobs.alone(ended.pipelines, session.catalog.folder):
            pipelines = [session.catalog.pipeline(name) for name in ended.pipelines]
            job = session.jobs.start(pipelines, once=not ended.repeats, by=session.client)
        names = ", ".join(job.pipelines)
        return _done(f"Job '{job.id}' runs {names} again, from the last step on. SHOW JOBS lists its state.")

    def _own_job(self, wanted: str) -> Job:
        """Return a job that the session may stop and begin again.

        Raises:
            SqlError: there is none, or it is another client's.
        """
        client = self.session.client
        job = self.session.jobs.get(wanted)
        is_own = job.started_by == client
        if self.session.rights.stops_own_jobs_only and not is_own:
            raise SqlError.of(
                f"Job '{job.id}' is another client's.",
                got=job.started_by or "a job that no client of a gateway began",
                allowed=f"jobs that '{client}' began",
                next_step="A client of the role owner can do it.",
            )
        return job

    @execute.register
    def _(self, asked: ast.CreateView) -> Output:
        from ebbtide import load
        from ebbtide.sql._views import plan_view, write_view

        def spark() -> SparkSession:
            """Return the Spark session for a query that only reads."""
            self.session.judge().judge_query(asked.query.text)
            return self.session.spark()

        planned = plan_view(self.session.catalog, asked, spark)
        if planned is None:
            return _done(f"There is a materialized view '{asked.name}' already.")
        folder = write_view(self.session.catalog, planned)
        entry = Filled(folder, load(folder))
        message = f"Created materialized view '{entry.name}'."
        if self.session.jobs.is_running(entry.name):
            return _done(message)
        job = self.session.jobs.start([entry], by=self.session.client)
        return _done(f"{message} Job '{job.id}' fills it; SHOW JOBS lists its state.")

    @execute.register
    def _(self, asked: ast.RefreshView) -> Output:
        session = self.session
        view = session.catalog.entry(ObjectKind.MATERIALIZED_VIEW, asked.name)
        entry = session.catalog.pipeline(view.name)
        job = session.jobs.start([entry], once=True, by=session.client)
        return _done(f"Job '{job.id}' brings '{entry.name}' up to date; SHOW JOBS lists its state.")


def _done(message: str) -> Output:
    result = Result.done(message)
    return Whole(result, Listed([]))


def _listed(shown: tuple[ResultColumn, ...], rows: list[Row]) -> Output:
    result = Result(ResultKind.ROWS, shown)
    return Whole(result, Listed(rows))
