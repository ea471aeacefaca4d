import pytest
from gateway_support import serving

from ebbtide.errors import GatewayError, SqlSyntaxError
from ebbtide.sql.gateway.read_only import refuse_writing

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
    "EXPLAIN INSERT INTO a SELECT * FROM b",
    "SET",
    "SET a = 1",
    "RESET a",
    "",
    ";",
)
WRITING = (
    "INSERT INTO a SELECT * FROM b",
    "insert overwrite a select 1",
    "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
    "WITH a AS (SELECT 1) DELETE FROM b WHERE id IN (SELECT * FROM a)",
    "FROM a INSERT INTO b SELECT * INSERT INTO c SELECT *",
    "/* SELECT */ DELETE FROM a",
    "REFRESH MATERIALIZED VIEW a",
    "UPDATE a SET b = 1",
    "MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE",
    "CREATE TABLE a (id INT, PRIMARY KEY (id))",
    "CREATE VIEW a AS SELECT 1",
    "CREATE FUNCTION f AS 'os:system'",
    "DROP TABLE a",
    "TRUNCATE TABLE a",
    "BEGIN SELECT 1; DELETE FROM a; END",
    "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT * FROM b; END",
    "EXECUTE IMMEDIATE 'DROP TABLE a'",
    "SET VAR a = 1",
    "DECLARE a INT",
    "STOP JOB '1'",
    "USE other",
    "SOURCE 'file.sql'",
    "ADD JAR '/tmp/x.jar'",
    "CACHE TABLE a",
    "REFRESH TABLE a",
    "OPTIMIZE a",
    "VACUUM a",
    "CALL system.procedure()",
    "SELECT 1; DROP TABLE a",
    "SELECT reflect('java.lang.System', 'exit', 0)",
    "SELECT `java_method`('java.lang.System', 'exit', 0)",
    "SELECT * FROM a WHERE Try_Reflect ('x', 'y') = 1",
    "SELECT IDENTIFIER('refl' || 'ect')('java.lang.System', 'exit', 0)",
    "SELECT TRANSFORM(id) USING 'sh -c id' FROM a",
    "FROM a SELECT TRANSFORM(id) USING r'id' AS x",
    'FROM a MAP id USING "id" AS x',
    "SELECT * FROM (SELECT TRANSFORM(id) USING 'id' FROM a)",
)


@pytest.mark.parametrize("statement", READING)
def test_what_reads_is_taken(statement):
    refuse_writing(statement)


@pytest.mark.parametrize("statement", WRITING)
def test_what_writes_or_reaches_out_of_sql_is_refused(statement):
    with pytest.raises(
        GatewayError, match=r"only reads\. Got: .+ Allowed: SELECT, SHOW, DESCRIBE, EXPLAIN, SET, RESET\."
    ):
        refuse_writing(statement)


REACHING = (
    "dagster-url",
    "spark.hadoop.fs.s3a.endpoint",
    "spark.sql.catalog.x",
    "SPARK.jars",
    "spark.sql.catalogImplementation",
)


@pytest.mark.parametrize("key", REACHING)
def test_clients_do_not_set_what_is_reached(key):
    with pytest.raises(GatewayError, match=rf"not set by its clients\. Got: {key}"):
        refuse_writing(f"SET '{key}' = 'http://192.0.2.1'")
    refuse_writing(f"SET '{key}'")
    with serving(read_only=True) as gateway:
        assert gateway.call("POST", "/v1/sessions", {"settings": {key: "x"}}).status == 403
    with serving() as gateway:
        assert gateway.call("POST", "/v1/sessions", {"settings": {key: "x"}}).status == 201


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
