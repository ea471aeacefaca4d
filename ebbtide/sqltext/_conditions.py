"""Conditions of users on rows, in Spark's SQL, judged without Spark where their meaning is known.

Known are comparisons of columns and literals of one kind, `IN`, `BETWEEN`, `IS NULL`, casts that neither fail nor round, and `AND`, `OR` and
`NOT` of these. Every part of the text has to be on the list: one that means something else elsewhere would change the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from ebbtide.sqltext._expressions import UnfitExpressionError, parsed

Kind = Literal["number", "text", "flag", "date", "local time", "time"]
"""Groups of types whose values compare equally in Spark, in DuckDB and here."""

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}
_LOGIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {exp.And: pc.and_kleene, exp.Or: pc.or_kleene}
_PARTS = (
    *(*_COMPARISONS, *_LOGIC, exp.Not, exp.Is, exp.In, exp.Between),
    *(exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean, exp.Null),
    *(exp.Cast, exp.TryCast, exp.DataType),
)
_CASTS: dict[tuple[Kind, exp.DType], Kind] = {
    ("time", exp.DType.DATE): "date",
    ("local time", exp.DType.DATE): "date",
    ("time", exp.DType.TIMESTAMPNTZ): "local time",
    ("date", exp.DType.TIMESTAMPNTZ): "local time",
}
"""Casts that neither fail nor round, and their kinds."""
_NUMBER = re.compile(r"\d+(\.\d+)?")
_DIGITS = 38
"""Most digits of a decimal."""
_ANY_NUMBER = pa.decimal256(2 * _DIGITS, _DIGITS)
"""A type that has every decimal, of any scale, and every integer."""


def is_known(node: exp.Expr, columns: pa.Schema) -> bool:
    """Return whether a part of an expression, with the parts in it, means the same in Spark, in DuckDB and here.

    Args:
        node: The part.
        columns: The columns that it may read.
    """
    return all(_is_known_part(part, columns) for part in node.walk())


def _is_known_part(node: exp.Expr, columns: pa.Schema) -> bool:
    if type(node) not in _PARTS:
        return False
    is_known = True
    match node:
        case exp.Column():
            is_known = _type_of(node, columns) is not None
        case exp.Is():
            is_known = isinstance(node.expression, exp.Null)
        case exp.And() | exp.Or() | exp.Not():
            is_known = {_kind_of(each, columns) for each in _operands(node)} == {"flag"}
        case exp.Cast() | exp.Neg():
            is_known = _kind_of(node, columns) is not None
        case exp.Literal() | exp.Boolean() | exp.Null() | exp.Paren() | exp.Identifier() | exp.DataType():
            pass
        case _:  # a comparison
            kinds = {_kind_of(each, columns) for each in _operands(node)}
            is_known = len(kinds) == 1 and None not in kinds and not node.args.get("symmetric")
    return is_known


def _operands(node: exp.Expr) -> list[exp.Expr]:
    return [each for each in node.iter_expressions() if isinstance(each, exp.Expr)]


def _kind_of(node: exp.Expr, columns: pa.Schema) -> Kind | None:
    """Return the kind of an expression; None if it is not on the list."""
    kind: Kind | None = None
    match node:
        case exp.Paren():
            kind = _kind_of(node.this, columns)
        case exp.Column():
            kind = _kind_of_type(_type_of(node, columns))
        case exp.Literal():
            kind = _kind_of_literal(node)
        case exp.Neg(this=exp.Literal(is_string=False)):
            kind = _kind_of_literal(node.this)
        case exp.Cast():
            before = _kind_of(node.this, columns)
            kind = None if before is None else _CASTS.get((before, node.to.this))
        case exp.Boolean() | exp.Not() | exp.Is() | exp.In() | exp.Between():
            kind = "flag"
        case _ if type(node) in _COMPARISONS or type(node) in _LOGIC:
            kind = "flag"
    return kind


def _kind_of_literal(literal: exp.Literal) -> Kind | None:
    text = str(literal.this)
    if literal.is_string:
        return "text" if "\\" not in text else None
    return "number" if _NUMBER.fullmatch(text) and len(text) <= _DIGITS else None


def _kind_of_type(type_: pa.DataType | None) -> Kind | None:
    """Return the kind of a column; floats have none: engines treat NaN and signed zeros differently."""
    kind: Kind | None = None
    if type_ is None:
        return kind
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        kind = "number"
    elif pa.types.is_string(type_):
        kind = "text"
    elif pa.types.is_boolean(type_):
        kind = "flag"
    elif pa.types.is_date32(type_):
        kind = "date"
    elif pa.types.is_timestamp(type_):
        kind = "local time" if type_.tz is None else "time"
    return kind


def _type_of(column: exp.Column, columns: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field of one that is a struct; None if there is none."""
    path = _path(column, columns)
    return path[-1].type if path else None


