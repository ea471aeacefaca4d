"""SQL on Spark: from CREATE SOURCE to changes as they come."""

import json
import random
import time

import pyarrow.parquet as pq
import pytest
from clusters.spark_support import LOCAL, change, write
from frame.waiting import PATIENCE_S
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError, OperationCanceledError, SqlError
from ebbtide.runtime import Plan
from ebbtide.sql import Catalog, EmbeddedSession, ResultKind, parse_text
from ebbtide.sql._fill import plan_insert, write_filling
from ebbtide.sql._results import OperationStatus
from ebbtide.tables import Selection


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def catalog(home):
    return Catalog(str(home / "root"), home / "defs")


@pytest.fixture(scope="module")
def session(spark, catalog):
    session = EmbeddedSession({"default": catalog}, {"poll-interval": "1"}, start_spark=spark.newSession)
    yield session
    session.close()


@pytest.fixture(scope="module")
def do(session):
    """Execute a statement; return all its rows, or its message."""

    def do(text):
        result, rows = whole(session, text)
        return rows if result.columns else result.message

    return do


def whole(session, text):
    """Execute a statement; return its result and all its rows."""
    operation = session.execute(text)
    result = operation.result(120)
    rows, token = [], 0
    while token is not None:
        page = operation.page(token, 120)
        rows += page.rows
        token = page.next
    operation.close()
    return result, rows


@pytest.fixture(scope="module")
def step(catalog, home):
    """Give the source further changes, and make a step of them."""

    def step(*changes):
        write(home / "in", changes, first=len(list((home / "in").iterdir())))
        run(LOCAL, catalog.pipeline("kept").spec, catalog.root)

    return step


