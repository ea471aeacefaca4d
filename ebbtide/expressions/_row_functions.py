"""Functions of a project as Spark's: workers import them from their sources; a row on which one raises gets an error as its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DataType, StringType, StructField, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.sql.udtf import UserDefinedTableFunction

from ebbtide.redaction import printable
from ebbtide.spec import UserFunction
from ebbtide.user_code import Shipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE, ERROR = "value", "error"
"""Fields of what a checked function gives."""
MOST_CHARACTERS = 500
"""Maximum characters of an error."""
MOST_INT = 2**63
MOST_DECIMAL = 10**20
"""Bounds of a BIGINT and of a DECIMAL(38,18), of either sign: the first values that do not fit."""


@dataclass(frozen=True)
class Worker:
    """The function as a worker calls it.

    Args:
        name: Of the function, for errors.
        shipped: The function.
        types: What its values may be; empty: Spark converts them.
    """

    name: str
    shipped: Shipped
    types: tuple[type, ...] = ()

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function, imported here."""
        function: Callable[..., Any] = self.shipped.unpack()
        return function

    def __call__(self, *values: Any) -> Any:
        """Return its value for a row, or for columns of rows."""
        value = self.function(*values)
        if self.types and value is not None:
            return self._typed(value)
        return value

    def _typed(self, value: Any) -> Any:
        """Return a value of the type that was declared: Spark would make NULL of another without a word."""
        expected: Any = self.types[0]
        given = type(value)
        is_of_type: bool = isinstance(value, self.types)
        is_truth_for_number = given is bool and expected is not bool
        if is_truth_for_number or not is_of_type:
            raise TypeError(f"returned {given.__name__}, declared {expected.__name__}")
        if expected is int:
            fits = -MOST_INT <= value < MOST_INT
            if not fits:
                raise OverflowError("returned a number that BIGINT does not hold")
        if expected is Decimal:
            fits = abs(value) < MOST_DECIMAL
            if not fits:
                raise OverflowError("returned a number that DECIMAL(38,18) does not hold")
        return float(value) if expected is float else value

    def reason(self, error: Exception) -> str:
        """Put an error of the function into words."""
        words = f"{self.name}: {type(error).__name__}: {error}"
        return printable(words)[:MOST_CHARACTERS]


@dataclass(frozen=True)
class CheckedRow:
    """Calls a function for a row; what it raises is a value too."""

    worker: Worker

    def __call__(self, *values: Any) -> tuple[Any, str | None]:
        """Return its value, and the error that it raised instead."""
        try:
            return self.worker(*values), None
        except Exception as error:  # noqa: BLE001 - the row's expression fails with it
            return None, self.worker.reason(error)


@dataclass(frozen=True)
class CheckedArrow:
    """Calls a function for columns of rows; if it raises, row by row."""

    worker: Worker

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """Return its values and errors."""
        try:
            return self._values(columns)
        except Exception:  # noqa: BLE001 - some row has it
            checked = list(self._by_row(columns))
        # A row whose function raised has a null without a type: it takes that of a row with a value.
        type_ = checked[0].type
        for each in checked:
            if each.field(VALUE).type != pa.null():
                type_ = each.type
                break
        typed = [each.cast(type_) for each in checked]
        return pa.concat_arrays(typed)

    def _by_row(self, columns: tuple[pa.Array, ...]) -> Iterator[pa.Array]:
        for at in range(len(columns[0])):
            row = tuple(column.slice(at, 1) for column in columns)
            try:
                yield self._values(row)
            except Exception as error:  # noqa: BLE001 - the row's expression fails with it
                reason = self.worker.reason(error)
                yield _checked(pa.nulls(1), pa.array([reason]))

    def _values(self, columns: tuple[pa.Array, ...]) -> pa.Array:
        values = self.worker(*columns)
        _refuse_other_length(len(values), len(columns[0]))
        no_errors = pa.nulls(len(values), pa.string())
        return _checked(values, no_errors)


