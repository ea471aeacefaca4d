"""INSERT INTO: a table and the changelog that fills it become a pipeline, a `defs.yaml`.

sqlglot parses the query. The texts of expressions are cut from the statement, since sqlglot would print some of them differently.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sqlglot
from pydantic import ValidationError
from sqlglot import Token, TokenType, exp

from ebbtide import UpsertPipeline
from ebbtide.ddl import SparkSql, TableSchema, parse_ddl, type_ddl
from ebbtide.errors import ConfigError, SqlError
from ebbtide.spec import SpecFile
from ebbtide.sql._catalog import Catalog, Declared, DeclaredKind, Filled, kind_in_words, write_pipeline
from ebbtide.sql._declare import imported, refuse_beyond_rows, refuse_indeterministic
from ebbtide.sql._listing import quoted
from ebbtide.sql._options import attributes_of, explained
from ebbtide.sql._statements import Insert
from ebbtide.sql._tokens import Statement, keyword

_STRAY_COMMAS = {
    ("SELECT", ","),
    (",", ","),
    (",", "FROM"),
}
"""Misplaced commas that sqlglot accepts."""


@dataclass(frozen=True)
class Filling:
    """The pipeline of an INSERT INTO.

    Args:
        attributes: Attributes of the pipeline.
        existing: The same pipeline, if it exists.
    """

    attributes: dict[str, Any]
    existing: Filled | None = None

    @property
    def name(self) -> str:
        """Name of the table and the pipeline."""
        return str(self.attributes["name"])

    @property
    def expressions(self) -> list[str]:
        """Expressions that Spark evaluates for each row."""
        transform = self.attributes.get("transform", {})
        selected = transform.get("select", {}).values()
        condition = transform.get("where")
        conditions = [] if condition is None else [condition]
        return [*selected, *conditions]


def plan_insert(catalog: Catalog, asked: Insert) -> Filling:
    """Return the pipeline that a statement asks for. Writes nothing.

    Raises:
        SqlError: there is no such table or source, or a pipeline cannot apply the query.
    """
    query = _parsed(asked.query)
    source = _source(catalog, query, asked.query)
    functions = _functions(catalog, query)
    name = asked.table.lower()
    entry = catalog.entries().get(name)
    if isinstance(entry, Filled):
        return _again(entry, source, query, asked, functions)
    if entry is None or entry.kind is not DeclaredKind.TABLE:
        raise SqlError.of(
            f"There is no table '{name}'.",
            got=kind_in_words(entry),
            next_step=f"CREATE TABLE {name} (..) first.",
        )
    attributes = _attributes(source, entry, query, asked, functions)
    try:
        UpsertPipeline.model_validate(attributes)
    except (ValidationError, ConfigError) as error:
        raise explained(error, {}) from error
    return Filling(attributes)


def write_filling(catalog: Catalog, filling: Filling) -> str:
    """Write the pipeline's definition, unless it exists; return its folder."""
    if filling.existing is not None:
        return str(filling.existing.location)
    folder = write_pipeline(catalog, filling.attributes)
    catalog.file_of(DeclaredKind.TABLE, filling.name).unlink(missing_ok=True)
    return str(folder)


def _parsed(query: Statement) -> exp.Select:
    try:
        parsed = sqlglot.parse_one(query.text, read=SparkSql)
    except sqlglot.errors.ParseError as error:
        details = error.errors[0] if error.errors else {}
        found = details.get("highlight")
        raise SqlError.of(
            f"The query at {query.place} cannot be read.",
            got=found or query.text[:40],
            allowed="SELECT expressions FROM source [WHERE condition]",
            next_step=str(details.get("description", "")),
        ) from error
    marks = [keyword(token) for token in query.tokens]
    stray_commas = [pair for pair in pairwise(marks) if pair in _STRAY_COMMAS]
    if stray_commas:
        raise SqlError.of(
            f"The query at {query.place} cannot be read.",
            got=" ".join(stray_commas[0]),
            allowed="one comma between two expressions",
        )
    if not isinstance(parsed, exp.Select):
        raise _not_applicable(query, type(parsed).key.upper())
    return parsed


def _source(catalog: Catalog, query: exp.Select, statement: Statement) -> Declared:
    """Return the source of a query; refuse clauses that cannot be applied to each change by itself."""
    unfit = {
        "joins": "JOIN: declare a materialized view over tables",
        "group": "GROUP BY: declare a materialized view over tables",
        "having": "HAVING",
        "distinct": "DISTINCT: the table's key makes its rows distinct",
        "order": "ORDER BY: a table has no order",
        "limit": "LIMIT",
        "with_": "WITH",
        "laterals": "LATERAL VIEW",
        "windows": "WINDOW",
        "qualify": "QUALIFY",
    }
    for part, what in unfit.items():
        if query.args.get(part):
            raise _not_applicable(statement, what)
    tables = list(query.find_all(exp.Table))
    subqueries = list(query.find_all(exp.Subquery, exp.Exists))
    if len(tables) != 1 or subqueries:
        raise _not_applicable(statement, "no source or several")
    if len(tables[0].parts) > 1:
        raise SqlError.of(
            "INSERT INTO reads a declared source, a changelog; this is a table of another catalog.",
            got=tables[0].sql(dialect="spark"),
            allowed="the name of a source, alone",
            next_step="Query that table, or hand its rows over by ebbtide.spark.upsert: docs/how-to/spark-streams.md.",
        )
    name = tables[0].name.lower()
    sources = catalog.declared(DeclaredKind.SOURCE)
    if name not in sources:
        raise SqlError.of(
            f"There is no source '{name}'.",
            allowed=", ".join(sources) or "none: there is no source yet",
            next_step="CREATE SOURCE declares a changelog. A query over tables is a materialized view.",
        )
    return sources[name]


