"""Statements are judged by Spark's parsed plan: what is hostile is refused and leaves nothing behind, what is friendly passes."""

import os
import re
import socket
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, change, write
from oracles.view_queries import QUERIES
from statements.hostile_statements import calling, filling, reaching, reading

from ebbtide import run
from ebbtide.errors import EbbtideError
from ebbtide.sql import Catalog, EmbeddedSession, Rights, parse_text
from ebbtide.sql._fill import plan_insert, write_filling
from ebbtide.sql._gateway.clients import refuse_writing

READER = Rights.of_gateway(writes=False)
WRITER = Rights.of_gateway(writes=True)
SOURCE = """CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
    WITH (path = '{folder}', format = plain, records = value, sequence = seq)"""
DOCS = Path(__file__).parents[2] / "docs"
OURS = re.compile(r"\$|\bEMIT\b|\bAS OF\b|#|\btidy\(")
"""In what Spark's parser alone does not read: a page declares that function."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def catalog(spark, home):
    """A pipeline `kept` with rows."""
    catalog = Catalog(str(home / "root"), home / "defs")
    write(home / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)])
    session = EmbeddedSession({"default": catalog}, {}, start_spark=spark.newSession)
    session.execute(SOURCE.format(folder=home / "in")).result(60)
    session.execute("CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))").result(60)
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO kept SELECT * FROM log")))
    run(LOCAL, catalog.pipeline("kept").spec, catalog.root)
    session.close()
    (home / "link").symlink_to(home / "root" / "kept")
    return catalog


@pytest.fixture
def opened(spark, catalog):
    """Open a session with rights; what it began is closed at the end."""
    sessions = []

    def opened(rights):
        session = EmbeddedSession({"default": catalog}, {}, start_spark=spark.newSession, rights=rights)
        sessions.append(session)
        return session

    yield opened
    for session in sessions:
        session.close()


@pytest.fixture
def places(home):
    """What the hostile statements name; and who listens where they call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        sink = home / "root" / "kept" / "sink"
        yield {
            "sink": str(sink),
            "linked": str(home / "link" / "sink"),
            "root": str(home / "root"),
            "home": str(home),
            "port": str(server.getsockname()[1]),
        }
        with pytest.raises(BlockingIOError):
            server.accept()  # no statement called


def refusal(session, statement):
    """Execute a statement as a gateway does; return why it was refused, or None."""
    operation = None
    try:
        if not session.rights.writes:
            refuse_writing(statement)
        operation = session.execute(statement)
        operation.result(120)
        operation.page(0, 120)
    except EbbtideError as error:
        return str(error)
    finally:
        if operation is not None:
            operation.close()
    return None


def some(statements, first=0, each=9):
    """Some of the statements: the three sessions have different ones, and the grid has all of each."""
    return lambda **places: list(statements(**places))[first::each]


def world(spark, home):
    """Return what a statement could leave behind: files with their times, tables, child processes."""
    warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    folders = (home, warehouse)
    files = {str(path): path.lstat().st_mtime_ns for folder in folders for path in sorted(folder.rglob("*"))}
    tables = sorted(row.tableName for row in spark.newSession().sql("SHOW TABLES").collect() if not row.isTemporary)
    databases = sorted(row.namespace for row in spark.sql("SHOW DATABASES").collect())
    return files, tables, databases, programs(), listening()


def refuse_left_behind(spark, home, before):
    """Compare the world with that of before; a socket that another session has closed meanwhile is none of a statement's."""
    *left, ports = world(spark, home)
    *left_before, ports_before = before
    assert left == left_before
    assert set(ports) <= set(ports_before)


def programs():
    """Return the commands of all descendants of this process but Spark's own workers."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        parents[int(stat.parent.name)] = int(after_name[1]), command
    found = []
    for pid, (parent, command) in parents.items():
        ancestor = parent
        while ancestor in parents and ancestor != os.getpid():
            ancestor, _ = parents[ancestor]
        if ancestor == os.getpid() and b"pyspark" not in command:
            found.append((pid, command))
    return sorted(found)


def listening():
    """Return the ports that listen anywhere but on loopback."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    sockets = [line.split() for line in lines]
    return sorted({each[1] for each in sockets if each[3] == "0A" and not each[1].startswith("0100007F")})


