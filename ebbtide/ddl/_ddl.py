"""Spark column DDL to Arrow, without a JVM: `id BIGINT NOT NULL, tier STRING DEFAULT 'basic'`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import exp

from ebbtide.columns import inner_fields, quoted
from ebbtide.ddl._dialect import SparkSql
from ebbtide.errors import ConfigError
from ebbtide.redaction import has_unseen

_SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}
_NAMES = {type_: name for name, type_ in _SIMPLE.items()} | {
    pa.string(): "STRING",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}
"""Types as they are written."""

MOST_CHARACTERS = 255
"""Maximum characters of a column's name."""
MOST_DIGITS = 40
"""Maximum digits of an integer literal; no column holds more."""


@dataclass(frozen=True)
class TableSchema:
    """A table's columns, and their defaults for records written before they were added.

    Args:
        columns: Names, types, nullability.
        defaults: Column to its DEFAULT as a JSON value, a fraction as a Decimal; columns without one must be in every record.
        comments: Column to its COMMENT.

    Attributes:
        ALLOWED_TYPES: The types of columns, for messages.
    """

    ALLOWED_TYPES: ClassVar[str] = (
        "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, ARRAY<>, MAP<,>, STRUCT<>"
    )

    columns: pa.Schema
    defaults: dict[str, Any]
    comments: dict[str, str]

    @staticmethod
    def is_listable(name: str) -> bool:
        """Return whether a spec can hold a name: it is short enough, and all its characters are visible."""
        return 0 < len(name) <= MOST_CHARACTERS and not has_unseen(name)

    @property
    def all_names(self) -> list[str]:
        """Names of the columns, and of the fields within them."""
        return list(_all_names(self.columns))


def parse_ddl(ddl: str) -> TableSchema:
    """Parse the columns of a Spark `CREATE TABLE`.

    Raises:
        ConfigError: not column DDL, an unsupported type, a repeated column, or a DEFAULT that is not a literal.

    Example:
        >>> parse_ddl("id BIGINT NOT NULL, tier STRING DEFAULT 'basic'").defaults
        {'tier': 'basic'}
    """
    try:
        definitions = _definitions(ddl)
    except (sqlglot.errors.SqlglotError, AttributeError, ValueError, RecursionError) as error:
        raise ConfigError.of(
            "The schema is not column DDL.", got=ddl, allowed="columns such as: id BIGINT NOT NULL, total DECIMAL(12,2)"
        ) from error
    if not definitions:
        raise ConfigError.of("The schema has no columns.", got=ddl, allowed="at least one name and type")
    fields: list[pa.Field] = []
    defaults: dict[str, Any] = {}
    comments: dict[str, str] = {}
    for column in definitions:
        if not isinstance(column, exp.ColumnDef) or column.kind is None:
            raise ConfigError.of(
                "The schema has something that is not a column.",
                got=column.sql(dialect="spark"),
                allowed="a name and a type",
            )
        nullable = True
        for constraint in column.constraints:
            kind = constraint.kind
            if isinstance(kind, exp.NotNullColumnConstraint):
                nullable = bool(kind.args.get("allow_null"))
            elif isinstance(kind, exp.DefaultColumnConstraint):
                defaults[column.name] = _literal(kind.this)
            elif isinstance(kind, exp.CommentColumnConstraint):
                comments[column.name] = kind.this.name
            else:
                raise ConfigError.of(
                    "The schema has a constraint that is not supported.",
                    got=constraint.sql(dialect="spark"),
                    allowed="NOT NULL, DEFAULT, COMMENT",
                )
        fields.append(pa.field(column.name, _arrow_type(column.kind), nullable))
    _refuse_names(fields)
    return TableSchema(pa.schema(fields), defaults, comments)


def ddl_of(columns: Iterable[pa.Field]) -> str:
    """Write columns as DDL that `parse_ddl` reads, without comments and defaults.

    Example:
        >>> ddl_of(parse_ddl("id BIGINT NOT NULL, `a b` STRUCT<x: DECIMAL(4,1)>").columns)
        '`id` BIGINT NOT NULL, `a b` STRUCT<`x`: DECIMAL(4,1)>'
    """
    parts = []
    for column in columns:
        constraint = "" if column.nullable else " NOT NULL"
        parts.append(f"{quoted(column.name)} {type_ddl(column.type)}{constraint}")
    return ", ".join(parts)


def added_ddl(types: Mapping[str, str]) -> list[str]:
    """Write columns for adding to a schema: null in records from before.

    Example:
        >>> added_ddl({"tier": "STRING"})
        ['`tier` STRING DEFAULT NULL']
    """
    return [f"{quoted(name)} {type_} DEFAULT NULL" for name, type_ in types.items()]


def as_written(name: str) -> str:
    """Return a column's name for a schema: quoted unless it parses as a name everywhere.

    Example:
        >>> as_written("total"), as_written("select"), as_written("a b")
        ('total', '`select`', '`a b`')
    """
    in_quotes = quoted(name)
    is_word = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    if not is_word:
        return in_quotes
    # Reserved words depend on the place: both after another column and within a STRUCT are tried.
    meant = pa.schema([("a b", pa.int32()), (name, pa.struct([(name, pa.int32())]))])
    try:
        read = parse_ddl(f"`a b` INT, {name} STRUCT<{name}: INT>").columns
    except ConfigError:
        return in_quotes
    return name if read == meant else in_quotes