def _path(column: exp.Column, columns: pa.Schema) -> list[pa.Field]:
    """Return a column, and the fields of structs that lead to its value; empty if there is none. Names are compared without case."""
    fields = list(columns)
    path: list[pa.Field] = []
    for part in column.parts:
        found = [field for field in fields if field.name.lower() == part.name.lower()]
        if len(found) != 1:
            return []
        path.append(found[0])
        type_ = found[0].type
        fields = list(type_) if pa.types.is_struct(type_) else []
    return path


@dataclass(frozen=True)
class Condition:
    """A condition on rows whose meaning is known.

    Args:
        text: The condition.
        columns: The columns of the rows.
    """

    ALLOWED: ClassVar[str] = "comparisons of columns with numbers and texts, IN, BETWEEN, IS NULL, AND, OR, NOT"
    """The parts that one may have, in words."""
    text: str
    columns: pa.Schema

    @classmethod
    def of(cls, text: str, columns: pa.Schema) -> Self | None:
        """Return a condition; None if only Spark can judge it.

        Args:
            text: The condition, in Spark's SQL.
            columns: The columns of the rows.

        Raises:
            UnfitExpressionError: it reads a column that is not there.

        Example:
            >>> columns = pa.schema({"id": pa.int64(), "v": pa.string()})
            >>> rows = pa.table([[1, 2, 3], ["a", None, "c"]], schema=columns)
            >>> Condition.of("id < 3 AND NOT v = 'b'", columns).marks(rows).tolist()
            [True, False, False]
            >>> Condition.of("length(v) = 1", columns) is None
            True
        """
        try:
            tree = parsed(text)
        except UnfitExpressionError:
            return None  # Spark may read it
        if any(type(node) not in _PARTS for node in tree.walk()):
            return None
        names = {name.lower() for name in columns.names}
        unknown = [
            column.parts[0].name for column in tree.find_all(exp.Column) if column.parts[0].name.lower() not in names
        ]
        if unknown:
            raise UnfitExpressionError(f"there is no column {', '.join(dict.fromkeys(unknown))}")
        is_condition = _kind_of(tree, columns) == "flag" and is_known(tree, columns)
        return cls(text, columns) if is_condition else None

    @staticmethod
    def is_known(part: exp.Expr, columns: pa.Schema) -> bool:
        """Return whether a part of an expression, with the parts in it, means the same in Spark, in DuckDB and here.

        Args:
            part: The part.
            columns: The columns that it may read.
        """
        return is_known(part, columns)

    @cached_property
    def _tree(self) -> exp.Expr:
        return parsed(self.text)

    def marks(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Mark the rows that it holds for; those that it is null for are not marked.

        Args:
            rows: With the columns.
        """
        holds = self._value(self._tree, rows)
        if isinstance(holds, pa.Scalar):
            return np.full(len(rows), holds.as_py() is True)
        return np.asarray(holds.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)

    def _value(self, node: exp.Expr, rows: pa.Table) -> Any:
        """Evaluate a part over rows, as Arrow's array or scalar."""
        value: Any
        match node:
            case exp.Column():
                column, *fields = [field.name for field in _path(node, self.columns)]
                value = reduce(pc.struct_field, fields, rows[column])
            case exp.Literal():
                value = pa.scalar(str(node.this) if node.is_string else Decimal(str(node.this)))
            case exp.Neg():
                value = pa.scalar(-Decimal(str(node.this.this)))
            case exp.Boolean():
                value = pa.scalar(bool(node.this))
            case exp.Paren():
                value = self._value(node.this, rows)
            case exp.Is():
                value = pc.is_null(self._value(node.this, rows))
            case exp.Cast():
                type_ = pa.date32() if _kind_of(node, self.columns) == "date" else pa.timestamp("us")
                value = pc.cast(self._value(node.this, rows), type_, safe=False)
            case _:
                value = _combined(node, [self._value(each, rows) for each in _operands(node)])
        return value


def _combined(node: exp.Expr, values: list[Any]) -> Any:
    """Evaluate a part, given the values of the parts in it."""
    if isinstance(node, exp.Not):
        return pc.invert(values[0])
    if type(node) in _LOGIC:
        return _LOGIC[type(node)](*values)
    first, *further = _comparable(values)
    if isinstance(node, exp.In):
        return reduce(pc.or_kleene, [pc.equal(first, each) for each in further])
    if isinstance(node, exp.Between):
        least, greatest = further
        return pc.and_kleene(pc.greater_equal(first, least), pc.less_equal(first, greatest))
    return _COMPARISONS[type(node)](first, *further)


def _comparable(values: list[Any]) -> list[Any]:
    """Return values of one kind in types that compare: numbers in one that has all of them."""
    if not any(pa.types.is_decimal(value.type) for value in values):
        return values
    if all(pa.types.is_integer(value.type) or _is_long(value) for value in values):
        return [value.cast(pa.int64()) for value in values]
    return [value.cast(_ANY_NUMBER) for value in values]


def _is_long(value: Any) -> bool:
    """Return whether a literal is an integer of 64 bits."""
    if not isinstance(value, pa.Scalar):
        return False
    number = int(value.as_py())
    return number == value.as_py() and -(2**63) <= number < 2**63
