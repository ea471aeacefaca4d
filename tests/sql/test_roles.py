"""Statements and settings of each role, in gateways that write and that only read; sessions belong to the client that opened them."""

import json
import re
from typing import get_args

import pytest
from statements.gateway_support import TOKEN, serving

from ebbtide.errors import SqlError
from ebbtide.sql import Catalog, EmbeddedSession, Rights, Role, read_clients
from ebbtide.sql import _statements as statements
from ebbtide.sql._gateway.clients import LEAST_ROLES, OF_SPARK
from ebbtide.sql._settings import SETTINGS

TOKENS = {name: f"token-of-{name}-for-tests" for name in ("rita", "rolf", "walt", "wilma", "olga")}
ROLES = {"rita": "reader", "rolf": "reader", "walt": "writer", "wilma": "writer", "olga": "owner"}
LINES = "".join(f"{ROLES[name]} {name} {token}\n" for name, token in TOKENS.items())
BY_ROLE = {
    Role.READER: (
        "SELECT id FROM orders LIMIT 1",
        "SELECT id FROM orders EMIT CHANGES",
        "SHOW TABLES",
        "SHOW JOBS",
        "SHOW CREATE TABLE orders",
        "SHOW DATABASES",
        "DESCRIBE orders",
        "EXPLAIN SELECT 1",
        "SET",
        "SET max-rows = 5",
        "RESET max-rows",
        "select * from orders emit changes",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1)",
        "TABLE orders",
        "FROM orders |> SELECT id",
        "(SELECT 1)",
        "SELECT * FROM a JOIN b USING (id)",
        "SELECT `insert`, 'DELETE', (SELECT max(`update`) FROM b) FROM a -- MERGE",
        "SELECT reflect FROM a",
        "DESC HISTORY orders",
        "",
        ";",
    ),
    Role.WRITER: (
        "USE other",
        "INSERT INTO orders SELECT * FROM log",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT * FROM b; END",
        "STOP JOB 'job-1'",
        "RESTART JOB 'job-1'",
    ),
    Role.OWNER: (
        "CREATE SOURCE s (id INT, PRIMARY KEY (id)) WITH ('path' = 'in')",
        "CREATE TABLE t (id INT, PRIMARY KEY (id))",
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM orders",
        "CREATE FUNCTION f AS 'os:system'",
        "REFRESH MATERIALIZED VIEW v",
        "DROP TABLE orders",
        "DROP MATERIALIZED VIEW v",
        "SOURCE 'file.sql'",
        "CREATE VIEW a AS SELECT 1",
        "INSERT OVERWRITE orders SELECT 1",
        "DELETE FROM orders",
        "UPDATE orders SET id = 1",
        "MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE orders",
        "RESTORE TABLE orders TO VERSION AS OF 1",
        "VACUUM orders",
        "OPTIMIZE orders",
        "ALTER TABLE orders ADD COLUMNS (x INT)",
        "EXECUTE IMMEDIATE 'DROP TABLE a'",
        "BEGIN DELETE FROM a; END",
        "ADD JAR '/tmp/x.jar'",
        "CALL system.procedure()",
    ),
}


@pytest.fixture(scope="module")
def clients_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("clients") / "clients"
    path.touch(0o600)
    path.write_text(LINES)
    return path


@pytest.fixture(scope="module")
def gateway(clients_file):
    with serving(token=TOKEN, clients=read_clients(clients_file)) as served:
        yield served


def header(name):
    return {"Authorization": f"Bearer {TOKENS[name]}"}


@pytest.fixture
def open_as(gateway):
    """Open a session as a client; return its path."""
    opened = []

    def open_as(name):
        path = f"/v1/sessions/{gateway.call('POST', '/v1/sessions', {}, header(name)).json['session']}"
        opened.append((name, path))
        return path

    yield open_as
    for name, path in opened:
        gateway.call("DELETE", path, headers=header(name))


def test_every_kind_of_statement_has_a_least_role():
    assert set(LEAST_ROLES) == set(get_args(statements.Parsed))


@pytest.mark.parametrize("name", ["rita", "walt", "olga"])
def test_role_executes_what_it_includes_and_nothing_else(gateway, open_as, name):
    session = open_as(name)
    role = Role(ROLES[name])
    for least, texts in BY_ROLE.items():
        for text in texts:
            reply = gateway.call("POST", f"{session}/statements", {"statement": text}, header(name))
            assert reply.status == (201 if role.includes(least) else 403), (text, reply.raw)
            if reply.status == 201:
                gateway.call("DELETE", f"{session}/operations/{reply.json['operation']}", headers=header(name))
            else:
                assert reply.error["class"] == "GatewayError"


