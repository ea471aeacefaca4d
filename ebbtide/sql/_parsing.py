"""Parses one statement: a table of first words to readers; each reader is a recursive descent over a `Cursor` of tokens.

A reader returns None for a statement of Spark: then the next reader tries from the first token. A statement that no reader takes is
a query or another statement of Spark, which receives it as it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from sqlglot import Token, TokenType

from ebbtide.errors import SqlSyntaxError
from ebbtide.sql import _statements as ast
from ebbtide.sql._statements import Client, IfThere, ObjectKind, Option, Options, Parsed, Shown
from ebbtide.sql._tokens import QUOTED, Cursor, Statement, keyword, split

QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")
"""First words of queries."""
OF_SPARK = frozenset(
    {
        *(
            "ADD",
            "ALTER",
            "ANALYZE",
            "BEGIN",
            "CACHE",
            "CALL",
            "CLEAR",
            "CLONE",
            "COMMENT",
            "COMMIT",
            "CONVERT",
            "CREATE",
        ),
        *("DECLARE", "DELETE", "DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE", "EXPLAIN", "EXPORT", "GENERATE", "GRANT"),
        *("IMPORT", "INSERT", "LIST", "LOAD", "LOCK", "MAP", "MERGE", "MSCK", "OPTIMIZE", "REDUCE", "REFRESH", "REORG"),
        *("REPAIR", "REPLACE", "RESET", "RESTORE", "REVOKE", "ROLLBACK", "SET", "SHOW", "START", "TRUNCATE", "UNCACHE"),
        *("UNLOCK", "UPDATE", "USE", "VACUUM"),
        *("CODEGEN", "COST", "EXTENDED", "FORMATTED"),  # behind EXPLAIN
    }
)
"""First words of the other statements that Spark's parser and Delta's have, and of what its EXPLAIN takes."""
OF_SPARK_TOO = (Shown.TABLES, Shown.FUNCTIONS, Shown.CATALOGS)
"""Objects that Spark's SHOW lists too, of a database or by other patterns."""


def parse(statement: Statement) -> Parsed:
    """Read one statement.

    Args:
        statement: Statement of `ebbtide.sql._tokens.split`.

    Raises:
        SqlSyntaxError: it begins as one of ours, but cannot be read to its end; or as no statement does.

    Example:
        >>> parse_text("SHOW STEPS FROM orders")
        Show(what=<Shown.STEPS: 'STEPS'>, of='orders', pattern=None)
    """
    cursor = Cursor(statement)
    for words, read in _READERS.items():
        if cursor.take(*words.split()):
            parsed = read(cursor)
            if parsed is not None:
                cursor.end()
                return parsed
            cursor = Cursor(statement)
    first, *_ = cursor.words(1)
    if first in QUERIES:
        return _select(statement)
    if first not in OF_SPARK:
        # Spark would refuse it as well, once its JVM had started.
        known = sorted({*QUERIES, *OF_SPARK, *(words.split()[0] for words in _READERS)})
        close = get_close_matches(first, known, n=1)
        cursor.refuse("the first word of a statement", f"Did you mean {close[0]}?" if close else None)
    return ast.SparkStatement(statement)


def parse_text(text: str) -> Parsed:
    """Read the single statement of a text.

    Raises:
        SqlSyntaxError: the text cannot be read, or is not one statement.
    """
    return parse(single(text))


def single(text: str) -> Statement:
    """Return the single statement of a text.

    Raises:
        SqlSyntaxError: the text cannot be split, or is not one statement.
    """
    found = split(text)
    if len(found) != 1:
        raise SqlSyntaxError.of(
            "This is not one statement.",
            got=f"{len(found)} statements",
            allowed="one",
        )
    return found[0]


def _create(cursor: Cursor) -> Parsed | None:
    replaces = cursor.take("OR", "REPLACE")
    _refuse_type(cursor)
    kind = cursor.take_one(ObjectKind)
    if kind is None:
        return None  # such as CREATE VIEW and CREATE DATABASE, which are Spark's
    keeps = not replaces and cursor.take("IF", "NOT", "EXISTS")
    if_there = IfThere.FAIL
    if replaces:
        if_there = IfThere.REPLACE
    elif keeps:
        if_there = IfThere.KEEP
    name = cursor.name("a name")
    match ObjectKind(kind):
        case ObjectKind.FUNCTION:
            cursor.expect("AS")
            target = cursor.text("'module:name'")
            return ast.CreateFunction(
                name,
                target,
                _options(cursor),
                if_there,
                is_deterministic=cursor.take("DETERMINISTIC"),
            )
        case ObjectKind.MATERIALIZED_VIEW:
            return _create_view(cursor, name, if_there)
        case ObjectKind.SOURCE:
            return ast.CreateSource(name, *_table_parts(cursor), if_there)
        case ObjectKind.TABLE:
            if replaces:
                cursor.refuse("CREATE TABLE without OR REPLACE: a table with rows is changed by 'ebbtide migrate'")
            return ast.CreateTable(name, *_table_parts(cursor), if_there)