def _functions(catalog: Catalog, query: exp.Select) -> dict[str, str]:
    """Return the declared functions that a query calls, name to `module:name`.

    Raises:
        SqlError: a function cannot be called, or is not declared deterministic.
    """
    declared = catalog.declared(DeclaredKind.FUNCTION)
    called = {function.name.lower() for function in query.find_all(exp.Anonymous)}
    found = {}
    for name in sorted(called & declared.keys()):
        function = declared[name]
        refuse_indeterministic(function)
        refuse_beyond_rows(function, imported(catalog, function))
        found[name] = function.target
    return found


def _not_applicable(statement: Statement, got: str) -> SqlError:
    return SqlError.of(
        f"A pipeline cannot apply the query at {statement.place} to each change.",
        got=got,
        allowed="SELECT expressions FROM one source [WHERE condition]",
    )


def _again(
    entry: Filled,
    source: Declared,
    query: exp.Select,
    asked: Insert,
    functions: dict[str, str],
) -> Filling:
    """Return the existing pipeline of a table, if it is that of the statement.

    Raises:
        SqlError: it is of another statement.
    """
    # The pipeline's own table and comment are put in the place of a declaration. If the statement then makes other attributes than the
    # file has, it is another statement; attributes that the user has added to the file are left as they are.
    entry.refuse_shared_file()
    stored = SpecFile.read(entry.location).attributes
    transform = stored.get("transform", stored)
    key, comment = tuple(transform["key"]), stored.get("description", "")
    table = Declared(DeclaredKind.TABLE, entry.name, transform["schema"], key, comment=comment)
    attributes = _attributes(source, table, query, asked, functions)
    from_statement = {**attributes, "transform": attributes.get("transform")}
    different = [name for name, value in from_statement.items() if stored.get(name) != value]
    if different:
        raise SqlError.of(
            f"The table '{entry.name}' is filled by another statement already.",
            got=", ".join(different),
            allowed=f"what '{entry.location}' says",
            next_step="Fill another table; or change that file, and run 'ebbtide migrate' or 'ebbtide refresh'.",
        )
    return Filling(stored, entry)


def _attributes(
    source: Declared,
    table: Declared,
    query: exp.Select,
    asked: Insert,
    functions: dict[str, str],
) -> dict[str, Any]:
    attributes = attributes_of(source.options, table.options)
    projection = _projection(query, asked.query)
    selected = _selected(source, table, projection, asked)
    named = {"name": table.name, "description": table.comment or source.comment}
    of_table = {"schema": table.columns, "key": list(table.key)}
    has_ordering_columns = set(_ordering(source, attributes)) <= set(selected)
    takes_all_rows = projection.where is None and has_ordering_columns
    # Without a computation the pipeline needs no transform: decoding leaves out the columns that its schema lacks.
    if takes_all_rows and _takes_columns_as_they_are(source, table, selected):
        if attributes["order"] == "arrival" and table.key != source.key:
            attributes.setdefault("materializer", {}).setdefault(
                "upsert_key",
                list(source.key),
            )
        return _in_order({**named, **of_table, **attributes})
    transform = {**of_table, "select": selected, "where": projection.where, "functions": functions or None}
    own = {
        "schema": source.columns,
        "key": list(source.key),
        "transform": {name: value for name, value in transform.items() if value is not None},
    }
    return _in_order({**named, **own, **attributes})


def _projection(query: exp.Select, statement: Statement) -> Projection:
    has_alias = [isinstance(expression, exp.Alias) for expression in query.expressions]
    # A pipeline has one source, so qualifiers of columns mean nothing in its transform.
    [table] = query.find_all(exp.Table)
    qualifiers = {table.name.lower(), table.alias_or_name.lower()}
    return read_projection(statement, has_alias, qualifiers)


def _selected(
    source: Declared,
    table: Declared,
    projection: Projection,
    asked: Insert,
) -> dict[str, str]:
    """Return each column of the table and the expression that fills it, by position."""
    of_source = parse_ddl(source.columns).columns.names
    all_columns = [quoted(name) for name in of_source]
    expressions: list[str] = []
    for expression in projection.expressions:
        expressions += all_columns if expression == "*" else [expression]
    known = parse_ddl(table.columns).columns.names
    names = list(asked.columns) or known
    if len(names) != len(expressions):
        raise SqlError.of(
            f"The query at {asked.query.place} does not fill the columns of '{table.name}'.",
            got=f"{len(expressions)} expressions",
            allowed=f"{len(names)}: {', '.join(names)}",
        )
    if sorted(names) != sorted(known):
        what = f"The columns named after '{table.name}' are not the table's."
        raise SqlError.of(what, got=", ".join(names), allowed=", ".join(known))
    return dict(zip(names, expressions, strict=True))


