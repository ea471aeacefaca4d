"""Statements of ours, and what is left to Spark."""

from dataclasses import fields

import pytest

from ebbtide.errors import SqlSyntaxError
from ebbtide.sql import parse_text

COLUMNS = "id BIGINT NOT NULL, at TIMESTAMP, m MAP<STRING, DECIMAL(12,2)> COMMENT 'a, b', PRIMARY KEY (id, `a b`) NOT ENFORCED"


def kind(asked):
    return type(asked).__name__


def said(asked):
    """The values of a statement that are not the default."""
    return {field.name: vars(asked)[field.name] for field in fields(asked) if vars(asked)[field.name] != field.default}


def test_source_has_columns_key_options_and_comment():
    asked = parse_text(
        f"create source if not exists Orders ({COLUMNS}) comment 'all, of them' with ('a.b' = 'x', path = in, n = 3)"
    )
    assert kind(asked) == "CreateSource"
    assert asked.name == "Orders"
    assert asked.columns == "id BIGINT NOT NULL, at TIMESTAMP, m MAP<STRING, DECIMAL(12,2)> COMMENT 'a, b'"
    assert asked.key == ("id", "a b")
    assert {name: option.value for name, option in asked.options.items()} == {"a.b": "x", "path": "in", "n": "3"}
    assert (asked.comment, asked.if_there) == ("all, of them", "IF NOT EXISTS")


def test_option_knows_its_place():
    asked = parse_text("CREATE TABLE t (a INT, PRIMARY KEY (a))\nWITH (\n  'ttl' = '1d')")
    assert str(asked.options["ttl"].place) == "line 3, column 3"


def test_insert_has_table_columns_and_query_as_written():
    asked = parse_text("INSERT INTO t (a, b) SELECT x, 'a;b' -- why\nFROM s")
    assert (asked.table, asked.columns, asked.query.text) == ("t", ("a", "b"), "SELECT x, 'a;b' -- why\nFROM s")
    assert str(asked.query.place) == "line 1, column 22"


@pytest.mark.parametrize("begin", ["EXECUTE STATEMENT SET BEGIN", "BEGIN STATEMENT SET;"])
def test_statement_set_holds_inserts_with_their_places(begin):
    asked = parse_text(f"{begin}\n INSERT INTO a SELECT 1;\n INSERT INTO b SELECT 2;\nEND")
    assert [(insert.table, insert.query.text, insert.query.place.line) for insert in asked.inserts] == [
        ("a", "SELECT 1", 2),
        ("b", "SELECT 2", 3),
    ]


@pytest.mark.parametrize(
    ("text", "query", "position"),
    [
        ("SELECT * FROM t EMIT CHANGES", "SELECT * FROM t", None),
        ("SELECT * FROM t emit changes from 't=3'", "SELECT * FROM t", "t=3"),
    ],
)
@pytest.mark.demand("sql-results")
def test_query_that_emits_changes(text, query, position):
    asked = parse_text(text)
    assert (asked.statement.text, asked.emits_changes, asked.position) == (query, True, position)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("SHOW TABLES", "Show", {"what": "TABLES"}),
        ("SHOW STEPS FROM orders", "Show", {"what": "STEPS", "of": "orders"}),
        ("SHOW TABLES 'ord*'", "Show", {"what": "TABLES", "pattern": "ord*"}),
        ("show jobs like 'ord%'", "Show", {"what": "JOBS", "pattern": "ord%"}),
        ("SHOW CREATE MATERIALIZED VIEW v", "ShowCreate", {"kind": "MATERIALIZED VIEW", "name": "v"}),
        ("REFRESH MATERIALIZED VIEW v", "RefreshView", {"name": "v"}),
        ("DROP SOURCE IF EXISTS s", "Drop", {"kind": "SOURCE", "name": "s", "if_exists": True}),
        ("CREATE FUNCTION f AS 'a.b:c'", "CreateFunction", {"name": "f", "target": "a.b:c", "constructor": {}}),
        (
            "CREATE FUNCTION f AS 'a:b' DETERMINISTIC",
            "CreateFunction",
            {"name": "f", "target": "a:b", "constructor": {}, "is_deterministic": True},
        ),
        ("DROP SOURCE `it's`", "Drop", {"kind": "SOURCE", "name": "it's"}),
        ("SET a = 'it''s \"\"'", "SetOption", {"key": "a", "value": 'it\'s ""'}),
        ("STOP JOB '12-ab'", "StopJob", {"job": "12-ab"}),
        ("RESTART JOB 'kept'", "RestartJob", {"job": "kept"}),
        ("SET", "SetOption", {}),
        ("SET max-rows", "SetOption", {"key": "max-rows"}),
        ("SET max-rows = 10", "SetOption", {"key": "max-rows", "value": "10"}),
        ("SET 'a.b' = 'c d'", "SetOption", {"key": "a.b", "value": "c d"}),
        ("SET spark.sql.x = a b", "SetOption", {"key": "spark.sql.x", "value": "a b"}),
        ("RESET", "Reset", {}),
        ("RESET max-rows", "Reset", {"key": "max-rows"}),
        ("USE prod", "Use", {"catalog": "prod"}),
        ("SOURCE 'a.sql'", "RunScript", {"file": "a.sql"}),
    ],
)
def test_statement_is_read(text, name, values):
    asked = parse_text(text)
    assert (kind(asked), said(asked)) == (name, values)


