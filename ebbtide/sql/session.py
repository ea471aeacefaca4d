"""A session in this process, and what each statement does in it: from the catalog's files at once, as a job, or by Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any

from ebbtide import load
from ebbtide.errors import SqlError
from ebbtide.sql import statements as ast
from ebbtide.sql.catalog import Catalog, Filled, kind_of, refuse_shared_tables, written
from ebbtide.sql.declare import create_function, create_source, create_table, drop
from ebbtide.sql.fill import plan_insert, write_filling
from ebbtide.sql.jobs import Jobs, JobStatus
from ebbtide.sql.listing import catalogs, columns, completions, describe, fits, show, show_create
from ebbtide.sql.operations import Listed, Output, RunningOperation, Whole
from ebbtide.sql.parsing import parse, parse_text
from ebbtide.sql.results import Completion, Result, ResultColumn, ResultKind, Row
from ebbtide.sql.statements import ObjectKind
from ebbtide.sql.tokens import Statement
from ebbtide.sql.views import plan_view, write_view
from ebbtide.sql.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EmbeddedSession(Workspace):
    """See `ebbtide.sql.results.Session`; its arguments are those of a workspace."""

    def execute(self, statement: str) -> RunningOperation:
        """Begin to execute one statement."""
        operation = RunningOperation(on_cancel=self.interrupt, on_close=self._forget)
        self.operations[operation.id] = operation
        operation.start(lambda: answer(parse_text(statement), self, operation.id))
        return operation

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return what the word before an offset may become."""
        return completions(self.catalog, text, offset)

    def close(self) -> None:
        """End it: its queries are cancelled, its jobs go on."""
        for operation in list(self.operations.values()):
            operation.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _forget(self, operation: str) -> None:
        self.operations.pop(operation, None)
        shutil.rmtree(self.folder / operation, ignore_errors=True)


_DECLARING: Mapping[type, Callable[[Catalog, Any], str]] = {
    ast.CreateSource: create_source,
    ast.CreateTable: create_table,
    ast.CreateFunction: create_function,
    ast.Drop: drop,
}
"""What is done at once to the catalog's files, and says what was done."""


@singledispatch
def answer(asked: Any, session: Workspace, operation: str) -> Output:
    """Do what a statement asks for.

    Args:
        asked: The statement.
        session: What it works on.
        operation: Id of what executes it.
    """
    declare = _DECLARING.get(type(asked))
    if declare is None:
        raise SqlError.of("This is the client's to do, not the session's.", got=str(asked))
    return _done(declare(session.catalog, asked))


@answer.register(ast.Select)
@answer.register(ast.SparkStatement)
def _(asked: ast.Select | ast.SparkStatement, session: Workspace, operation: str) -> Output:
    return session.query(asked, operation)


@answer.register
def _(asked: ast.Describe, session: Workspace, operation: str) -> Output:
    described = describe(session.catalog.entries(), asked.name.lower())
    if described is None:
        return session.query(ast.SparkStatement(asked.statement), operation)
    return _listed(*described)


@answer.register
def _(asked: ast.Explain, session: Workspace, operation: str) -> Output:
    explained = parse(asked.statement)
    if isinstance(explained, ast.Insert):
        filling = plan_insert(session.catalog, explained)
        text = written(filling.attributes)
        return _listed(columns("plan"), [[text.rstrip()]])
    if isinstance(explained, ast.CreateView):
        planned = plan_view(session.catalog, explained, session.spark)
        rows: list[Row] = [[planned.text()]] if planned else []
        return _listed(columns("plan"), rows)
    if not isinstance(explained, ast.Select | ast.SparkStatement):
        return _done(f"{type(explained).__name__}: done at once, from files.")
    return session.query(ast.SparkStatement(asked.whole), operation)


@answer.register
def _(asked: ast.Show, session: Workspace, operation: str) -> Output:
    if asked.what is ast.Shown.CATALOGS:
        return _listed(*catalogs(session.catalogs, session.catalog_name, asked.pattern))
    if asked.what is not ast.Shown.JOBS:
        return _listed(*show(session.catalog, asked))
    rows: list[Row] = []
    for job in session.jobs.all():
        names = ", ".join(job.pipelines)
        if fits(names, asked.pattern):
            row = [job.id, names, job.status.value, job.started, job.message]
            rows.append(row)
    shown = columns("id", "pipelines", "status", "started", "message")
    return _listed(shown, rows)


@answer.register
def _(asked: ast.ShowCreate, session: Workspace, operation: str) -> Output:
    entry = session.catalog.entries().get(asked.name.lower())
    if entry is None or kind_of(entry) is not asked.kind:
        raise SqlError.of(
            f"There is no {asked.kind.lower()} '{asked.name}'.",
            next_step="SHOW TABLES and SHOW SOURCES list them.",
        )
    statement = show_create(entry)
    return _listed(columns("statement"), [[statement]])


