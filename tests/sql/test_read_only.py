import pytest
from gateway_support import serving

from ebbtide.errors import GatewayError, SqlSyntaxError
from ebbtide.sql.gateway.roles import refuse_writing

READING = (
    "SELECT 1",
    "select * from orders emit changes",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "VALUES (1)",
    "TABLE orders",
    "FROM orders |> SELECT id",
    "(SELECT 1)",
    "SELECT * FROM a JOIN b USING (id)",
    "SELECT `insert`, 'DELETE', (SELECT max(`update`) FROM b) FROM a -- MERGE",
    "SELECT reflect FROM a",
    "SHOW TABLES",
    "SHOW JOBS",
    "SHOW DATABASES",
    "SHOW CREATE SOURCE a",
    "DESCRIBE orders",
    "DESC HISTORY orders",
    "EXPLAIN SELECT 1",
    "SET",
    "SET a = 1",
    "RESET a",
    "",
    ";",
)
OF_SPARK = (
    "EXPLAIN EXECUTE IMMEDIATE 'DROP TABLE a'",
    "SELECT reflect('java.lang.System', 'exit', 0)",
)
"""Judged by their plans, in the session: tests/spark/test_sql_judging.py."""
WRITING = (
    "INSERT INTO a SELECT * FROM b",
    "REFRESH MATERIALIZED VIEW a",
    "CREATE TABLE a (id INT, PRIMARY KEY (id))",
    "CREATE SOURCE a (id INT, PRIMARY KEY (id))",
    "CREATE MATERIALIZED VIEW a AS SELECT * FROM b",
    "CREATE FUNCTION f AS 'os:system'",
    "DROP TABLE a",
    "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT * FROM b; END",
    "EXPLAIN INSERT INTO a SELECT * FROM b",
    "EXPLAIN CREATE MATERIALIZED VIEW a AS SELECT * FROM b",
    "EXPLAIN CREATE FUNCTION f AS 'os:system'",
    "STOP JOB '1'",
    "USE other",
    "SOURCE 'file.sql'",
    "SELECT 1; DROP TABLE a",
    "DELETE FROM a",
    "insert overwrite a select 1",
    "/* SELECT */ DELETE FROM a",
    "BEGIN SELECT 1; DELETE FROM a; END",
    "EXECUTE IMMEDIATE 'DROP TABLE a'",
    "ADD JAR '/tmp/x.jar'",
    "SET VAR a = 1",
    "VACUUM a",
)


@pytest.mark.parametrize("statement", READING + OF_SPARK)
def test_what_reads_or_is_spark_s_is_taken(statement):
    refuse_writing(statement)


@pytest.mark.parametrize("statement", WRITING)
def test_statement_that_writes_is_refused_before_it_is_begun(statement):
    with pytest.raises(
        GatewayError, match=r"only reads\. Got: .+ Allowed: SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET, RESET\."
    ):
        refuse_writing(statement)


@pytest.mark.parametrize("key", ["max-rows", "spark.sql.shuffle.partitions", "a"])
def test_clients_set_what_concerns_their_results(key):
    refuse_writing(f"SET '{key}' = '1'")


@pytest.mark.parametrize("statement", ["SELECT 'open", "CREATE TABLE a AS SELECT 1", "EXPLAIN"])
def test_what_cannot_be_read_is_refused(statement):
    with pytest.raises(SqlSyntaxError):
        refuse_writing(statement)


def test_gateway_that_only_reads_executes_no_other_statement():
    with serving(read_only=True) as gateway:
        session = gateway.open()
        assert gateway.call("DELETE", gateway.execute(session, "SELECT * FROM orders")).status == 200
        for statement in WRITING:
            refused = gateway.call("POST", f"{session}/statements", {"statement": statement})
            assert (refused.status, refused.error["class"]) == (403, "GatewayError"), statement
        assert gateway.call("POST", f"{session}/jobs/job-1/stop").status == 403
        assert gateway.call("POST", f"{session}/configure", {"statement": "USE other"}).status == 403
        assert gateway.call("POST", f"{session}/configure", {"statement": "SET a = 1"}).status == 200
        assert gateway.call("GET", f"{session}/jobs").json["rows"] == [["job-1", "1", "RUNNING"]]
        assert len(gateway.sessions[0].operations) == 3