def _table_parts(cursor: Cursor) -> tuple[str, tuple[str, ...], Options, str]:
    """Read columns, key, options and comment."""
    place = cursor.place
    columns, key = _without_key(cursor.enclosed("columns"))
    if not key:
        raise SqlSyntaxError.of(
            f"The columns at {place} have no key.",
            allowed="PRIMARY KEY (column, ...) as the last of them",
            next_step="Name the columns that identify a row.",
        )
    comment = cursor.text("a text") if cursor.take("COMMENT") else ""
    options = _options(cursor)
    if not comment and cursor.take("COMMENT"):
        comment = cursor.text("a text")
    return columns, key, options, comment


def _without_key(body: Statement) -> tuple[str, tuple[str, ...]]:
    """Split columns from the PRIMARY KEY among them."""
    columns: list[str] = []
    key: tuple[str, ...] = ()
    for part in _comma_parts(body):
        cursor = Cursor(part)
        if not cursor.take("PRIMARY", "KEY"):
            columns.append(part.text)
            continue
        key = _key_columns(cursor)
        cursor.end()
    return ", ".join(columns), key


def _key_columns(cursor: Cursor) -> tuple[str, ...]:
    """Read what follows PRIMARY KEY."""
    key = _names(Cursor(cursor.enclosed("columns")))
    cursor.take("NOT", "ENFORCED")
    return key


_DEPTHS = {"(": 1, ")": -1, "<": 1, ">": -1}


def _comma_parts(statement: Statement) -> list[Statement]:
    """Split a statement at the commas outside of parentheses and of a type's angle brackets."""
    depth = 0
    parts: list[list[Token]] = [[]]
    for token in statement.tokens:
        mark = keyword(token)
        depth += _DEPTHS.get(mark, 0)
        if mark == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [statement.part(tokens) for tokens in parts if tokens]


def _names(cursor: Cursor) -> tuple[str, ...]:
    names = [cursor.name("a column")]
    while cursor.take(","):
        names.append(cursor.name("a column"))
    return tuple(names)


def _options(cursor: Cursor) -> Options:
    """Read `WITH ('name' = 'value', ..)`; the quotes of names are optional."""
    options: dict[str, Option] = {}
    if not cursor.take("WITH"):
        return options
    if not cursor.take("("):
        cursor.refuse("(")
    while not cursor.take(")"):
        place = cursor.place
        name = cursor.text("an option") if cursor.is_at_text() else cursor.name("an option")
        if name in options:
            raise SqlSyntaxError.of(
                f"The option '{name}' occurs twice at {place}.",
                allowed="each once",
            )
        cursor.expect("=")
        options[name] = Option(cursor.literal("a value"), place)
        if not cursor.take(",") and cursor.words(1) != (")",):
            cursor.refuse(", or )")
    return options


def _create_view(cursor: Cursor, name: str, if_there: IfThere) -> Parsed:
    key: tuple[str, ...] = ()
    if cursor.words(1) == ("(",):
        inner = Cursor(cursor.enclosed("PRIMARY KEY (columns)"))
        inner.expect("PRIMARY", "KEY")
        key = _key_columns(inner)
        inner.end()
    comment = cursor.text("a text") if cursor.take("COMMENT") else ""
    options = _options(cursor)
    refresh = "ON CHANGE"
    if cursor.take("REFRESH"):
        if cursor.take("EVERY"):
            refresh = cursor.text("an interval, '5m'")
        else:
            refresh = cursor.take_one(("ON CHANGE", "MANUAL")) or cursor.refuse("EVERY 'interval', ON CHANGE or MANUAL")
    cursor.expect("AS")
    return ast.CreateView(
        name,
        _query(cursor),
        key,
        refresh,
        options,
        comment,
        if_there,
    )