def _takes_columns_as_they_are(
    source: Declared,
    table: Declared,
    selected: dict[str, str],
) -> bool:
    """Return whether no column is computed, renamed or converted, and the key of the source is kept."""
    read = parse_ddl(source.columns)
    filled = parse_ddl(table.columns)
    for name, expression in selected.items():
        is_same_column = expression in (name, quoted(name)) and name in read.columns.names
        if not is_same_column:
            return False
        if _column(read, name) != _column(filled, name):
            return False
    return set(source.key) <= set(selected)


def _ordering(source: Declared, attributes: dict[str, Any]) -> list[str]:
    """Return the source's columns that order its changes or hold their event time: a pipeline must read them."""
    order = attributes["order"]
    names: list[str] = []
    if isinstance(order, Mapping):
        names += order["sequence"]
    if "event_time" in attributes:
        names.append(attributes["event_time"])
    known = parse_ddl(source.columns).columns.names
    return [name for name in names if name in known]


def _column(table: TableSchema, name: str) -> tuple[str, bool, Any]:
    """Return a column's type, whether it has a default for records that lack it, and the default."""
    field = table.columns.field(name)
    has_default = name in table.defaults
    default = table.defaults.get(name)
    return type_ddl(field.type), has_default, default


_ORDER = ("name", "description", "source", "format", "schema", "transform", "key", "order", "ttl")


def _in_order(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes in the order of the file, without empty ones."""
    known = [name for name in _ORDER if name in attributes]
    further = [name for name in attributes if name not in _ORDER]
    ordered = {}
    for name in [*known, *further]:
        if attributes[name] != "":
            ordered[name] = attributes[name]
    return ordered


@dataclass(frozen=True)
class Projection:
    """`SELECT expressions FROM source [WHERE condition]`.

    Args:
        expressions: Texts of the expressions, without aliases.
        where: Text of the condition.
    """

    expressions: tuple[str, ...]
    where: str | None = None


def read_projection(
    query: Statement,
    has_alias: Sequence[bool],
    qualifiers: Collection[str],
) -> Projection:
    """Read a query over one source that has no other clauses.

    Args:
        query: Query that sqlglot has parsed.
        has_alias: For each expression, whether it has an alias.
        qualifiers: Names of the source that columns may have as a prefix, which is left out.
    """
    # sqlglot has parsed the query, so its clauses come in the known order. The text of each expression is cut from the statement at
    # the commas, FROM and WHERE outside of brackets: printed by sqlglot it could differ from what was written.
    words = [keyword(token) for token in query.tokens]
    outer = _outside_brackets(query.tokens)
    from_ = next(position for position in outer if _is_clause(words, position))
    wheres = [position for position in outer if words[position] == "WHERE" and position > from_]
    commas = [position for position in outer if words[position] == "," and position < from_]
    ends = [*commas, from_]
    start = 1  # after SELECT
    texts = []
    for end, is_named in zip(ends, has_alias, strict=True):
        part = query.tokens[start:end]
        own = _without_alias(part) if is_named else part
        text = _without_qualifiers(query, own, qualifiers)
        texts.append(text)
        start = end + 1
    where = None
    if wheres:
        condition = query.tokens[wheres[0] + 1 :]
        where = _without_qualifiers(query, condition, qualifiers)
    return Projection(tuple(texts), where)


def _is_clause(words: Sequence[str], at: int) -> bool:
    """Return whether a word begins the clause FROM; in IS DISTINCT FROM it does not."""
    return words[at] == "FROM" and words[at - 1] != "DISTINCT"


def _without_alias(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens of an expression without its alias."""
    n_alias = 2 if keyword(tokens[-2]) == "AS" else 1
    return tokens[:-n_alias]


def _outside_brackets(tokens: Sequence[Token]) -> list[int]:
    """Return the positions of the tokens outside of brackets, the brackets included."""
    depth = 0
    found = []
    for at, token in enumerate(tokens):
        mark = keyword(token)
        if mark in {")", "]"}:
            depth -= 1
        if depth == 0:
            found.append(at)
        if mark in {"(", "["}:
            depth += 1
    return found


def _without_qualifiers(
    query: Statement,
    tokens: Sequence[Token],
    qualifiers: Collection[str],
) -> str:
    """Return the text of some tokens, without qualifiers."""
    part = query.part(tokens)
    text = part.text
    pairs = list(pairwise(part.tokens))
    for name, dot in reversed(pairs):  # from the end on, so that the offsets before stay valid
        if dot.text == "." and _is_qualifier(name, qualifiers):
            before = text[: name.start]
            after = text[dot.end + 1 :]
            text = before + after
    return text


def _is_qualifier(token: Token, qualifiers: Collection[str]) -> bool:
    is_name = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return is_name and token.text.lower() in qualifiers