@answer.register
def _(asked: ast.SetOption, session: Workspace, operation: str) -> Output:
    if asked.key is None or asked.value is None:
        rows: list[Row] = []
        for key, value in session.settings.items():
            if asked.key in (None, key):
                rows.append([key, value])
        return _listed(columns("key", "value"), rows)
    session.set(asked.key, asked.value)
    return _done(f"Set '{asked.key}'.")


@answer.register
def _(asked: ast.Reset, session: Workspace, operation: str) -> Output:
    session.reset(asked.key)
    return _done("Reset all settings." if asked.key is None else f"Reset '{asked.key}'.")


@answer.register
def _(asked: ast.Use, session: Workspace, operation: str) -> Output:
    if asked.catalog not in session.catalogs:
        raise SqlError.of(
            "There is no such catalog.",
            got=asked.catalog,
            allowed=", ".join(session.catalogs),
            next_step="The environment's file names catalogs; DATABASE or SCHEMA before the name is Spark's.",
        )
    known = list(session.catalogs)
    position = known.index(asked.catalog)
    earlier = {name: session.catalogs[name] for name in known[:position]}
    wanted = session.catalogs[asked.catalog]
    refuse_shared_tables(wanted.pipelines(), wanted, earlier)
    session.catalog_name = asked.catalog
    return _done(f"Names now stand for those of '{asked.catalog}'.")


@answer.register(ast.Insert)
@answer.register(ast.StatementSet)
def _(asked: ast.Insert | ast.StatementSet, session: Workspace, operation: str) -> Output:
    """Make pipelines of statements, and begin a job that runs them; all are checked before any is written."""
    inserts = (asked,) if isinstance(asked, ast.Insert) else asked.inserts
    fillings = [plan_insert(session.catalog, insert) for insert in inserts]
    names_filled = [filling.name for filling in fillings]
    others = dict(session.catalogs)
    del others[session.catalog_name]
    refuse_shared_tables(names_filled, session.catalog, others)
    expressions = [text for filling in fillings for text in filling.expressions]
    if expressions and not session.rights.programs:  # else a JVM is not started to judge them
        session.judge().judge_expressions(expressions)
    for filling in fillings:
        write_filling(session.catalog, filling)
    pipelines = [session.catalog.pipeline(name) for name in names_filled]
    job = session.jobs.start(pipelines, by=session.client)
    names = ", ".join(job.pipelines)
    return _done(f"Job '{job.id}' fills {names}. SHOW JOBS tells how it goes, STOP JOB '{job.id}' ends it.")


@answer.register
def _(asked: ast.StopJob, session: Workspace, operation: str) -> Output:
    job = session.jobs.get(asked.job)
    if session.rights.stops_own_jobs_only and job.started_by != session.client:
        raise SqlError.of(
            f"Job '{job.id}' is another client's.",
            got=job.started_by or "a job that no client of a gateway began",
            allowed=f"jobs that '{session.client}' began",
            next_step="A client of the role owner can stop it.",
        )
    job.stop()
    return _done(f"Job '{job.id}' ends after its step.")


@answer.register
def _(asked: ast.CreateView, session: Workspace, operation: str) -> Output:
    planned = plan_view(session.catalog, asked, partial(_spark_for, session, asked.query))
    if planned is None:
        return _done(f"There is a materialized view '{asked.name}' already.")
    folder = write_view(session.catalog, planned)
    entry = Filled(folder, load(folder))
    said = f"Created materialized view '{entry.name}'."
    if _is_running(session.jobs, entry.name):
        return _done(said)
    job = session.jobs.start([entry], by=session.client)
    return _done(f"{said} Job '{job.id}' fills it; SHOW JOBS tells how it goes.")


@answer.register
def _(asked: ast.RefreshView, session: Workspace, operation: str) -> Output:
    entry = session.catalog.pipeline(asked.name.lower())
    if kind_of(entry) is not ObjectKind.MATERIALIZED_VIEW:
        raise SqlError.of(
            f"There is no materialized view '{asked.name}'.",
            got="a table",
            next_step="SHOW TABLES lists both.",
        )
    job = session.jobs.start([entry], once=True, by=session.client)
    return _done(f"Job '{job.id}' brings '{entry.name}' up to date; SHOW JOBS tells how it goes.")


def _is_running(jobs: Jobs, pipeline: str) -> bool:
    """Return whether a job runs a pipeline."""
    of_pipeline = [job for job in jobs.all() if pipeline in job.pipelines]
    return any(job.status is JobStatus.RUNNING for job in of_pipeline)


def _spark_for(session: Workspace, query: Statement) -> SparkSession:
    """Return the Spark session for a view's query.

    Raises:
        GatewayError: the query does more than read.
    """
    session.judge().judge_query(query.text)
    return session.spark()


def _done(message: str) -> Output:
    return Whole(Result.done(message), Listed([]))


def _listed(shown: tuple[ResultColumn, ...], rows: list[Row]) -> Output:
    return Whole(Result(ResultKind.ROWS, shown), Listed(rows))