def _refresh(cursor: Cursor) -> Parsed | None:
    if not cursor.take("MATERIALIZED", "VIEW"):
        return None  # such as REFRESH TABLE, which is Spark's
    return ast.RefreshView(cursor.name("a view"))


def _query(cursor: Cursor) -> Statement:
    query = cursor.rest()
    begins = Cursor(query).words(1)
    if not begins or begins[0] not in QUERIES:
        Cursor(query).refuse("SELECT")
    return query


def _refuse_type(cursor: Cursor) -> None:
    """Refuse CREATE TYPE and DROP TYPE by name: Spark's error would only name the word that it cannot read."""
    place = cursor.place
    if cursor.take("TYPE"):
        raise SqlSyntaxError.of(
            f"The statement cannot be read at {place}. There are no types of users.",
            got="TYPE",
            allowed="Spark's types, also STRUCT<street: STRING, city: STRING>",
            next_step="Write the type out in each column that has it.",
        )


def _drop(cursor: Cursor) -> Parsed | None:
    _refuse_type(cursor)
    kind = cursor.take_one(ObjectKind)
    if kind is None:
        return None
    if_exists = cursor.take("IF", "EXISTS")
    return ast.Drop(ObjectKind(kind), cursor.name("a name"), if_exists)


def _insert(cursor: Cursor) -> ast.Insert:
    cursor.take("TABLE")
    table = cursor.name("a table")
    columns: tuple[str, ...] = ()
    if cursor.words(1) == ("(",):
        columns = _names(Cursor(cursor.enclosed("columns")))
    return ast.Insert(table, columns, _query(cursor))


def _statement_set(cursor: Cursor) -> ast.StatementSet:
    cursor.take(";")
    body = cursor.rest()
    if not body.tokens or keyword(body.tokens[-1]) != "END":
        Cursor(body).refuse("INSERT INTO ..; END")
    inserts = []
    for part in split(body.text[: body.tokens[-1].start], body.place):
        inner = Cursor(part)
        inner.expect("INSERT", "INTO")
        inserts.append(_insert(inner))
    if not inserts:
        Cursor(body).refuse("INSERT INTO")
    return ast.StatementSet(tuple(inserts))


def _show(cursor: Cursor) -> Parsed | None:
    if cursor.take("CREATE"):
        kind = cursor.take_one(ObjectKind) or cursor.refuse(", ".join(ObjectKind))
        return ast.ShowCreate(ObjectKind(kind), cursor.name("a name"))
    what = cursor.take_one(Shown)
    if what is None:
        return None  # such as SHOW DATABASES and SHOW PARTITIONS, which are Spark's
    if Shown(what) in OF_SPARK_TOO and not _is_plain_show(cursor):
        return None  # SHOW TABLES IN a_database, SHOW FUNCTIONS a_name
    of = cursor.name("a table") if cursor.take("FROM") or cursor.take("IN") else None
    is_pattern = cursor.take("LIKE") or cursor.is_at_text()
    pattern = cursor.text("a pattern") if is_pattern else None
    return ast.Show(Shown(what), of, pattern)


def _is_plain_show(cursor: Cursor) -> bool:
    """Return whether nothing follows, or a pattern alone."""
    return cursor.at_end() or cursor.words(1) == ("LIKE",) or cursor.is_at_text()


def _describe(cursor: Cursor) -> Parsed | None:
    if cursor.words(1) in {("DATABASE",), ("SCHEMA",), ("QUERY",), ("HISTORY",), ("DETAIL",)}:
        return None
    is_function = cursor.take("FUNCTION") and not cursor.at_end()
    cursor.take("TABLE")
    cursor.take("EXTENDED")
    name = cursor.name("a name")
    if not cursor.at_end():
        return None  # a column, VARIABLE name, a query and AS JSON are Spark's
    return ast.Describe(name, cursor.statement, is_function=is_function)


def _explain(cursor: Cursor) -> Parsed:
    if cursor.at_end():
        cursor.refuse("a statement")
    return ast.Explain(cursor.rest(), cursor.statement)


def _set(cursor: Cursor) -> Parsed | None:
    if cursor.at_end():
        return ast.SetOption()
    if cursor.words(1) in {("VAR",), ("VARIABLE",), ("TIME",), ("CATALOG",)}:
        return None
    key = cursor.text("a key") if cursor.is_at_text() else _key(cursor)
    if cursor.at_end():
        return ast.SetOption(key)
    cursor.expect("=")
    value = cursor.rest()
    if not value.tokens:
        cursor.refuse("a value")
    first, *further = value.tokens
    is_text = first.token_type is TokenType.STRING and not further
    return ast.SetOption(key, first.text if is_text else value.text)


