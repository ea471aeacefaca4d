"""Checks Spark SQL expressions without a JVM: the columns that they read, and visible errors.

Spark's analyzer may still refuse an expression that passes here (`ebbtide.expressions._expressions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp

from ebbtide.ddl import SparkSql, as_compared
from ebbtide.sqltext._changing import CHANGING, has_collation, what_changes
from ebbtide.sqltext._spark_functions import SparkFunctions

GENERATORS = frozenset(
    {
        "EXPLODE",
        "EXPLODE_OUTER",
        "POSEXPLODE",
        "POSEXPLODE_OUTER",
        "INLINE",
        "INLINE_OUTER",
        "JSON_TUPLE",
        "STACK",
        "VARIANT_EXPLODE",
        "VARIANT_EXPLODE_OUTER",
    }
)
"""Functions that turn one row into several."""
FORBIDDEN: dict[str, tuple[Any, ...]] = {
    "an aggregate": (exp.AggFunc,),
    "a window": (exp.Window,),
    "a subquery": (exp.Query,),
    "a star": (exp.Star,),
    "a parameter": (exp.Placeholder, exp.Parameter),
}
"""Kinds of SQL other than expressions over one row, with their descriptions."""


CHANGES = "which does not follow from the row"


class UnfitExpressionError(ValueError):
    """Raised for an expression that cannot be evaluated row by row; the message says why."""


def columns_read(text: str, names: Iterable[str]) -> list[str]:
    """Return the columns that an expression reads, in the order of `names`.

    Args:
        text: The expression, Spark SQL.
        names: Available columns.

    Raises:
        UnfitExpressionError: it does not parse, reads another column, or depends on more than one row.

    Example:
        >>> columns_read("upper(Status) || address.city", ["id", "status", "address"])
        ['status', 'address']
    """
    tree = parsed(text)
    _refuse_forbidden(tree)
    changing = what_changes(text)
    if changing is not None:
        raise UnfitExpressionError(f"it has {changing}, {CHANGES}")
    name_of = {as_compared(name): name for name in names}
    read = set()
    unknown = []
    for column in tree.find_all(exp.Column):
        first = column.parts[0].name  # what follows a dot is a field of a struct
        known = name_of.get(as_compared(first))
        if known is None:
            unknown.append(first)
        read.add(known)
    if unknown:
        listed = ", ".join(dict.fromkeys(unknown))
        raise UnfitExpressionError(f"there is no column {listed}")
    return [name for name in name_of.values() if name in read]


def single_column(text: str, names: Iterable[str]) -> str | None:
    """Return the column if an expression is just a column; None otherwise.

    Example:
        >>> single_column("ID", ["id"]), single_column("id + 1", ["id"])
        ('id', None)
    """
    tree = parsed(text)
    if not isinstance(tree, exp.Column):
        return None
    is_plain = len(tree.parts) == 1
    if not is_plain:
        return None
    [column] = columns_read(text, names)
    return column


def parsed(text: str) -> exp.Expression:
    """Parse one expression.

    Raises:
        UnfitExpressionError: it is not one.
    """
    try:
        statements = sqlglot.parse(f"SELECT {text}", read=SparkSql)
    except (sqlglot.errors.SqlglotError, AttributeError, ValueError, RecursionError) as error:
        why = str(error).partition(". Line")[0].partition("\n")[0]
        raise UnfitExpressionError(f"it does not parse ({why})") from error
    [select] = statements if len(statements) == 1 else [None]
    if not isinstance(select, exp.Select):
        raise UnfitExpressionError("it is not one expression")
    clauses = [name for name, value in select.args.items() if value]
    is_one = clauses == ["expressions"] and len(select.expressions) == 1
    if not is_one:
        raise UnfitExpressionError("it is not one expression")
    tree: exp.Expression = select.expressions[0]
    if isinstance(tree, exp.Alias):
        raise UnfitExpressionError("it has an alias; its name is the key before it")
    return tree


def _refuse_forbidden(tree: exp.Expression) -> None:
    for what, types in FORBIDDEN.items():
        if tree.find(*types):
            raise UnfitExpressionError(f"it has {what}")
    for function in tree.find_all(exp.Func):
        names = _names_of(function)
        if names & GENERATORS:
            raise UnfitExpressionError(f"it has a generator, {min(names & GENERATORS)}")
        if names & CHANGING:
            raise UnfitExpressionError(f"it has {min(names & CHANGING)}, {CHANGES}")


def _names_of(function: exp.Func) -> set[str]:
    if isinstance(function, exp.Anonymous):
        return {function.name.upper()}
    return {name.upper() for name in function.sql_names()}


@dataclass(frozen=True)
class FunctionCall:
    """A call of a project's function in an expression.

    Args:
        function: Its name, in lower case.
        arguments: As text; calls in them have been replaced.
    """

    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class SqlText:
    """A text of Spark's SQL, without Spark.

    Args:
        text: An expression, or a query.

    Attributes:
        CHANGING: Functions, in capitals, whose value does not follow from a row.
        GENERATORS: Functions, in capitals, that make several rows of one.
        SPARK: The functions of Spark.
    """

    text: str

    CHANGING: ClassVar[frozenset[str]] = CHANGING
    GENERATORS: ClassVar[frozenset[str]] = GENERATORS
    SPARK: ClassVar[type[SparkFunctions]] = SparkFunctions

    def columns_read(self, names: Iterable[str]) -> list[str]:
        """Return the columns that an expression reads, in the order of `names`.

        Args:
            names: Available columns.

        Raises:
            UnfitExpressionError: it does not parse, reads another column, or depends on more than one row.
        """
        return columns_read(self.text, names)

    def single_column(self, names: Iterable[str]) -> str | None:
        """Return the column if an expression is just a column; None otherwise.

        Args:
            names: Available columns.
        """
        return single_column(self.text, names)

    def functions_called(self, functions: Collection[str]) -> set[str]:
        """Return which of some functions an expression calls."""
        return functions_called(self.text, functions)

    def innermost_call(self, functions: Collection[str]) -> tuple[FunctionCall, int, int] | None:
        """Return the last call of some functions in an expression, with its start and end; None: there is none.

        Args:
            functions: Their names, in lower case.
        """
        return innermost_call(self.text, functions)

    def what_changes(self) -> str | None:
        """Return the part whose value changes by itself; None: none that the text shows.

        Raises:
            ValueError: it cannot be split into tokens.
        """
        return what_changes(self.text)

    def has_collation(self) -> bool:
        """Return whether a query compares texts by a collation."""
        return has_collation(self.text)


def _is_call(kinds: Sequence[TokenType], at: int) -> bool:
    """Return whether a name is a call: not a text or a field before a parenthesis."""
    before = kinds[at - 1] if at else None
    following = kinds[at + 1]
    if following is not TokenType.L_PAREN:
        return False
    is_text = kinds[at] is TokenType.STRING
    is_field = before is TokenType.DOT
    return not (is_text or is_field)


def innermost_call(text: str, functions: Collection[str]) -> tuple[FunctionCall, int, int] | None:
    """Return the last call of some functions in an expression, with its start and end; None: there is none.

    No other call begins after it, so its arguments contain none.

    Args:
        text: The expression; it parses.
        functions: Their names, in lower case.

    Example:
        >>> innermost_call("tidy(a, tidy(b)) || c", ["tidy"])
        (FunctionCall(function='tidy', arguments=('b',)), 8, 15)
    """
    tokens = sqlglot.tokenize(text, read=SparkSql)
    kinds = [token.token_type for token in tokens]
    # From the end: the last call has no call among its arguments, and replacing it keeps the places of earlier ones.
    for at in reversed(range(len(tokens) - 1)):
        name = tokens[at].text.lower()
        if name not in functions or not _is_call(kinds, at):
            continue
        marks = _argument_marks(kinds, at + 1)
        offsets = [tokens[mark].start for mark in marks]
        arguments = []
        for mark, next_mark in pairwise(offsets):
            argument = text[mark + 1 : next_mark].strip()
            if argument:
                arguments.append(argument)
        call = FunctionCall(name, tuple(arguments))
        end = offsets[-1] + 1
        return call, tokens[at].start, end
    return None


def functions_called(text: str, functions: Collection[str]) -> set[str]:
    """Return which of some functions an expression calls.

    Example:
        >>> functions_called("tidy(a) || other(b)", ["tidy", "trim_all"])
        {'tidy'}
    """
    names = {function.name.lower() for function in parsed(text).find_all(exp.Anonymous)}
    return names.intersection(functions)


def _argument_marks(kinds: list[TokenType], opening: int) -> list[int]:
    """Return the places of a parenthesis, its closing one, and the commas between that are in no inner parenthesis."""
    depth = 0
    marks = []
    # Depth 1 is within the call's own parenthesis: a comma there ends one of its arguments. A mark is taken before a
    # closing parenthesis lowers the depth, so it counts at its level.
    for at in range(opening, len(kinds)):
        kind = kinds[at]
        if kind in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        if depth == 1 and (at == opening or kind in (TokenType.COMMA, TokenType.R_PAREN)):
            marks.append(at)
        if kind in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
        if depth == 0:
            break
    return marks