@pytest.fixture(scope="module")
def kept(do, catalog, step, home):
    """A table filled in two steps."""
    (home / "in").mkdir()
    do(f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
        WITH (path = '{home / "in"}', format = plain, records = value, sequence = seq, max_files_per_step = 1)""")
    do("CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))")
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO kept SELECT * FROM log")))
    step(change("+I", 1, "a", 1), change("+I", 2, "b", 2))
    step(change("+U", 1, "c", 3), change("-D", 2, "b", 4), change("+I", 3, "d", 5))


OF_ALL_TABLES = """
    SELECT 'first' AS part, k.id, k.v FROM kept STEP AS OF 1 k
    UNION ALL SELECT 'bad', max(origin.position), max(concat(reason, CAST(raw AS STRING))) FROM kept$quarantine
    UNION ALL SELECT 'state', id, CAST(tombstone AS STRING) FROM kept$state
    UNION ALL SELECT 'inserted', count(*), NULL FROM kept$changes WHERE _change_type = 'insert'
    UNION ALL SELECT 'step', step, CAST(records AS STRING) FROM kept$steps
    ORDER BY 1, 2
"""


@pytest.mark.usefixtures("kept")
def test_rows_state_changes_and_steps_are_asked_for(do, session):
    assert do("SELECT *, seq AS id, INTERVAL '1' DAY FROM kept ORDER BY 1 DESC") == [
        [3, "d", 5, 5, "INTERVAL '1' DAY"],
        [1, "c", 3, 3, "INTERVAL '1' DAY"],
    ]
    assert do(OF_ALL_TABLES) == [
        ["bad", None, None],  # nothing was bad yet
        ["first", 1, "a"],
        ["first", 2, "b"],
        ["inserted", 3, None],
        ["state", 1, "false"],
        ["state", 2, "true"],
        ["state", 3, "false"],
        ["step", 1, "2"],
        ["step", 2, "3"],
    ]
    assert [row[:2] for row in do("SHOW PIPELINES")] == [["kept", 2]]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("mode", [pytest.param("batch", marks=pytest.mark.grid), "streaming"])
def test_commands_of_spark_are_done_and_say_so(do, mode):
    do(f"SET runtime-mode = {mode}")
    commands = [
        "CREATE OR REPLACE TEMPORARY VIEW two AS SELECT id, 'it''s' AS v FROM kept WHERE id < 3",
        "DECLARE OR REPLACE VARIABLE most INT DEFAULT 1",
        "SET VAR most = 2",
        "CREATE OR REPLACE TEMPORARY FUNCTION plus_one(a INT) RETURNS INT RETURN a + 1",
        "CACHE TABLE cached AS SELECT 1 AS a",
        "DROP VIEW cached",
    ]
    try:
        assert [do(command) for command in commands] == ["Done."] * len(commands)
    finally:
        do("RESET runtime-mode")
    assert do("SELECT v, plus_one(most) FROM two") == [["it's", 3]]
    for dropped in ("VIEW two", "TEMPORARY FUNCTION plus_one", "TEMPORARY VARIABLE most"):
        assert do(f"DROP {dropped}") == "Done."


@pytest.mark.usefixtures("kept")
def test_functions_columns_and_databases_are_described_by_spark(do):
    assert do("DESCRIBE FUNCTION concat")[0] == ["Function: concat"]
    assert do("DESCRIBE kept v")[:2] == [["col_name", "v"], ["data_type", "string"]]
    assert do("SHOW FUNCTIONS concat") == [["concat"]]
    assert ["", "kept", True] in do("SHOW TABLES IN default")


@pytest.mark.usefixtures("kept")
@pytest.mark.demand("sql-result-rows")
def test_rows_beyond_the_most_are_cut_off_and_said(do, session):
    do("SET max-rows = 1")
    cut = session.execute("SELECT id FROM kept ORDER BY id")
    assert "Cut off at 1 row;" in cut.result(60).message
    assert cut.page(0, 60).rows == [[1]]
    do("RESET max-rows")


@pytest.mark.demand("sql-parallelism")
def test_reset_gives_spark_what_the_session_began_with(spark, catalog):
    begun_with = {"spark.sql.shuffle.partitions": "7"}
    session = EmbeddedSession({"default": catalog}, begun_with, start_spark=spark.newSession)
    settings = session.spark().conf
    default = settings.get("spark.sql.ansi.enabled")
    for reset in ("RESET", "RESET spark.sql.shuffle.partitions; RESET spark.sql.ansi.enabled"):
        for statement in f"SET spark.sql.shuffle.partitions = 8; SET spark.sql.ansi.enabled = false; {reset}".split(
            ";"
        ):
            session.execute(statement).result(60)
        assert settings.get("spark.sql.shuffle.partitions") == "7"
        assert settings.get("spark.sql.ansi.enabled") == default
    session.close()


def test_page_of_a_large_result_reads_a_small_part_of_it(session):
    session.execute("SET max-rows = 0").result(60)
    operation = session.execute("SELECT id, uuid() AS text FROM range(0, 200000, 1, 1)")
    assert operation.page(150_000, 120).rows[0][0] == 150_000
    [file] = (session.folder / operation.id / "rows").glob("*.parquet")
    assert pq.read_metadata(file).num_row_groups > 4
    operation.close()
    session.execute("RESET max-rows").result(60)


@pytest.mark.usefixtures("kept")
@pytest.mark.demand("sql-updates")
def test_changes_come_step_by_step_and_are_taken_up_from_a_position(session, step):
    operation = session.execute("SELECT id, v FROM kept WHERE v <> 'x' EMIT CHANGES FROM 'kept=1'")
    assert operation.result(60).kind is ResultKind.CHANGES
    first = operation.page(0, 60)
    assert [[row[0], *row[2:]] for row in first.rows] == [
        ["-U", 1, "a"],
        ["+U", 1, "c"],
        ["-D", 2, "b"],
        ["+I", 3, "d"],
    ]
    assert operation.page(1, 0.1) is None
    step(change("+U", 3, "x", 6), change("+I", 4, "e", 7))
    second = operation.page(first.next, 60)
    assert [[row[0], *row[2:]] for row in second.rows] == [["-D", 3, "d"], ["+I", 4, "e"]]
    operation.cancel()
    with pytest.raises(OperationCanceledError):
        operation.page(second.next, 10)
    again = session.execute(f"SELECT id, v FROM kept WHERE v <> 'x' EMIT CHANGES FROM '{first.position}'")
    assert again.page(0, 60).rows == second.rows
    again.close()


@pytest.mark.grid
@pytest.mark.usefixtures("kept")
def test_changes_without_a_position_begin_with_all_rows(session, do):
    whole = session.execute("SELECT id FROM kept EMIT CHANGES")
    assert sorted(row[2:] for row in whole.page(0, 60).rows) == do("SELECT id FROM kept ORDER BY id")
    whole.close()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT nope\nFROM kept", "At line 1, column 8"),
        ("SELECT 1 FROM kept$state s\n, kept STEP AS OF 1 WHERE nope = 1", "At line 2, column 27"),
        ("SELECT 1\n  FRM kept", "at line 2, column 3"),
        ("SELECT * FROM nope", "nope"),
        ("SELECT * FROM log", "is a source: changes in no order"),
        ("SELECT * FROM kept EMIT CHANGES FROM 'other=1'", "not a position of the query"),
        ("SELECT * FROM kept STEP AS OF 1 a, kept$state STEP AS OF 99", "no such step"),
        ("UPDATE kept SET v = 'x'", "kept by its pipeline; UPDATE TABLE would make it wrong"),
        ("DELETE FROM kept", "kept by its pipeline"),
        ("MERGE INTO kept USING kept ON 1 = 1 WHEN MATCHED THEN DELETE", "kept by its pipeline"),
        ("SELECT raise_error('boom')", "boom"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(do, statement, told):
    with pytest.raises(EbbtideError) as raised:
        do(statement)
    assert told in str(raised.value)
    assert "\tat " not in str(raised.value)
    assert "Relation [" not in str(raised.value)


@pytest.mark.usefixtures("kept")
def test_table_of_expressions_functions_and_a_condition_is_the_query_over_the_true_table_but_for_rows_that_fail(
    do, spark, catalog
):
    for name in ("shouted", "by_length", "arrow_number"):
        do(f"CREATE FUNCTION {name} AS 'row_rules:{name}' DETERMINISTIC")
    with pytest.raises(EbbtideError, match=r"^A Python function raised ValueError: no length of 'c'"):
        do("SELECT by_length(v) FROM kept WHERE id = 1")
    do("CREATE TABLE loud (no BIGINT NOT NULL, label STRING, n BIGINT, PRIMARY KEY (no))")
    insert = """INSERT INTO loud SELECT l.id AS no, shouted(v) || '!', by_length(shouted(v)) + arrow_number('1') FROM log l
        WHERE by_length(v) = 1 AND v IS DISTINCT FROM 'x'"""
    write_filling(catalog, plan_insert(catalog, parse_text(insert)))
    loud = Plan.under(catalog.root, catalog.pipeline("loud").spec)
    run(spark, loud.spec, catalog.root)
    assert all(verdict_of(spark, loud, check).passed for check in ("ordering", "complete", "unique_key"))
    true = [
        [row["id"], f"{row['v'].upper()}!!", 3] for row in rows_of(catalog, "kept") if row["id"] > 1 and row["v"] != "x"
    ]
    assert true
    assert [list(row.values()) for row in rows_of(catalog, "loud")] == [
        [1, "A!!", 3],
        *true,
    ]  # what the key showed stays
    [bad] = loud.quarantine.records(Selection()).to_pylist()
    assert bad["detail"] == "id=1: where: [USER_RAISED_EXCEPTION] by_length: ValueError: no length of 'c'"


OF_ALL_TYPES = """id BIGINT NOT NULL, n INT, s SMALLINT, f FLOAT, d DOUBLE, price DECIMAL(9,2), name STRING, flag BOOLEAN, born DATE,
at TIMESTAMP, local TIMESTAMP_NTZ, data BINARY"""
CONDITIONS = [
    "n > 3",
    " n > 3 AND NOT flag",
    " name = 'b' OR price >= 2.5",
    " born < DATE '2020-01-05'",
    " at IS NOT NULL AND id <> 4",
    " id IN (1, 2, 30)",
    "\nd BETWEEN 0 AND 2",
    " name IS NULL",
    " local > TIMESTAMP_NTZ '2020-01-03 00:00:00'",
    " price = -1",
]


@pytest.fixture(scope="module")
def typed(do, catalog, home):
    """A table with a column of each type that is not nested, some of its values null."""
    chance = random.Random(7)
    lines = []
    for id_ in range(40):
        row = {
            "n": chance.randrange(9), "s": chance.randrange(9), "f": chance.choice([0.1, "NaN", 1e30]), "d": chance.uniform(0, 4),
            "price": str(chance.randrange(-100, 500) / 100), "name": chance.choice("abc"), "flag": chance.random() < 0.5,
            "born": 18_262 + chance.randrange(9), "at": f"2026-01-0{chance.randrange(1, 9)}T00:00:00.00000{id_ % 9}Z",
            "local": f"2020-01-0{chance.randrange(1, 9)}T00:00:00", "data": "AAE=",
        }  # fmt: skip
        known = {name: value if chance.random() < 0.8 else None for name, value in row.items()}
        lines.append(json.dumps({"kind": "+I", "row": {"id": id_, **known}}))
    write(home / "typed", lines)
    do(
        f"""CREATE SOURCE every ({OF_ALL_TYPES}, PRIMARY KEY (id)) WITH (path = '{home / "typed"}', format = plain, records = value, order = upsert)"""
    )
    do(f"CREATE TABLE typed ({OF_ALL_TYPES}, PRIMARY KEY (id))")
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO typed SELECT * FROM every")))
    run(LOCAL, catalog.pipeline("typed").spec, catalog.root)
    assert len(do("SELECT id FROM typed")) == 40


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize("where", ["", *(f" WHERE {condition.strip()}" for condition in CONDITIONS)])
@pytest.mark.parametrize("columns", ["*", "name, id"])
def test_query_that_needs_no_spark_is_answered_as_spark_answers_it(session, where, columns):
    asked = f"SELECT {columns} FROM typed{where}"
    result, rows = whole(session, asked)
    true_result, true = whole(session, f"SELECT * FROM ({asked})")
    assert result == true_result
    assert sorted(map(str, rows)) == sorted(map(str, true))


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    ("asked", "is_here"),
    [
        ("SELECT * FROM typed LIMIT 3", True),
        ("SELECT id FROM typed WHERE n = 1", True),
        ("SELECT id FROM typed ORDER BY id", False),
        ("SELECT id + 1 FROM typed", False),
        ("SELECT count(*) FROM typed", False),
        ("SELECT ID FROM typed", False),
        ("SELECT id FROM typed t", False),
        ("SELECT id FROM typed VERSION AS OF 1", False),
        ("SELECT id FROM typed WHERE length(name) = 1", False),
        ("SELECT DISTINCT name FROM typed", False),
        ("SELECT id, id FROM typed", False),
        ("SELECT id FROM typed WHERE id IN (SELECT id FROM kept)", False),
        ("SELECT id FROM typed EMIT CHANGES", False),
        ("SELECT * FROM (SELECT id FROM typed WHERE n = 1)", False),
        ("SELECT id FROM typed, kept", False),
        ("SELECT id FROM typed TABLESAMPLE (5 ROWS)", False),
        ("SELECT id FROM typed LIMIT 3 OFFSET 2", False),
        ("WITH t AS (SELECT 1) SELECT id FROM typed", False),
        ("SELECT id FROM typed GROUP BY id", False),
        ("SELECT id FROM typed UNION ALL SELECT id FROM kept", False),
        ("SELECT /*+ COALESCE(1) */ id FROM typed", False),
        ("SELECT id FROM default.typed", False),
    ],
)
def test_only_queries_with_one_meaning_are_answered_without_spark(catalog, asked, is_here):
    def no_spark():
        raise LookupError("Spark was asked for")

    without = EmbeddedSession({"default": catalog}, {}, start_spark=no_spark)
    if is_here:
        assert 0 < len(whole(without, asked)[1]) < 40
    else:
        with pytest.raises(Exception, match="Spark was asked for"):
            whole(without, asked)
    without.close()


def rows_of(catalog, name):
    """The rows of a table in order of key."""
    spec = catalog.pipeline(name).spec
    columns = spec.sink_table.columns
    sink = Snapshot.read(Plan.under(catalog.root, spec).at("sink"))
    rows = sink.rows(columns)
    return rows.sort_by(columns.names[0]).to_pylist()


def test_query_is_cancelled_and_the_session_lives(session, do):
    operation = session.execute("SELECT count(*) FROM range(100000000000)")
    assert operation.result(1) is None
    operation.cancel()
    assert operation.status is OperationStatus.CANCELED
    with pytest.raises(OperationCanceledError):
        operation.result(10)
    deadline = time.monotonic() + PATIENCE_S
    while session.spark().sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline, "the job is still running"
        time.sleep(0.05)
    assert do("SELECT 1") == [[1]]


@pytest.mark.parametrize("query", ["SELECT nope FROM range(3)", "EXPLAIN SELECT nope FROM range(3)"])
def test_query_of_a_column_that_is_not_there_fails_also_where_it_is_explained(do, query):
    with pytest.raises(SqlError, match=f"UNRESOLVED_COLUMN.*`nope`.* At line 1, column {query.index('nope') + 1}"):
        do(query)


def test_plan_of_a_query_is_shown(do):
    [[plan]] = do("EXPLAIN SELECT id + 1 FROM range(3)")
    assert "Range (0, 3" in plan
