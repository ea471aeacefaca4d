"""A transform's expressions, evaluated by Spark SQL itself, so that a row is what the same SELECT makes of it.

They run in a separate session: ANSI, UTC, without functions that were registered in another; those of the project are
called beforehand (`_function_calls`). An expression fails
row by row: `TryEval` gives null for a row whose evaluation throws, and the other rows continue. Sharing of common
subexpressions is off, since it would evaluate one outside of that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ebbtide.ddl import TableSchema, type_ddl
from ebbtide.errors import ConfigError
from ebbtide.executors import Executor
from ebbtide.expressions._called_functions import Call
from ebbtide.expressions._determinism import what_may_differ
from ebbtide.expressions._function_calls import FunctionCalls
from ebbtide.expressions._plans import Parser
from ebbtide.expressions._tasks import Finishing, Reading, unpickled
from ebbtide.redaction import MASK
from ebbtide.sessions import Frames, SparkVersion, arrow_table, spark_schema
from ebbtide.spec import Transform, UnfitFunctionError
from ebbtide.sqltext import SqlText

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
}
RESULT = "result"
NEXT_STEP = "Correct the spec's transform."
MOST_REASONS = 20
"""Maximum failing rows of a step whose reason is Spark's message: each needs a separate query."""


Inputs = Callable[[Any], pa.Table]
"""Reads an item's rows to evaluate."""
Finish = Callable[[Any, pa.ChunkedArray], Any]
"""Given an item and the results of its rows, makes something of them."""