@pytest.mark.parametrize(("text", "asked"), [("help", "HELP"), ("exit", "QUIT")])
def test_word_for_the_client_is_read(text, asked):
    assert parse_text(text) == asked


@pytest.mark.parametrize("refresh", ["EVERY '5m'", "ON CHANGE", "MANUAL"])
def test_view_has_query_and_refresh(refresh):
    asked = parse_text(f"CREATE OR REPLACE MATERIALIZED VIEW v COMMENT 'c' REFRESH {refresh} AS SELECT 1")
    assert (asked.name, asked.query.text, asked.comment, asked.if_there) == ("v", "SELECT 1", "c", "OR REPLACE")
    assert asked.refresh == refresh.removeprefix("EVERY ").strip("'")


def test_view_has_key_and_options():
    asked = parse_text(
        "CREATE MATERIALIZED VIEW v (PRIMARY KEY (a, `b c`) NOT ENFORCED) WITH ('sink.write' = 'rewrite') AS (SELECT 1)"
    )
    assert (asked.key, asked.options["sink.write"].value, asked.query.text) == (("a", "b c"), "rewrite", "(SELECT 1)")


@pytest.mark.parametrize(
    "text",
    [
        "REFRESH TABLE t",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "SHOW DATABASES",
        "DROP VIEW v",
        "SHOW TABLES IN default",
        "SHOW TABLES FROM default LIKE 'a*'",
        "SHOW FUNCTIONS IN default",
        "SHOW FUNCTIONS concat",
        "SHOW SYSTEM FUNCTIONS LIKE 'conc*'",
        "DESCRIBE HISTORY t",
        "DESCRIBE t a_column",
        "DESCRIBE TABLE EXTENDED t AS JSON",
        "DESCRIBE SELECT 1",
        "CLEAR CACHE",
        "SET VARIABLE x = 1",
        "USE SCHEMA x",
        "DECLARE x INT",
        "UPDATE t SET a = 1",
        "BEGIN SELECT 1; END",
        "VACUUM delta.`/t`",
        "ANALYZE TABLE t COMPUTE STATISTICS",
        "msck repair table t",
    ],
)
def test_all_else_is_left_to_spark(text):
    assert kind(parse_text(text)) == "SparkStatement"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1)",
        "FROM t |> LIMIT 1",
        "(SELECT 1)",
        "(SELECT 1) UNION SELECT 2",
    ],
)
def test_queries_are_known_as_such(text):
    assert kind(parse_text(text)) == "Select"