@pytest.mark.parametrize(
    ("rights", "statements", "least"),
    [
        (READER, some(reaching), 12),
        pytest.param(READER, reaching, 100, marks=pytest.mark.grid),
        (READER, some(reading, each=8), 15),
        pytest.param(READER, reading, 100, marks=pytest.mark.grid),
        (WRITER, some(reaching, 3), 12),
        pytest.param(WRITER, reaching, 100, marks=pytest.mark.grid),
        (WRITER, some(calling, each=3), 6),
        pytest.param(WRITER, calling, 15, marks=pytest.mark.grid),
        (Rights(), some(reaching, 6), 12),
        pytest.param(Rights(), reaching, 100, marks=pytest.mark.grid),
    ],
    ids=[
        "reader",
        "reader-all",
        "reader-reads",
        "reader-reads-all",
        "writer",
        "writer-all",
        "writer-calls",
        "writer-calls-all",
        "shell",
        "shell-all",
    ],
)
def test_hostile_statements_are_refused_and_leave_nothing_behind(
    spark, home, catalog, opened, places, rights, statements, least
):
    hostile = list(statements(**places))
    assert len(hostile) >= least
    session = opened(rights)
    before = world(spark, home)
    passed = [statement for statement in hostile if refusal(session, statement) is None]
    assert passed == []
    refuse_left_behind(spark, home, before)
    assert refusal(session, "SELECT * FROM kept") is None


@pytest.mark.parametrize(
    ("statement", "got"),
    [
        ("SELECT other.upper('a')", "other.upper(..)"),
        pytest.param(
            "SELECT * FROM VALUES (1, reflect('java.lang.System', 'gc'))", "reflect(..)", marks=pytest.mark.grid
        ),
        ("SELECT CASE WHEN true THEN reflect('java.lang.System', 'gc') END", "reflect(..)"),
        ("SELECT * FROM table_changes('delta.`/no/table`', 0)", "delta.`/no/table`"),
        ("DESCRIBE QUERY SELECT TRANSFORM(1) USING 'cat' AS (a INT)", "SCRIPT TRANSFORMATION"),
    ],
    ids=["function of a database", "in a list of rows", "in a branch", "table in a text", "below a listing"],
)
def test_judge_refuses_what_spark_may_not_find(opened, statement, got):
    assert f"Got: {got}." in refusal(opened(READER), statement)


@pytest.mark.parametrize(
    ("rights", "each"),
    [
        (READER, 8),
        pytest.param(READER, 1, marks=pytest.mark.grid),
        (WRITER, 4),
        pytest.param(WRITER, 1, marks=pytest.mark.grid),
    ],  # each fourth and each eighth has each of the three forms
    ids=["role-writer", "role-writer-all", "role-owner", "role-owner-all"],
)
def test_job_of_a_gateway_s_session_evaluates_no_hostile_expression(spark, home, catalog, opened, places, rights, each):
    for table in ("filled", "other"):
        opened(Rights()).execute(
            f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))"
        ).result(60)
    session = opened(rights)
    before = world(spark, home)
    passed = []
    for statement in list(filling(**places))[::each]:
        operation = session.execute(statement)
        try:
            operation.result(120)
            passed.append(statement)
        except EbbtideError:
            pass
        operation.close()
    assert passed == []
    refuse_left_behind(spark, home, before)
    assert not (home / "root" / ".sql").exists()
    session.judge().judge_expressions(EXPRESSIONS)


EXPRESSIONS = (
    "upper(v) || '${env:HOME}'",
    "concat_ws(',', v, 'text.`/etc/passwd`')",
    "case when id > 1 then transform(array(v), e -> e || 'x')[0] end",
    "CAST(id AS INT) + 1 BETWEEN 1 AND 5",
    "from_json(v, 'a INT').a::string",
    "v IS DISTINCT FROM 'reflect(1)'",
)
"""Of rows, as transforms have them."""
FRIENDLY = (
    "SHOW TABLES IN default",
    "SHOW DATABASES",
    "SHOW FUNCTIONS LIKE 'a*'",
    "SHOW COLUMNS IN kept",
    "SHOW VIEWS",
    "DESCRIBE kept",
    "DESCRIBE kept v",
    "DESCRIBE TABLE EXTENDED kept",
    "DESCRIBE FUNCTION concat",
    "DESCRIBE QUERY SELECT * FROM kept",
    "EXPLAIN FORMATTED SELECT count(*) FROM kept",
    "SELECT `insert`, 'DELETE', (SELECT max(`update`) FROM VALUES (1) AS b(`update`)) FROM VALUES (2) AS a(`insert`)",
    "SELECT reflect FROM VALUES (1) AS a(reflect)",
    "SELECT '${env:HOME}', '/etc/passwd', 'text.`/etc/passwd`'",
    "SELECT * FROM IDENTIFIER('kept')",
    "SELECT * FROM kept JOIN kept AS b USING (id)",
    "SELECT id FROM kept$state",
    "SELECT * FROM kept VERSION AS OF 1",
    "SELECT * FROM kept$changes",
    "SELECT e, current_date(), uuid(), typeof(id) FROM kept LATERAL VIEW explode(array(1, 2)) AS e",
    "SELECT * FROM kept TABLESAMPLE (50 PERCENT)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "SELECT id, sum(seq) OVER w FROM kept WINDOW w AS (PARTITION BY v)",
    "SELECT /*+ BROADCAST(b) */ * FROM kept a, kept b SORT BY a.id",
    "SELECT filter(array(1, 2), x -> x > 1), named_struct('a', 1).a, map(1, 2)[1], CAST('1' AS INT), DATE '2026-01-01'",
    "SELECT parse_json('{}'), x'00', INTERVAL '1' DAY, from_xml('<a>b</a>', 'a STRING', map('mode', 'FAILFAST')), from_json('{}', 'a INT')",
)