@dataclass(frozen=True)
class Expressions:
    """A transform's expressions, in a session.

    Args:
        executor: Has Spark.
        transform: The transform.
        source: The columns that it reads from.
        sink: The sink's columns.
        personal: Columns of the source and the sink whose values are not to be shown.
    """

    executor: Executor
    transform: Transform
    source: TableSchema
    sink: pa.Schema
    personal: frozenset[str] = frozenset()

    @property
    def context(self) -> SparkContext:
        """Spark's context."""
        return self.executor.spark().sparkContext

    @cached_property
    def inputs(self) -> pa.Schema:
        """The columns of the source that the expressions read; at least one, to count rows."""
        schema = self.source.columns
        names = self.transform.columns_read(self.source) or schema.names[:1]
        fields = [schema.field(name).with_nullable(True) for name in names]
        return pa.schema(fields)

    @cached_property
    def calls(self) -> FunctionCalls:
        """The calls of the project's functions in the expressions."""
        functions = {name: self.transform.row_function(name) for name in self.transform.functions}
        return FunctionCalls.read(self.transform.expressions.values(), functions)

    def evaluated(self, rows: pa.Table) -> pa.ChunkedArray:
        """Evaluate rows that are here; return what `Selected.of` reads.

        Args:
            rows: With the columns of `inputs`.
        """
        if not len(rows):
            return pa.chunked_array([[]], pa.null())
        results: Any = self.results(self._frame(rows))
        # `toArrow` would refuse a row that is null, of values that Spark knows to be never null.
        batches = results._collect_as_arrow()
        return pa.chunked_array([batch.column(0) for batch in batches])

    def results(self, frame: DataFrame) -> DataFrame:
        """Return what `Selected.of` reads, of the rows of a frame in this session."""
        condition = F.lit(True)
        if self.transform.where is not None:
            condition = self._expression(self.transform.where)
        fits = F.coalesce(condition, F.lit(False))
        values = [self._value(name) for name in self.sink.names]
        row = F.struct(*values)
        # The row of one that does not fit is not evaluated: as in SQL the condition comes first.
        row_if_fits = F.when(fits, row)
        whole = F.struct(fits.alias("fits"), row_if_fits.alias("row"))
        result = self._frames.tried(whole)
        return self._called(frame).select(result.alias(RESULT))

    def select(
        self,
        items: Sequence[Any],
        inputs: Inputs,
        finish: Finish,
        *,
        is_little: bool,
    ) -> list[Any]:
        """Evaluate the rows of several items; each is finished where its rows are.

        As a job, workers read the rows, the JVM evaluates them, and workers take the results: no row is moved.

        Args:
            items: What holds the rows; picklable.
            inputs: See `Inputs`.
            finish: See `Finish`.
            is_little: See `Executor.map`.

        Returns:
            What `finish` returned, in order.
        """
        if self.executor.does_itself(is_little=is_little) or not items:
            finished = []
            for item in items:
                results = self.evaluated(inputs(item))
                finished.append(finish(item, results))
            return finished
        session = self.session
        numbers = session.range(0, len(items), 1, len(items))
        read = Reading(items, inputs, self.inputs)
        rows = numbers.mapInArrow(read, spark_schema(self.inputs))
        results = self.results(rows)
        done = results.mapInArrow(Finishing(items, finish), "done BINARY")
        with self.executor.described():
            finished = arrow_table(done)
        return unpickled(finished["done"])

    def _expression(self, text: str) -> Column:
        return F.expr(self.calls.texts[text])

    def _called(self, frame: DataFrame) -> DataFrame:
        return self.calls.evaluated(frame, self._frames.tried)

    def _value(self, name: str) -> Column:
        type_ = type_ddl(self.sink.field(name).type)
        value = self._expression(self.transform.select[name]).cast(type_)
        return value.alias(name)

    @property
    def session(self) -> SparkSession:
        """The session that they run in."""
        return _session(self.context)

    @property
    def _frames(self) -> Frames:
        return Frames(self.session)

    def _frame(self, rows: pa.Table) -> DataFrame:
        typed = rows.select(self.inputs.names).cast(self.inputs)
        return self._frames.of_arrow(typed, spark_schema(self.inputs))

    def reasons(self, rows: pa.Table) -> list[str]:
        """Say of failing rows why they fail, in Spark's words for the first few.

        Args:
            rows: With the columns of `inputs`; they fail.
        """
        fields = self._failing_fields(rows)
        reasons = []
        for number, field in enumerate(fields):
            reason = "its value does not fit"
            if field in self._not_null:
                reason = "got null; allowed: a value (NOT NULL)"
            elif number < MOST_REASONS:
                reason = self._reason(field, rows.slice(number, 1))
            reasons.append(f"{field}: {reason}")
        return reasons

    @property
    def _not_null(self) -> set[str]:
        return {f"null in {field.name}" for field in self.sink if not field.nullable}

    def _failing_fields(self, rows: pa.Table) -> list[str]:
        """Name for each row the first field of the spec whose expression fails, or the column that lacks a value."""
        fails = []
        names = []
        for field, value in self._values.items():
            is_whole = self._frames.tried(F.struct(value.alias("value")))
            names.append(field)
            fails.append(is_whole.isNull())
        for column in self.sink:
            if not column.nullable:
                names.append(f"null in {column.name}")
                value = self._frames.tried(self._value(column.name))
                fails.append(value.isNull())
        frame = self._called(self._frame(rows))
        tested = arrow_table(frame.select(F.array(*fails).alias("fails")))
        found = []
        for fails in tested["fails"].to_pylist():
            failing = [name for name, is_failing in zip(names, fails, strict=True) if is_failing]
            first = failing[0] if failing else "transform"
            found.append(first)
        return found

    @cached_property
    def _values(self) -> dict[str, Column]:
        """Field of the spec to its evaluated expression."""
        values: dict[str, Column] = {}
        if self.transform.where is not None:
            values["where"] = self._expression(self.transform.where)
        for name in self.sink.names:
            values[name] = self._value(name)
        return values

    def _reason(self, field: str, row: pa.Table) -> str:
        """Return Spark's words for why a field of a row fails; its condition alone where values are personal."""
        if field not in self._values:
            return "its value does not fit"
        try:
            called = self._called(self._frame(row))
            with _unlogged():
                arrow_table(called.select(self._values[field]))
        except PySparkException as error:
            if self._reads_personal(field):
                return f"[{SparkVersion.of_pyspark().condition_of(error)}] {MASK}"
            return _first_line(str(error))
        return "its value does not fit"

    def _reads_personal(self, field: str) -> bool:
        if field in self.personal:
            return True
        text = self.transform.where if field == "where" else self.transform.select[field]
        read = SqlText(text or "").columns_read(self.source.columns.names)
        return not self.personal.isdisjoint(read)

    def refuse_unfit(self) -> None:
        """Refuse what Spark's analyzer does not take, or what does not follow from a row alone.

        Raises:
            ConfigError: an expression cannot be evaluated row by row, or its type does not fit its column.
        """
        types = {}
        for column in self.sink:
            types[f"transform.select.{column.name}"] = column.type
        session = self.session  # started first: Spark reads the types of functions, which are written as DDL
        schema = StructType([*spark_schema(self.inputs), *self.calls.fields()])
        empty = session.createDataFrame([], schema)
        self._refuse_unfit_calls(empty)
        for field, text in self.transform.expressions.items():
            is_condition = field not in types
            wanted = pa.bool_() if is_condition else types[field]
            problem = self._problem(empty, text, wanted, is_condition=is_condition)
            if problem is not None:
                raise _refusal(field, text, *problem)

    def _refuse_unfit_calls(self, empty: DataFrame) -> None:
        for call in self.calls.columns:
            field = f"transform.functions.{call.function}"
            function = self.calls.functions[call.function]
            try:
                function.refuse_arguments(len(call.arguments))
            except UnfitFunctionError as error:
                raise _refusal(field, call.function, str(error), "a call with its arguments") from error
            for argument in call.arguments:
                _, problem = self._analyzed(empty, argument)
                if problem is not None:
                    raise _refusal(field, argument, *problem)

    def _analyzed(self, empty: DataFrame, text: str) -> tuple[DataFrame | None, tuple[str, str] | None]:
        """Return an expression in Spark's form, or its fault and the allowed values."""
        try:
            parser = Parser(self.session)
            fault = Call.first_fault(parser, parser.expression(text))
            if fault is not None:
                return None, (fault.got, fault.allowed)
            frame = empty.select(F.expr(text).alias("value"))
        except PySparkException as error:
            columns = ", ".join(self.inputs.names)
            message = _first_line(str(error))
            return None, (message, f"{Transform.ALLOWED}; columns: {columns}")
        own = self._not_row_by_row(frame)
        if own is not None:
            return None, (own, Transform.ALLOWED)
        return frame, None

    def _problem(
        self,
        empty: DataFrame,
        text: str,
        wanted: pa.DataType,
        *,
        is_condition: bool,
    ) -> tuple[str, str] | None:
        """Return the fault of an expression and the allowed values; None: no fault."""
        frame, problem = self._analyzed(empty, self.calls.texts[text])
        if frame is None:
            return problem
        given = frame.schema["value"].dataType
        needed = spark_schema(pa.schema([("value", wanted)]))["value"].dataType
        fits = given == needed if is_condition else self._can_assign(given, needed)
        if fits:
            return None
        return given.simpleString(), f"a type that INSERT takes for {needed.simpleString()}, or a CAST to it"

    def _not_row_by_row(self, frame: DataFrame) -> str | None:
        """Return what of an analyzed expression is not a function of a row; None: nothing."""
        plan = frame._jdf.queryExecution().analyzed()
        pattern = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        if plan.containsPattern(pattern.PLAN_EXPRESSION()):
            return "a subquery"
        is_projection = plan.nodeName() == "Project"
        has_source_below = is_projection and plan.child().children().isEmpty()
        if not has_source_below:
            return "an aggregate, a window or a generator"
        return what_may_differ(self._jvm, plan)

    def _can_assign(self, given: Any, needed: Any) -> bool:
        spark_sql = self._jvm.org.apache.spark.sql
        from_json = spark_sql.types.DataType.fromJson
        given_type = from_json(given.json())
        needed_type = from_json(needed.json())
        can_assign = spark_sql.catalyst.expressions.Cast.canANSIStoreAssign(given_type, needed_type)
        return bool(can_assign)

    @property
    def _jvm(self) -> Any:
        return self.context._jvm


@lru_cache(maxsize=1)
def _session(context: SparkContext) -> SparkSession:
    """Return the session of a context that expressions run in."""
    session = SparkSession(context).newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PySpark from logging an error that is looked for: with its stack, and with values that may be personal."""
    logger = SparkVersion.of_pyspark().query_logger()
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _refusal(field: str, text: str, got: str, allowed: str) -> ConfigError:
    return ConfigError.of(
        f"The spec's {field} cannot be evaluated.",
        got=f"{text}: {got}",
        allowed=allowed,
        next_step=NEXT_STEP,
    )


def _first_line(message: str) -> str:
    """Return an error's words, without the stack and the query below them."""
    first = message.partition("\n")[0]
    return re.sub(r" SQLSTATE: \w+.*$", "", first)