def test_other_endpoints_let_a_role_do_no_more(gateway, open_as):
    session = open_as("rita")
    assert gateway.call("POST", f"{session}/jobs/job-1/stop", headers=header("rita")).status == 403
    assert gateway.call("POST", f"{session}/configure", {"statement": "USE other"}, header("rita")).status == 403
    assert gateway.call("GET", f"{session}/jobs", headers=header("rita")).status == 200
    for text in ("SELECT 1; DROP TABLE orders", "DROP TABLE orders; SELECT 1"):
        begun = gateway.call("POST", f"{session}/statements", {"statement": text}, header("rita"))
        result = f"{session}/operations/{begun.json['operation']}/result?timeout_s=20"
        assert gateway.call("GET", result, headers=header("rita")).status == 400
    hidden = gateway.call("POST", f"{session}/statements", {"statement": ";/* a */ DROP TABLE orders"}, header("rita"))
    assert hidden.status == 403


def test_refusal_names_the_role_that_is_needed(gateway, open_as):
    refused = gateway.call("POST", f"{open_as('rita')}/statements", {"statement": "DROP TABLE orders"}, header("rita"))
    assert refused.error["message"].startswith("The role reader may not execute this statement. Got: Drop.")
    assert "a token of the role owner" in refused.error["message"]


def test_session_is_there_for_no_other_client(gateway, open_as):
    session = open_as("rita")
    statement = {"statement": "SELECT * FROM never"}
    begun = gateway.call("POST", f"{session}/statements", statement, header("rita")).json["operation"]
    requests = [
        ("GET", session, None),
        ("DELETE", session, None),
        ("POST", f"{session}/heartbeat", None),
        ("POST", f"{session}/configure", {"statement": "SET max-rows = 5"}),
        ("POST", f"{session}/complete", {"text": "", "offset": 0}),
        ("POST", f"{session}/statements", statement),
        ("GET", f"{session}/jobs", None),
        ("POST", f"{session}/jobs/job-1/stop", None),
        ("GET", f"{session}/operations/{begun}", None),
        ("DELETE", f"{session}/operations/{begun}", None),
        ("GET", f"{session}/operations/{begun}/result", None),
        ("GET", f"{session}/operations/{begun}/pages/0", None),
        ("POST", f"{session}/operations/{begun}/cancel", None),
    ]
    for name in ("rolf", "walt", "olga"):
        for method, path, body in requests:
            refused = gateway.call(method, path, body, header(name))
            assert (refused.status, refused.error["class"]) == (404, "SessionGoneError"), (name, method, path)
    described = gateway.call("GET", session, headers=header("rita")).json
    assert described["operations"] == [{"operation": begun, "status": "RUNNING"}]


def test_client_lists_its_sessions_and_an_owner_all(gateway, open_as):
    ritas, walts = open_as("rita"), open_as("walt")

    def listed(name):
        return {
            (one["session"], one["client"], one["role"])
            for one in gateway.call("GET", "/v1/sessions", headers=header(name)).json["sessions"]
        }

    of_rita = (ritas.rpartition("/")[2][:8], "rita", "reader")
    of_walt = (walts.rpartition("/")[2][:8], "walt", "writer")
    assert listed("rita") == {of_rita}
    assert listed("walt") == {of_walt}
    assert listed("olga") == {of_rita, of_walt}


def test_info_names_client_and_role(gateway):
    for name, role in ROLES.items():
        info = gateway.call("GET", "/v1/info", headers=header(name)).json
        assert (info["client"], info["role"], info["read_only"]) == (name, role, role == "reader")
    single = gateway.call("GET", "/v1/info").json
    assert (single["client"], single["role"]) == ("default", "owner")


def test_gateway_that_only_reads_lets_no_role_write(clients_file):
    with serving(read_only=True, clients=read_clients(clients_file)) as gateway:
        session = gateway.call("POST", "/v1/sessions", {}, header("olga")).json["session"]
        dropped = gateway.call(
            "POST", f"/v1/sessions/{session}/statements", {"statement": "DROP TABLE orders"}, header("olga")
        )
        assert dropped.status == 403


def test_writer_stops_no_job_of_another_client(tmp_path):
    catalog = Catalog(str(tmp_path / "root"), tmp_path / "defs")
    for number, name in enumerate(("walt", "wilma", "")):
        folder = tmp_path / "root" / ".sql" / "jobs" / f"job-{number}"
        folder.mkdir(parents=True)
        asked = {"pipelines": ["orders"], "started": f"2026-01-0{number + 1}", "client": name}
        if not name:
            del asked["client"]  # of an older release
        (folder / "job.json").write_text(json.dumps(asked))
        (folder / "log").touch()
        (folder / "process").write_text("elsewhere 1 1")
        (folder / "exit").write_text("0")
    session = EmbeddedSession({"default": catalog}, {}, client="walt", rights=Rights(stops_own_jobs_only=True))
    assert session.execute("STOP JOB 'job-0'").result(60).message == "Job 'job-0' ends after its step."
    for job, got in (("job-1", "wilma"), ("job-2", "a job that no client of a gateway began")):
        for verb in ("STOP", "RESTART"):
            with pytest.raises(SqlError, match=rf"another client's\. Got: {got}\."):
                session.execute(f"{verb} JOB '{job}'").result(60)
    session.close()