@pytest.mark.parametrize("each", [8, pytest.param(1, marks=pytest.mark.grid)])
def test_friendly_statements_pass_in_a_session_that_only_reads(opened, catalog, each):
    session = opened(READER)
    judge = session.judge()
    executed = [*FRIENDLY[::each], *filter(OURS.search, FRIENDLY)]
    for statement in FRIENDLY:
        if statement not in executed:
            refuse_writing(statement)
            judge.judge(statement)
    assert {statement: refusal(session, statement) for statement in executed} == dict.fromkeys(executed)


@pytest.mark.parametrize("each", [27, pytest.param(1, marks=pytest.mark.grid)])
def test_family_queries_and_the_queries_of_the_documents_are_allowed_where_only_reading_is(opened, each):
    judge = opened(READER).judge()
    for query, _ in list(QUERIES.values())[::each]:
        judge.judge(query)
    documented = [
        query for page in (DOCS / "reference").glob("sql*.md") for query in _queries(page.read_text(encoding="utf-8"))
    ]
    assert len(documented) >= 2
    for query in documented:
        judge.judge(query)


def _queries(page):
    """Yield the queries of Spark's own SQL in the blocks of a page."""
    for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL):
        for statement in block.split(";"):
            text = re.sub(r"--.*", "", statement).strip()
            if text.startswith(("SELECT", "WITH", "FROM")) and not OURS.search(text):
                yield text


def test_environment_and_settings_are_not_put_into_statements(spark, opened):
    assert spark.conf.get("spark.sql.variable.substitute") == "false"
    for rights in (READER, WRITER, Rights()):
        session = opened(rights)
        operation = session.execute("SELECT '${env:PATH}', '${spark:spark.app.name}', '${system:user.home}'")
        assert operation.page(0, 120).rows == [["${env:PATH}", "${spark:spark.app.name}", "${system:user.home}"]]
        assert "is fixed" in refusal(session, "SET spark.sql.variable.substitute = true")


@pytest.mark.parametrize("is_each_executed", [False, pytest.param(True, marks=pytest.mark.grid)])
def test_session_that_writes_changes_its_own_tables_and_reads_those_of_pipelines(opened, home, is_each_executed):
    session = opened(WRITER)
    statements = [
        "BEGIN CREATE TABLE own (id BIGINT, v STRING) USING delta; INSERT INTO own SELECT id, v FROM kept; END",
        "MERGE INTO own USING kept ON own.id = kept.id WHEN MATCHED THEN UPDATE SET v = kept.v",
        f"UPDATE own SET v = '{home / 'root'}'",
        "DELETE FROM own WHERE id > 5",
        "ALTER TABLE own ADD COLUMNS (w INT)",
        "OPTIMIZE own",
        "CREATE TEMPORARY VIEW seen AS SELECT * FROM kept",
        "EXECUTE IMMEDIATE 'DELETE FROM own WHERE id = 1'",
        "SET TIME ZONE 'UTC'",
        "DROP VIEW seen",
        "BEGIN DROP TABLE own; END",
    ]
    judged = [] if is_each_executed else statements[1:6]
    for statement in judged:
        session.judge().judge(statement)
    executed = [statement for statement in statements if statement not in judged]
    assert {statement: refusal(session, statement) for statement in executed} == dict.fromkeys(executed)


def test_view_and_a_table_of_spark_s_own_catalog_do_not_lead_to_a_pipeline_s_table(spark, opened, places):
    session = opened(Rights())
    assert refusal(session, f"CREATE TEMPORARY VIEW way AS SELECT * FROM delta.`{places['sink']}`") is None
    assert "on the view 'way'" in refusal(session, "DELETE FROM way")
    spark.sql(f"CREATE TABLE known USING delta LOCATION '{places['sink']}'")  # by another program
    try:
        assert "kept by its pipeline" in refusal(session, "DELETE FROM known")
    finally:
        spark.sql("DROP TABLE known")


def test_folders_are_read_where_the_gateway_lets_them(opened, places):
    session = opened(Rights.of_gateway(writes=False, folders=True))
    assert refusal(session, f"SELECT * FROM delta.`{places['sink']}`") is None
    assert "reflect" in refusal(session, "SELECT reflect('java.lang.System', 'getenv', 'HOME')")

    xml = "from_xml('<a><b>1</b></a>', 'b STRING', map('rowValidationXSDPath', '/etc/passwd'))"
    assert "option" not in (refusal(session, f"SELECT {xml}") or "")
