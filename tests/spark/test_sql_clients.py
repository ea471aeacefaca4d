"""SQL over Spark by other ways than a session here: through the gateway, and through Spark Connect."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest
from gateway_support import serving
from spark_support import change, write
from sql_support import all_of

from ebbtide.runtime.driver import run
from ebbtide.sql.catalog import Catalog
from ebbtide.sql.connect import ConnectServer
from ebbtide.sql.embedded import EmbeddedSession
from ebbtide.sql.filling import plan_insert, write_filling
from ebbtide.sql.parsing import parse_text
from ebbtide.sql.remote import RemoteSession

STATEMENTS = """
SHOW TABLES; SHOW TABLES LIKE 'k%'; SHOW SOURCES; SHOW FUNCTIONS; SHOW PIPELINES; SHOW STEPS FROM kept; SHOW STEPS;
SHOW JOBS; SHOW CATALOGS; SHOW CREATE TABLE kept; SHOW CREATE SOURCE log; SHOW CREATE TABLE nope; DESCRIBE kept;
DESCRIBE log; DESCRIBE kept$steps; DESCRIBE nope; SHOW DATABASES; EXPLAIN INSERT INTO kept SELECT * FROM log;
EXPLAIN CREATE TABLE a (id INT, PRIMARY KEY (id));
SELECT 1; SELECT 1 AS a, 2 AS a; SELECT NULL, true, 1.5, 2.5e0, 'a', X'0AFF'; SELECT DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.6';
SELECT INTERVAL '1' DAY, array(1, 2), map('a', 1), named_struct('a', 1); SELECT CAST(9007199254740993 AS BIGINT), CAST('NaN' AS DOUBLE);
SELECT 'a;b' -- a comment;
; VALUES (1, 'a'), (2, NULL); SELECT id FROM range(5) WHERE id > 2;
SELECT * FROM kept ORDER BY id; SELECT id, upper(v) AS loud FROM kept WHERE id < 3 ORDER BY id DESC; SELECT count(*) FROM kept;
SELECT v, count(*) FROM kept GROUP BY v HAVING count(*) > 0 ORDER BY v; SELECT * FROM kept VERSION AS OF 1 ORDER BY id;
SELECT * FROM kept STEP AS OF 1 ORDER BY id; SELECT id, tombstone FROM kept$state ORDER BY id; SELECT step, records FROM kept$steps ORDER BY step;
SELECT id, _change_type FROM kept$changes ORDER BY id, _change_type; SELECT * FROM kept$quarantine; SELECT * FROM kept$nope;
WITH two AS (SELECT id FROM kept) SELECT a.id FROM two a JOIN kept b USING (id) ORDER BY 1; SELECT nope FROM kept; SELECT * FROM nope;
SELECT * FROM log; SELECT 1 FRM kept; SELECT raise_error('boom'); SELECT 1 / 0; SELECT CAST('x' AS INT); UPDATE kept SET v = 'x'; DELETE FROM kept;
SELECT 'open; SELECT * FROM kept EMIT CHANGES FROM 'nope=1'; SET max-rows = 1; SELECT id FROM kept ORDER BY id; RESET max-rows;
SET page-rows = 2; SELECT id FROM range(5) ORDER BY id; SET page-rows = none; SET unknown = 1; SET spark.sql.ansi.enabled = false;
SELECT CAST('x' AS INT) AS lenient; RESET; SET; SET max-rows; USE nope; USE default; STOP JOB 'none'; DROP SOURCE nope;
CREATE TABLE kept (id BIGINT, PRIMARY KEY (id)); DROP TABLE kept; CREATE TEMPORARY VIEW two AS SELECT 2 AS two; SELECT * FROM two;
DECLARE VARIABLE three INT DEFAULT 3; SELECT three; HELP
"""


@pytest.fixture(scope="module")
def catalog(spark, tmp_path_factory):
    """A catalog with a table of two steps."""
    home = tmp_path_factory.mktemp("clients")
    catalog = Catalog(str(home / "root"), home / "defs")
    session = EmbeddedSession(catalog, {}, start_spark=spark.newSession)
    source = write(
        home / "in",
        [change("+I", 1, "a", 1), change("+I", 2, "b", 2)],
        [change("+U", 1, "c", 3), change("-D", 2, "b", 4), change("+I", 3, "d", 5)],
    )
    for text in (
        f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
            WITH (path = '{source}', format = plain, records = value, sequence = seq, max_files_per_step = 1)""",
        "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, PRIMARY KEY (id))",
    ):
        session.execute(text).result(60)
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO kept SELECT id, v FROM log")))
    run(spark, catalog.pipeline("kept").spec, catalog.root)
    session.close()
    return catalog


def test_statements_give_the_same_here_and_through_the_gateway(spark, catalog):
    def open_session(settings):
        return EmbeddedSession(catalog, settings, start_spark=spark.newSession)

    statements = STATEMENTS.split(";")
    assert len(statements) >= 60
    with serving(open_session) as gateway:
        direct, remote = open_session({}), RemoteSession(gateway.url)
        for statement in statements:
            here, there = direct.execute(statement), remote.execute(statement)
            assert all_of(there) == all_of(here), statement
            here.close()
            there.close()
        remote.close()
        direct.close()


@pytest.fixture
def connected(spark, catalog):
    """Spark Connect over the catalog; its port."""
    server = ConnectServer(spark.newSession(), catalog, pytest.fail)
    yield server.start("127.0.0.1", 0, None)
    server.stop()


def test_jdbc_client_lists_the_tables_and_reads_their_rows(connected, tmp_path):
    script = tmp_path / "script.sql"
    script.write_text("SHOW TABLES;\nSELECT * FROM kept ORDER BY id;\n")
    jars = Path(pyspark.__file__).parent / "jars"
    client = subprocess.run(
        [
            Path(os.environ["JAVA_HOME"]) / "bin" / "java" if "JAVA_HOME" in os.environ else "java",
            *("-cp", f"{jars}/*:{jars}/connect-repl/*"),
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "org.apache.hive.beeline.BeeLine",
            *("-u", f"jdbc:sc://127.0.0.1:{connected}"),
            *("-d", "org.apache.spark.sql.connect.client.jdbc.SparkConnectDriver"),
            *("--outputformat=csv2", "--silent=true", "-f", script),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert client.returncode == 0, client.stderr
    lines = client.stdout.splitlines()
    assert "default,kept,false" in lines
    assert lines[lines.index("id,v") :][:3] == ["id,v", "1,c", "3,d"]
