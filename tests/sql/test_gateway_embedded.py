"""Embedded sessions behind a gateway: statements that need no Spark have the same results as without the gateway."""

import pytest
from statements.gateway_support import serving
from statements.sql_support import all_of

from ebbtide.errors import JavaMissingError
from ebbtide.sql import Catalog, EmbeddedSession, RemoteSession

SCRIPT = (
    "SHOW TABLES",
    "SHOW JOBS",
    "CREATE SOURCE clicks (id BIGINT, at STRING, PRIMARY KEY (id)) WITH ('path' = 'in', 'format' = 'plain')",
    "CREATE SOURCE clicks (id BIGINT, PRIMARY KEY (id)) WITH ('path' = 'in', 'format' = 'plain')",
    "CREATE SOURCE IF NOT EXISTS clicks (id BIGINT, PRIMARY KEY (id)) WITH ('path' = 'in', 'format' = 'plain')",
    "CREATE SOURCE other (id BIGINT)",
    "CREATE SOURCE other (id BIGINT, PRIMARY KEY (id)) WITH ('no' = 'in')",
    "CREATE TABLE seen (id BIGINT, at STRING, PRIMARY KEY (id))",
    "CREATE FUNCTION f AS 'os:system'",
    "CREATE FUNCTION f AS 'row_rules:twice'",
    "CREATE MATERIALIZED VIEW v AS SELECT * FROM seen",
    "SHOW SOURCES",
    "SHOW SOURCES LIKE 'c%'",
    "SHOW TABLES",
    "SHOW FUNCTIONS",
    "SHOW PIPELINES",
    "SHOW STEPS FROM seen",
    "SHOW CREATE SOURCE clicks",
    "SHOW CREATE TABLE seen",
    "SHOW CREATE TABLE none",
    "DESCRIBE clicks",
    "DESCRIBE seen",
    "SET",
    "SET max-rows",
    "SET max-rows = 5",
    "SET max-rows = none",
    "SET page-rows = 2",
    "SET unknown = 1",
    "SET spark.sql.shuffle.partitions = 3",
    "SET",
    "RESET max-rows",
    "RESET",
    "SET",
    "USE none",
    "USE default",
    "STOP JOB 'none'",
    "INSERT INTO none SELECT * FROM clicks",
    "INSERT INTO seen SELECT * FROM none",
    "EXPLAIN CREATE TABLE a (id INT, PRIMARY KEY (id))",
    "DROP TABLE seen",
    "DROP TABLE seen",
    "DROP TABLE IF EXISTS seen",
    "SHOW DATABASES",
    "SELECT 1",
    "SELECT 'open",
    "HELP",
    "SOURCE '/etc/passwd'",
    "",
)


def no_spark():
    raise JavaMissingError.of("Spark is not needed for this.")


@pytest.mark.demand("sql-embedded")
def test_script_through_the_gateway_gives_what_the_session_gives(tmp_path):
    here_folder, there_folder = tmp_path / "here", tmp_path / "there"

    def of(folder):
        catalog = Catalog(str(folder / "root"), folder / "defs")
        return lambda settings: EmbeddedSession({"default": catalog}, settings, start_spark=no_spark)

    def answers(operation, folder):
        return repr(all_of(operation)).replace(str(folder), "FOLDER")

    with serving(of(there_folder)) as gateway:
        direct, remote = of(here_folder)({}), RemoteSession(gateway.url)
        assert len(SCRIPT) > 40
        for statement in SCRIPT:
            here, there = direct.execute(statement), remote.execute(statement)
            assert answers(there, there_folder) == answers(here, here_folder), statement
            there.close()
            assert (remote.settings, remote.catalog_name) == (direct.settings, direct.catalog_name)
        for typed in ("", "SEL", "SELECT * FROM cl", "SET max"):
            assert remote.complete(typed, len(typed)) == direct.complete(typed, len(typed))
        remote.close()
        direct.close()