def _key(cursor: Cursor) -> str:
    """Read a setting's name, in which dashes may join words, as in `max-rows`."""
    key = cursor.name("a setting")
    while cursor.take("-"):
        key += "-" + cursor.name("the rest of the name")
    return key


def _reset(cursor: Cursor) -> Parsed | None:
    if cursor.at_end():
        return ast.Reset()
    return ast.Reset(cursor.text("a key") if cursor.is_at_text() else _key(cursor))


def _stop_job(cursor: Cursor) -> Parsed:
    return ast.StopJob(_job(cursor))


def _restart_job(cursor: Cursor) -> Parsed:
    return ast.RestartJob(_job(cursor))


def _job(cursor: Cursor) -> str:
    return cursor.literal("a job's id, or the name of its table")


def _use(cursor: Cursor) -> Parsed | None:
    if cursor.words(1) in {("DATABASE",), ("SCHEMA",), ("NAMESPACE",)}:
        return None
    cursor.take("CATALOG")
    return ast.Use(cursor.name("a catalog"))


def _source(cursor: Cursor) -> Parsed:
    return ast.RunScript(cursor.literal("a file"))


def _select(statement: Statement) -> Parsed:
    """Read a query; `EMIT CHANGES` at its end is ours."""
    tokens = statement.tokens
    words = [keyword(token) for token in tokens]
    for n_own in (2, 4):
        if words[-n_own:][:2] != ["EMIT", "CHANGES"]:
            continue
        position = None
        if n_own == 4:
            after = Cursor(statement.part(tokens[-2:]))
            after.expect("FROM")
            position = after.text("a position")
        return ast.Select(
            statement.part(tokens[:-n_own]),
            emits_changes=True,
            position=position,
        )
    _refuse_misspelt_from(statement)
    return ast.Select(statement)


_ENDS_EXPRESSION = (TokenType.VAR, *QUOTED, TokenType.STAR, TokenType.R_PAREN, TokenType.NUMBER, TokenType.STRING)


def _refuse_misspelt_from(statement: Statement) -> None:
    """Refuse `SELECT * FORM t`, which Spark would refuse as well, once its JVM had started.

    Only a query that has no FROM outside of parentheses, and where a name stands behind an expression's alias: there Spark allows none.
    """
    depth = 0
    outer: list[Token] = []
    for token in statement.tokens:
        depth -= token.token_type == TokenType.R_PAREN
        if depth == 0:
            outer.append(token)
        depth += token.token_type == TokenType.L_PAREN
    if keyword(outer[0]) != "SELECT" or any(keyword(token) == "FROM" for token in outer):
        return
    for before, word, name, *further in (outer[at : at + 4] for at in range(len(outer) - 2)):
        is_alias = before.token_type in _ENDS_EXPRESSION and word.token_type == TokenType.VAR
        is_name = name.token_type in (TokenType.VAR, *QUOTED)
        is_end = not further or keyword(further[0]) in ("WHERE", "GROUP", "ORDER", "LIMIT")
        if is_alias and is_name and is_end and get_close_matches(keyword(word), ["FROM"], cutoff=0.75):
            Cursor(statement.part([word])).refuse("FROM")


def _client(word: Client) -> Callable[[Cursor], Parsed | None]:
    return lambda cursor: word if cursor.at_end() else None  # CLEAR CACHE is Spark's


_READERS: dict[str, Callable[[Cursor], Parsed | None]] = {
    "CREATE": _create,
    "DROP": _drop,
    "REFRESH": _refresh,
    "INSERT INTO": _insert,
    "EXECUTE STATEMENT SET BEGIN": _statement_set,
    "BEGIN STATEMENT SET": _statement_set,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXPLAIN": _explain,
    "STOP JOB": _stop_job,
    "RESTART JOB": _restart_job,
    "SET": _set,
    "RESET": _reset,
    "USE": _use,
    "SOURCE": _source,
    "HELP": _client(Client.HELP),
    "CLEAR": _client(Client.CLEAR),
    "QUIT": _client(Client.QUIT),
    "EXIT": _client(Client.QUIT),
}
"""First words of our statements, each with the reader of the rest."""