JUDGED_BY_PLAN = (
    "EXPLAIN EXECUTE IMMEDIATE 'DROP TABLE a'",
    "SELECT reflect('java.lang.System', 'exit', 0)",
)
"""Judged by their plans, in the session: tests/spark/test_sql_judging.py."""
WRITING = (
    *BY_ROLE[Role.WRITER],
    *BY_ROLE[Role.OWNER],
    "EXPLAIN INSERT INTO a SELECT * FROM b",
    "EXPLAIN CREATE MATERIALIZED VIEW a AS SELECT * FROM b",
    "EXPLAIN CREATE FUNCTION f AS 'os:system'",
    "SELECT 1; DROP TABLE a",
    "insert overwrite a select 1",
    "/* SELECT */ DELETE FROM a",
    "SET VAR a = 1",
)
UNREADABLE = ("SELECT 'open", "CREATE TABLE a AS SELECT 1", "EXPLAIN")


def test_gateway_that_only_reads_executes_no_other_statement():
    refusal = re.compile(r"only reads\. Got: .+ Allowed: SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET, RESET\.")
    with serving(read_only=True) as gateway:
        session = gateway.open()
        for statement in BY_ROLE[Role.READER] + JUDGED_BY_PLAN:
            assert gateway.call("DELETE", gateway.execute(session, statement)).status == 200
        n_begun = len(gateway.sessions[0].operations)
        for statement in WRITING:
            refused = gateway.call("POST", f"{session}/statements", {"statement": statement})
            assert (refused.status, refused.error["class"]) == (403, "GatewayError"), statement
            assert refusal.search(refused.error["message"]), statement
        for statement in UNREADABLE:
            refused = gateway.call("POST", f"{session}/statements", {"statement": statement})
            assert (refused.status, refused.error["class"]) == (400, "SqlSyntaxError"), statement
        assert gateway.call("POST", f"{session}/jobs/job-1/stop").status == 403
        assert gateway.call("POST", f"{session}/configure", {"statement": "USE other"}).status == 403
        assert len(gateway.sessions[0].operations) == n_begun
        assert gateway.call("POST", f"{session}/configure", {"statement": "SET a = 1"}).status == 200
        assert gateway.call("GET", f"{session}/jobs").json["rows"] == [["job-1", "1", "RUNNING"]]


OF_THE_OPERATOR = (
    "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.fs.defaultFS",
    "spark.sql.catalog.x",
    "spark.sql.catalog.x.url",
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.warehouse.dir",
    "spark.sql.variable.substitute",
    "spark.sql.streaming.checkpointLocation",
    "spark.sql.sources.outputCommitterClass",
    "spark.sql.adaptive.customCostEvaluatorClass",
    "spark.databricks.delta.retentionDurationCheck.enabled",
    "spark.delta.logStore.s3.impl",
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.sql.Shuffle.partitions",
    "SPARK.jars",
)


@pytest.fixture(scope="module", params=[False, True], ids=["writing", "read-only"])
def any_gateway(request):
    with serving(read_only=request.param) as served:
        yield served


@pytest.mark.parametrize("key", OF_THE_OPERATOR)
def test_client_sets_nothing_that_is_the_operators(any_gateway, key):
    n_sessions = len(any_gateway.sessions)
    refused = any_gateway.call("POST", "/v1/sessions", {"settings": {"max-rows": "5", key: "http://192.0.2.1"}})
    assert (refused.status, refused.error["class"]) == (403, "GatewayError")
    assert f"Got: {key}. Allowed: max-rows, " in refused.error["message"]
    assert len(any_gateway.sessions) == n_sessions
    session = any_gateway.open()
    before = any_gateway.call("GET", session).json["settings"]
    for statement in (f"SET '{key}' = 'x'", f"SET `{key}` = x", f"RESET '{key}'", f"/* a */ set '{key}' = 'x';"):
        for path in (f"{session}/statements", f"{session}/configure"):
            assert any_gateway.call("POST", path, {"statement": statement}).status == 403, statement
    assert any_gateway.call("GET", session).json["settings"] == before
    assert any_gateway.call("POST", f"{session}/statements", {"statement": f"SET '{key}'"}).status == 201
    any_gateway.call("DELETE", session)


@pytest.mark.parametrize("key", [*sorted(OF_SPARK), *SETTINGS])
def test_client_sets_what_concerns_its_results(any_gateway, key):
    session = any_gateway.open(**{key: "1"})
    assert any_gateway.call("POST", f"{session}/configure", {"statement": f"SET '{key}' = '2'"}).status == 200
    assert any_gateway.call("GET", session).json["settings"][key] == "2"
    any_gateway.call("DELETE", session)
