"""A project's queries for Spark: those with the same meaning in DuckDB can run in this process.

The parts of a query and the types that it compares must be on a list; otherwise Spark runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

BATCH = "_ebbtide_batch"
Kind = Literal["number", "text", "flag", "date", "local time", "time"]
"""Groups of types whose values compare equally in both engines."""

_PARTS: tuple[type[exp.Expr], ...] = (
    *(
        exp.Select,
        exp.Star,
        exp.From,
        exp.Where,
        exp.Table,
        exp.Column,
        exp.Identifier,
        exp.Literal,
        exp.Boolean,
        exp.Null,
    ),
    *(
        exp.And,
        exp.Or,
        exp.Not,
        exp.Paren,
        exp.EQ,
        exp.NEQ,
        exp.LT,
        exp.LTE,
        exp.GT,
        exp.GTE,
        exp.Is,
        exp.In,
        exp.Between,
    ),
    *(exp.Cast, exp.TryCast, exp.DataType),
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between)
_CASTS: Mapping[tuple[Kind, exp.DType], Kind] = {
    ("time", exp.DType.DATE): "date",
    ("local time", exp.DType.DATE): "date",
    ("time", exp.DType.TIMESTAMPNTZ): "local time",
    ("date", exp.DType.TIMESTAMPNTZ): "local time",
}
"""Casts that neither fail nor round, and their types."""


def for_duckdb(query: str, columns: pa.Schema) -> str | None:
    """Return a query in DuckDB's SQL; None if it may mean something else there.

    Args:
        query: In Spark's SQL; `{batch}` is the rows.
        columns: Those of the rows.
    """
    if query.count("{batch}") != 1 or query.count("{") != 1:
        return None
    try:
        parsed = parse_one(query.replace("{batch}", BATCH), read="spark")
    except SqlglotError:
        return None
    kinds = {column.name.lower(): _kind(column.type) for column in columns}
    # Every node of the tree has to be known: one part that means something else would change the answer.
    if not isinstance(parsed, exp.Select) or not all(_is_known(node, kinds) for node in parsed.walk()):
        return None
    for name in parsed.find_all(exp.Identifier):
        name.set("quoted", True)
    return parsed.sql(dialect="duckdb")


def _is_known(node: exp.Expr, kinds: Mapping[str, Kind | None]) -> bool:
    """Return whether a part of a query means the same to both engines."""
    if type(node) not in _PARTS:
        return False
    if isinstance(node, exp.Select):
        given = {name for name, value in node.args.items() if value}
        return node.parent is None and given <= {"expressions", "from", "from_", "where", "kind"}
    if isinstance(node, exp.Table):
        return node.name == BATCH and not node.alias
    if isinstance(node, exp.Column):
        return (node.name.lower() in kinds and not node.table) or isinstance(node.this, exp.Star)
    if isinstance(node, exp.Cast):
        return _kind_of(node, kinds) is not None
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Null)
    if isinstance(node, _COMPARISONS):
        sides = [each for each in node.iter_expressions() if isinstance(each, exp.Expr)]
        compared = {_kind_of(each, kinds) for each in sides}
        return len(compared) == 1 and None not in compared
    return True


def _kind_of(node: exp.Expr, kinds: Mapping[str, Kind | None]) -> Kind | None:
    """Return the kind of a compared expression; None if it is not on the list."""
    if isinstance(node, exp.Paren):
        return _kind_of(node.this, kinds)
    if isinstance(node, exp.Column):
        return kinds.get(node.name.lower())
    if isinstance(node, exp.Literal):
        if node.is_string:
            return "text" if "\\" not in str(node.this) else None
        return "number" if str(node.this).isdigit() else None
    if isinstance(node, exp.Boolean):
        return "flag"
    if isinstance(node, exp.Cast):
        before = _kind_of(node.this, kinds)
        return None if before is None else _CASTS.get((before, node.to.this))
    return None


def _kind(type_: pa.DataType) -> Kind | None:
    """Return the kind of a column; floats have none: engines treat NaN and signed zeros differently."""
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_string(type_):
        return "text"
    if pa.types.is_boolean(type_):
        return "flag"
    if pa.types.is_date32(type_):
        return "date"
    if pa.types.is_timestamp(type_):
        return "local time" if type_.tz is None else "time"
    return None
