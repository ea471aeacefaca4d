"""SQL over Spark through the gateway."""

import pytest
from clusters.spark_support import LOCAL, change, write
from statements.gateway_support import serving
from statements.sql_support import all_of

from ebbtide import run
from ebbtide.sql import Catalog, EmbeddedSession, RemoteSession, parse_text
from ebbtide.sql._fill import plan_insert, write_filling

OF_SPARK = """
SHOW TABLES; DESCRIBE kept; UPDATE kept SET v = 'x'; SELECT nope FROM kept; SELECT 1 FRM kept;
SELECT NULL, true, 1.5, 2.5e0, 'a', X'0AFF', DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.6', CAST('NaN' AS DOUBLE);
SELECT 1 AS a, 2 AS a, INTERVAL '1' DAY, array(1, 2), map('a', 1), named_struct('a', 1), 9007199254740993L;
SET page-rows = 2; SELECT id FROM range(5) ORDER BY id; SET max-rows = 1; SELECT id FROM kept ORDER BY id; RESET;
SET spark.sql.ansi.enabled = false; SELECT 1 / 0
"""
"""Those that need no Spark: tests/sql/test_gateway_embedded.py."""
ALL = (
    """
SHOW TABLES LIKE 'k%'; SHOW SOURCES; SHOW FUNCTIONS; SHOW PIPELINES; SHOW STEPS FROM kept; SHOW STEPS;
SHOW JOBS; SHOW CATALOGS; SHOW CREATE TABLE kept; SHOW CREATE SOURCE log; SHOW CREATE TABLE nope;
DESCRIBE log; EXPLAIN INSERT INTO kept SELECT * FROM log; EXPLAIN INSERT INTO nope SELECT * FROM log;
EXPLAIN CREATE TABLE a (id INT, PRIMARY KEY (id)); DROP SOURCE nope; DROP TABLE kept; CREATE TABLE kept (id BIGINT, PRIMARY KEY (id));
CREATE TABLE IF NOT EXISTS kept (id BIGINT, PRIMARY KEY (id)); CREATE FUNCTION f AS 'nope'; CREATE SOURCE s (id BIGINT);
DELETE FROM kept; MERGE INTO kept USING kept ON true WHEN MATCHED THEN DELETE; SELECT 'open; SELECT * FROM log;
SELECT * FROM kept EMIT CHANGES FROM 'nope=1'; SET max-rows = none; SET unknown = 1; SET max-rows; USE nope; USE default; STOP JOB 'none'; HELP;
SELECT * FROM kept$nope; SELECT count(*)\nFROM kept$state s WHERE nope = 1;
SELECT v, count(*) FROM kept STEP AS OF 1 GROUP BY v ORDER BY v;
SELECT id, tombstone FROM kept$state ORDER BY id; SELECT * FROM kept$quarantine;
SET; SELECT 1 / 0; DECLARE VARIABLE three INT DEFAULT 3; SELECT three;
"""
    + OF_SPARK
)


@pytest.fixture(scope="module")
def catalog(spark, tmp_path_factory):
    """A catalog with a table of two steps."""
    home = tmp_path_factory.mktemp("clients")
    catalog = Catalog(str(home / "root"), home / "defs")
    session = EmbeddedSession({"default": catalog}, {}, start_spark=spark.newSession)
    source = write(
        home / "in",
        [change("+I", 1, "a", 1), change("+I", 2, "b", 2)],
        [change("+U", 1, "c", 3), change("-D", 2, "b", 4), change("+I", 3, "d", 5)],
    )
    for text in (
        f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
            WITH (path = '{source}', format = plain, records = value, sequence = seq, max_files_per_step = 1)""",
        "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))",
    ):
        session.execute(text).result(60)
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO kept SELECT * FROM log")))
    run(LOCAL, catalog.pipeline("kept").spec, catalog.root)
    session.close()
    return catalog


@pytest.mark.parametrize("text", [OF_SPARK, pytest.param(ALL, marks=pytest.mark.grid)], ids=["of Spark", "all"])
def test_statements_give_the_same_here_and_through_the_gateway(spark, catalog, text):
    def open_session(settings):
        return EmbeddedSession({"default": catalog}, settings, start_spark=spark.newSession)

    statements = text.split(";")
    with serving(open_session) as gateway:
        direct, remote = open_session({}), RemoteSession(gateway.url)
        for statement in statements:
            here, there = direct.execute(statement), remote.execute(statement)
            assert all_of(there) == all_of(here), statement
            here.close()
            there.close()
        remote.close()
        direct.close()