def is_column_name(name: str) -> bool:
    """Return whether a user may give a column this name."""
    return _is_usable(name)


def type_ddl(type_: pa.DataType) -> str:
    """Write a type as DDL; arguments as `ddl_of`."""
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"ARRAY<{type_ddl(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"MAP<{type_ddl(type_.key_type)}, {type_ddl(type_.item_type)}>"
    if pa.types.is_struct(type_):
        fields = [f"{quoted(field.name)}: {type_ddl(field.type)}" for field in type_]
        return f"STRUCT<{', '.join(fields)}>"
    return _NAMES[type_]


def _definitions(ddl: str) -> list[exp.Expression]:
    """Parse columns as a table's. Text that closes the list early would add parts to the statement, so it is refused."""
    ddl.encode()  # lone surrogates cannot be stored
    text = f"CREATE TABLE t (\n{ddl}\n)"
    [statement] = sqlglot.parse(text, read=SparkSql)
    if statement is None:
        raise ValueError("no columns")
    unknown = [part for name, part in statement.args.items() if name not in ("this", "kind")]
    if any(unknown):
        raise ValueError("more than columns")
    return list(statement.this.expressions)


def _refuse_names(fields: Sequence[pa.Field]) -> None:
    """Refuse repeated column names, and names that some part of the system cannot use."""
    compared = [as_compared(field.name) for field in fields]
    twice = [field.name for number, field in enumerate(fields) if compared[number] in compared[:number]]
    if twice:
        raise ConfigError.of(
            "The schema names a column twice; Spark ignores case, and readers cannot distinguish two forms of one letter.",
            got=", ".join(twice),
        )
    unusable = [name for name in _all_names(fields) if not _is_usable(name)]
    if unusable:
        raise ConfigError.of(
            "The schema has a column name that is not usable.",
            got=", ".join(map(repr, unusable)),
            allowed=f"1 to {MOST_CHARACTERS} visible characters, the first not '.' or '['",
        )


def _all_names(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of columns, and of all fields within them."""
    for field in fields:
        yield field.name
        if pa.types.is_nested(field.type) and not pa.types.is_map(field.type):
            yield from _all_names(inner_fields(field.type))
        elif pa.types.is_map(field.type):
            yield from _all_names([field.type.key_field, field.type.item_field])


def _is_usable(name: str) -> bool:
    """Return whether all parts of the system can use a column of this name.

    Arrow takes a name that begins with '.' or '[' for a path.
    """
    is_short = 0 < len(name.strip()) <= len(name) <= MOST_CHARACTERS
    return is_short and not has_unseen(name) and not name.startswith((".", "["))


def as_compared(name: str) -> str:
    """Return a form that is equal for names that Spark considers equal: it compares letters in upper, then in lower case.

    Example:
        >>> as_compared("Id") == as_compared("\u0130d") == as_compared("\u0131D")
        True
    """
    letters = unicodedata.normalize("NFC", name)
    return "".join(map(_without_case, letters))


def _without_case(letter: str) -> str:
    upper = letter.upper()
    is_one = len(upper) == 1
    lower = (upper if is_one else letter).lower()
    return lower[0]


def is_exact(type_: pa.DataType) -> bool:
    """Return whether a type's values can be keys and be ordered: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT."""
    return not (pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _arrow_type(kind: exp.DataType) -> pa.DataType:
    name, inner = kind.this.name, kind.expressions
    if name in _SIMPLE and not inner:
        return _SIMPLE[name]
    if name == "DECIMAL" and len(inner) <= 2 and all(part.name.isdecimal() for part in inner):
        precision = int(inner[0].name) if inner else 10
        scale = int(inner[1].name) if len(inner) == 2 else 0
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    if name == "ARRAY" and len(inner) == 1:
        return pa.list_(_arrow_type(inner[0]))
    if name == "MAP" and len(inner) == 2:
        key, value = map(_arrow_type, inner)
        return pa.map_(key, value)
    names = {as_compared(part.name) for part in inner if isinstance(part, exp.ColumnDef)}
    if name == "STRUCT" and inner and len(names) == len(inner):
        fields = [pa.field(part.name, _arrow_type(part.kind)) for part in inner]
        return pa.struct(fields)
    raise ConfigError.of(
        "The schema has a type that is not supported.", got=kind.sql(dialect="spark"), allowed=TableSchema.ALLOWED_TYPES
    )


def _literal(node: exp.Expression) -> Any:
    """Return a literal as the JSON value that a record would carry."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    # sqlglot reads a text with a doubled quote, 'it''s', as two adjacent literals.
    if isinstance(node, exp.Concat) and all(isinstance(e, exp.Literal) for e in node.expressions):
        return "'".join(e.name for e in node.expressions)
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or (negative and literal.is_string):
        raise ConfigError.of(
            "A column's DEFAULT is not a literal.",
            got=node.sql(dialect="spark"),
            allowed="a string, a number, true, false, NULL",
        )
    if literal.is_string:
        return literal.name
    text = ("-" if negative else "") + literal.name
    is_integer = text.lstrip("-").isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_integer else Decimal(text)
