"""Runs rules: in this process by DuckDB over Arrow for small inputs, otherwise on Spark.

The same query runs on both. The size of its input is known from the Delta log before reading; docs/decisions/0034 has
the measurements.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ebbtide.checks._dialects import Dialect, DuckDbSql, SparkSql
from ebbtide.checks._inputs import Input
from ebbtide.checks._rule import Expected, Rows
from ebbtide.checks._samples import sample_of
from ebbtide.executors import InProcess as HereExecutor
from ebbtide.sessions import Frames, arrow_table
from ebbtide.sessions import OnSpark as SparkExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.executors import Executor

MOST_ROWS = 2_000_000
"""Maximum rows that the rules of a batch read in this process."""
MOST_BYTES = 256 * 2**20
"""Maximum bytes of the files that the rules of a batch read in this process."""
SAMPLE_ROWS = 20


@dataclass(frozen=True)
class Broken:
    """The rows that break a rule.

    Args:
        count: Number of rows.
        sample: The first of them, as JSON values.
    """

    count: int
    sample: list[dict[str, Any]]


class Engine(Protocol):
    """Runs queries over named inputs."""

    dialect: Dialect

    def run(self, inputs: Mapping[str, Input], queries: Iterator[str]) -> Iterator[pa.Table]:
        """Yield the result of each query.

        Args:
            inputs: Inputs by their names in queries.
            queries: Consumed lazily: the next may depend on the result of the last.
        """


@dataclass
class InProcess:
    """DuckDB over Arrow tables in this process.

    Args:
        read: Cache of rows by input: checks of one run read the same rows once.
    """

    read: dict[Input, pa.Table] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=DuckDbSql)

    def run(
        self,
        inputs: Mapping[str, Input],
        queries: Iterator[str],
        only: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """See `Engine`; `only`: the columns of inputs that queries see. Default: all."""
        connection = self._connection
        for name, source in inputs.items():
            rows = self.rows(source)
            if only is not None:
                rows = rows.select(list(only))
            connection.register(name, rows)
        try:
            for query in queries:
                yield connection.sql(query).to_arrow_table()
        finally:
            for name in inputs:
                connection.unregister(name)

    @cached_property
    def _connection(self) -> Any:
        """Connect, once for all queries: neither files, extensions nor Python's variables are read, only the tables that are given."""
        import duckdb

        settings: dict[str, Any] = {
            "enable_external_access": False,
            "python_enable_replacements": False,
            "threads": 1,
        }
        connection = duckdb.connect(config=settings)
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def rows(self, source: Input) -> pa.Table:
        """Return the rows of an input, read once."""
        rows = self.read.get(source)
        if rows is None:
            rows = source.read()
            self.read[source] = rows
        return rows


@dataclass
class OnSpark:
    """Spark over Delta tables.

    Args:
        session: Returns the session; started on first use.
    """

    session: Callable[[], SparkSession]
    dialect: Dialect = field(default_factory=SparkSql)

    def run(self, inputs: Mapping[str, Input], queries: Iterator[str]) -> Iterator[pa.Table]:
        """See `Engine`."""
        frames = Frames(self.session())
        with _views(frames, inputs) as named:
            for query in queries:
                selected = frames.session.sql(f"WITH {named} SELECT * FROM ({query}) AS _selected")
                yield arrow_table(selected)


@contextmanager
def _views(frames: Frames, inputs: Mapping[str, Input]) -> Iterator[str]:
    """Register inputs in a session under unique names during the queries; yield the WITH clauses that map the names in queries to them."""
    views = {name: f"ebbtide_{uuid.uuid4().hex}" for name in inputs}
    named = [f"{name} AS (SELECT * FROM {view})" for name, view in views.items()]
    try:
        for name, source in inputs.items():
            frame = source.frame(frames)
            frame.createOrReplaceTempView(views[name])
        yield ", ".join(named)
    finally:
        for view in views.values():
            frames.session.catalog.dropTempView(view)


@dataclass(frozen=True)
class Engines:
    """Chooses the engine for rules.

    Args:
        session: Returns Spark's session.
        most_rows: Maximum rows that are read in this process.
        most_bytes: Maximum bytes that are read in this process.
        in_process: The engine in this process.
    """

    session: Callable[[], SparkSession]
    most_rows: int = MOST_ROWS
    most_bytes: int = MOST_BYTES
    in_process: InProcess = field(default_factory=InProcess)

    def fits(self, inputs: Mapping[str, Input]) -> bool:
        """Return whether inputs are small enough to be read in this process."""
        n_rows = 0
        n_bytes = 0
        for source in inputs.values():
            size = source.size()
            if size is None:
                return False
            n_rows += size.rows
            n_bytes += size.n_bytes
        return n_rows <= self.most_rows and n_bytes <= self.most_bytes

    def executor(self, inputs: Mapping[str, Input]) -> Executor:
        """Return what runs work over inputs: this process, or Spark above the bound of rules."""
        return HereExecutor() if self.fits(inputs) else SparkExecutor(self.session)

    def broken(self, rows: Rows, expected: Sequence[Expected]) -> list[Broken]:
        """Return, for each rule, the rows that break it."""
        engine: Engine = self.in_process if self.fits(rows.inputs) else OnSpark(self.session)
        return broken(engine, rows, expected)


def broken(engine: Engine, rows: Rows, expected: Sequence[Expected]) -> list[Broken]:
    """Return, for each rule, the rows that break it. If no row breaks a rule, only one query is run.

    Args:
        engine: Where to run them.
        expected: The rules.
    """
    dialect = engine.dialect
    judged = rows.query(dialect)
    columns = dialect.names(rows.columns)
    order = ", ".join(f"{dialect.name(name)} NULLS FIRST" for name in rows.order)
    conditions = [each.rule.condition(dialect, **each.arguments) for each in expected]
    n_broken: list[int] = []

    def queries() -> Iterator[str]:
        yield f"SELECT {_counts(conditions)} FROM ({judged}) AS _judged"
        # The engine consumes one query at a time: the counts are known when it requests the next.
        for condition, count in zip(conditions, n_broken, strict=True):
            if count:
                yield f"""
                    SELECT {columns}
                    FROM ({judged}) AS _judged
                    WHERE {condition}
                    ORDER BY {order}
                    LIMIT {SAMPLE_ROWS}"""

    answers = engine.run(rows.inputs, queries())
    [counted] = next(answers).to_pylist()
    n_broken += [int(count) for count in counted.values()]
    found = []
    for count in n_broken:
        sample = sample_of(next(answers)) if count else []
        found.append(Broken(count, sample))
    return found


def _counts(conditions: Sequence[str]) -> str:
    """Return the columns that count the rows of each condition."""
    counts = []
    for number, condition in enumerate(conditions):
        counts.append(f"coalesce(count_if({condition}), 0) AS _{number}")
    return ", ".join(counts)
