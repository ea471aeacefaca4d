"""Calls of a project's functions in a transform's expressions: evaluated beforehand, as columns that the expressions then read.

Spark takes such calls out of an expression and evaluates them, and their arguments, for all rows and outside of `TryEval`, so that one
bad row would end the job. So the arguments are tried, the function returns what it raised as a value, and the expression raises that
where it reads the value: only in rows, and branches, that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from ebbtide.expressions._row_functions import ERROR, VALUE, checked_function, checked_type
from ebbtide.spec import UserFunction
from ebbtide.sqltext import FunctionCall, SqlText

_ARGUMENTS = "_ebbtide_arguments"
_GIVEN = "_ebbtide_given"


@dataclass
class FunctionCalls:
    """The calls in some expressions, in order of evaluation.

    Args:
        functions: Name to function.
        columns: Each call to the column that has what it gives.
        texts: Each expression to one that reads those columns.
    """

    functions: Mapping[str, UserFunction]
    columns: dict[FunctionCall, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, expressions: Iterable[str], functions: Mapping[str, UserFunction]) -> FunctionCalls:
        """Find the calls in some expressions."""
        calls = cls(functions)
        for text in expressions:
            calls.texts[text] = calls._replaced(text)
        return calls

    def _replaced(self, text: str) -> str:
        """Return an expression that reads columns in the place of calls."""
        while True:
            found = SqlText(text).innermost_call(self.functions)
            if found is None:
                return text
            call, start, end = found
            next_name = f"_ebbtide_call{len(self.columns)}"
            column = self.columns.setdefault(call, next_name)
            before = text[:start]
            after = text[end:]
            read = _reading(column)
            text = f"{before}{read}{after}"

    def evaluated(self, frame: DataFrame, tried: Callable[[Column], Column]) -> DataFrame:
        """Return a frame with the columns of the calls.

        Args:
            frame: The rows.
            tried: Gives null for a value whose evaluation fails.
        """
        # Innermost calls first, as they were found: the columns of a call stand when one around it is evaluated.
        for call, column in self.columns.items():
            # With this field a struct of null arguments is not null: null is what `tried` makes of arguments whose evaluation fails.
            fields = [F.lit(True).alias("is_whole")]
            for number, text in enumerate(call.arguments):
                argument = F.expr(text)
                fields.append(argument.alias(f"a{number}"))
            arguments = tried(F.struct(*fields))
            frame = (
                frame.withColumn(_ARGUMENTS, arguments)
                .withColumn(_GIVEN, self._given(call))
                .withColumn(column, _value_or_error(call))
                .drop(_ARGUMENTS, _GIVEN)
            )
        return frame

    def _given(self, call: FunctionCall) -> Column:
        """Return the function's result for the given arguments."""
        arguments = []
        for number in range(len(call.arguments)):
            argument = F.col(f"{_ARGUMENTS}.a{number}")
            arguments.append(argument)
        called = self.functions[call.function]
        function = checked_function(call.function, called)
        return function(*arguments)

    def fields(self) -> list[StructField]:
        """Return the columns of the calls."""
        fields = []
        for call, column in self.columns.items():
            function = self.functions[call.function]
            type_ = checked_type(function)
            fields.append(StructField(column, type_))
        return fields


def _reading(column: str) -> str:
    """Return the replacement of a call: its value, or its error."""
    value = f"{column}.{VALUE}"
    error = f"{column}.{ERROR}"
    return f"if({error} IS NULL, {value}, raise_error({error}))"


def _value_or_error(call: FunctionCall) -> Column:
    value = F.col(f"{_GIVEN}.{VALUE}")
    raised = F.col(f"{_GIVEN}.{ERROR}")
    unusable = F.lit(f"{call.function}: its arguments fail")
    has_arguments = F.col(_ARGUMENTS).isNotNull()
    error = F.when(has_arguments, raised).otherwise(unusable)
    return F.struct(value.alias(VALUE), error.alias(ERROR))