def _checked(values: pa.Array, errors: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([values, errors], [VALUE, ERROR])


@dataclass(frozen=True)
class CheckedPandas:
    """Calls a function for columns of rows; if it raises, row by row."""

    worker: Worker

    def __call__(self, *columns: Any) -> Any:
        """Return its values and errors."""
        import pandas as pd

        try:
            return self._values(columns)
        except Exception:  # noqa: BLE001 - some row has it
            checked = list(self._by_row(columns))
            return pd.concat(checked, ignore_index=True)

    def _by_row(self, columns: tuple[Any, ...]) -> Iterator[Any]:
        import pandas as pd

        for at in range(len(columns[0])):
            row = tuple(column.iloc[at : at + 1] for column in columns)
            try:
                yield self._values(row)
            except Exception as error:  # noqa: BLE001 - the row's expression fails with it
                reason = self.worker.reason(error)
                yield pd.DataFrame({VALUE: [None], ERROR: [reason]}, dtype=object)

    def _values(self, columns: tuple[Any, ...]) -> Any:
        import pandas as pd

        values = self.worker(*columns)
        _refuse_other_length(len(values), len(columns[0]))
        return pd.DataFrame({VALUE: values.array, ERROR: None})


def _refuse_other_length(n_values: int, n_rows: int) -> None:
    if n_values != n_rows:
        raise ValueError(f"returned {n_values} values for {n_rows} rows")


def register_function(spark: SparkSession, name: str, function: UserFunction) -> None:
    """Make a function of a project callable in the queries of a session; what it raises ends the query.

    Args:
        name: Its name in queries.
        function: The function.
    """
    if function.kind == "table":
        _register_table_function(spark, name, function)
        return
    called = _of_spark(name, function, _worker(name, function), _type_of(function))
    spark.udf.register(name, called)


@dataclass(frozen=True)
class _ShippedClass:
    """The class of a table function; it is unpickled as that class, which PySpark's workers ask for."""

    shipped: Shipped

    def __reduce__(self) -> tuple[Callable[[Shipped], Any], tuple[Shipped]]:
        return Shipped.unpack, (self.shipped,)


def _register_table_function(spark: SparkSession, name: str, function: UserFunction) -> None:
    decorated = function.returns
    called = UserDefinedTableFunction(
        decorated.func,
        decorated.returnType,
        name,
        decorated.evalType,
        decorated.deterministic,
    )
    # PySpark would pickle the class by its name, which workers cannot import; after its checks another object may stand for it.
    called.func = _ShippedClass(Shipped.of(function.call, function.call.__module__))  # type: ignore[assignment]
    spark._jsparkSession.udtf().registerPython(name, called._judtf)  # noqa: SLF001 - as PySpark does


def checked_function(name: str, function: UserFunction) -> UserDefinedFunction:
    """Return a function as transforms call it: it gives `value`, and as `error` what it raised.

    Args:
        name: Its name in expressions.
        function: The function.
    """
    kinds: dict[str, Callable[[Worker], Callable[..., Any]]] = {
        "rows": CheckedRow,
        "pandas": CheckedPandas,
        "arrow": CheckedArrow,
    }
    call = kinds[function.takes](_worker(name, function))
    return _of_spark(name, function, call, checked_type(function))


def checked_type(function: UserFunction) -> StructType:
    """Return the type of what `checked_function` gives."""
    value = StructField(VALUE, _type_of(function))
    error = StructField(ERROR, StringType())
    return StructType([value, error])


def _worker(name: str, function: UserFunction) -> Worker:
    shipped = Shipped.of(function.call, function.call.__module__)
    return Worker(name, shipped, function.python_types)


def _of_spark(name: str, function: UserFunction, call: Callable[..., Any], type_: DataType) -> UserDefinedFunction:
    return UserDefinedFunction(
        call,
        type_,
        name,
        function.eval_type,
        function.is_deterministic,
    )


def _type_of(function: UserFunction) -> DataType:
    if isinstance(function.returns, DataType):
        return function.returns
    return DataType.fromDDL(function.returns)