@pytest.mark.parametrize(
    ("text", "place", "allowed"),
    [
        ("CREATE TABLE", "line 1, column 13", "a name"),
        ("CREATE TABLE t", "line 1, column 15", "(columns)"),
        ("CREATE TABLE t ()", "line 1, column 17", "columns"),
        ("CREATE TABLE t (a INT", "line 1, column 22", ")"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) WITH ('a' 'b')", "line 1, column 51", "="),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) WITH ('a' = 'b'", "line 1, column 56", ", or )"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) nonsense", "line 1, column 41", "the end of the statement"),
        ("CREATE OR REPLACE TABLE t (a INT, PRIMARY KEY (a))", "line 1, column 27", "without OR REPLACE"),
        ("CREATE TYPE address AS (street STRING)", "line 1, column 8", "Spark's types, also STRUCT<"),
        ("CREATE OR REPLACE TYPE address AS (street STRING)", "line 1, column 19", "Spark's types, also STRUCT<"),
        ("DROP TYPE IF EXISTS address", "line 1, column 6", "Spark's types, also STRUCT<"),
        ("CREATE SOURCE s AS SELECT 1", "line 1, column 17", "(columns)"),
        ("CREATE MATERIALIZED VIEW v AS DELETE FROM t", "line 1, column 31", "SELECT"),
        ("CREATE MATERIALIZED VIEW v (a INT) AS SELECT 1", "line 1, column 29", "PRIMARY KEY"),
        ("CREATE MATERIALIZED VIEW v () AS SELECT 1", "line 1, column 29", "PRIMARY KEY (columns)"),
        ("REFRESH MATERIALIZED VIEW", "line 1, column 26", "a view"),
        ("CREATE MATERIALIZED VIEW v REFRESH NEVER AS SELECT 1", "line 1, column 36", "EVERY"),
        ("INSERT INTO t", "line 1, column 14", "SELECT"),
        ("INSERT INTO t VALUE (1)", "line 1, column 15", "SELECT"),
        ("SHOW STEPS FROM", "line 1, column 16", "a table"),
        ("SHOW CREATE", "line 1, column 12", "SOURCE, TABLE"),
        ("STOP JOB", "line 1, column 9", "a job's id"),
        ("SET a =", "line 1, column 8", "a value"),
        ("USE a b", "line 1, column 7", "the end of the statement"),
        ("BEGIN STATEMENT SET; DELETE FROM t; END", "line 1, column 22", "INSERT INTO"),
        ("BEGIN STATEMENT SET; END", "line 1, column 22", "INSERT INTO"),
        ("EXPLAIN", "line 1, column 8", "a statement"),
    ],
)
@pytest.mark.demand("sql-types")
def test_what_does_not_fit_is_refused_with_its_place(text, place, allowed):
    with pytest.raises(SqlSyntaxError) as raised:
        parse_text(text)
    assert f"cannot be read at {place}." in str(raised.value)
    assert f"Allowed: {allowed}" in str(raised.value).replace("Allowed: CREATE TABLE without", "Allowed: without")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CREATE TABLE t (a INT)", "have no key"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) WITH (x = 1, x = 2)", "'x' occurs twice at line 1, column 54"),
        ("SELECT 1; SELECT 2", "Got: 2 statements"),
        ("", "Got: 0 statements"),
    ],
)
def test_what_is_missing_or_too_much_is_refused(text, says):
    with pytest.raises(SqlSyntaxError, match=says):
        parse_text(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("SELCT 1", "SELECT"), ("shwo tables", "SHOW"), ("hepl", "HELP"), ("xyzzy", "")]
)
def test_word_that_begins_no_statement_is_refused_before_spark_is_asked(text, meant):
    with pytest.raises(
        SqlSyntaxError, match=rf"Did you mean {meant}\?$" if meant else "first word of a statement. HELP lists"
    ):
        parse_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FORM t",
        "select a, b frm `x` WHERE a > 1",
        "SELECT count(*) FROMM t",
        "SELECT (SELECT 1 FROM u) x FORM t",
    ],
)
def test_from_that_is_misspelt_is_refused_before_spark_is_asked(text):
    with pytest.raises(SqlSyntaxError, match=r"Got: (FORM|frm|FROMM)\. Allowed: FROM\."):
        parse_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a form",
        "SELECT a form, b t",
        "SELECT a form FROM t",
        "SELECT 1 form SORT BY form",
        "SELECT a form LIMIT 1",
        "SELECT form.t, form t",
        "SELECT (SELECT a form FROM t)",
        "SELECT 1 form UNION SELECT 2 t",
    ],
)
def test_column_that_is_called_like_from_is_none(text):
    parse_text(text)
