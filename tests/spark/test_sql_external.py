"""Catalogs of Spark that the environment's file names, as sources of tables: here JDBC, over a database of Derby."""

import pytest
from clusters.spark_support import LOCAL, change, write

from ebbtide import run
from ebbtide.errors import EbbtideError
from ebbtide.sql import EmbeddedSession, Rights, parse_text, read_environment
from ebbtide.sql._fill import plan_insert, write_filling

JDBC = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("external")


@pytest.fixture(scope="module")
def environment(spark, home):
    """An environment's file with a catalog over a database that has a table."""
    url = f"jdbc:derby:{home / 'database'};create=true"
    names = spark.createDataFrame([(1, "one"), (2, "two")], "ID BIGINT, NAME STRING")
    names.write.jdbc(url, "NAMES", properties={"driver": DRIVER})
    file = home / "env.yaml"
    options = f'{{url: "{url}", driver: {DRIVER}}}'
    file.write_text(f"external_catalogs:\n  shop: {{class: {JDBC}, options: {options}}}\n")
    return read_environment(file)


@pytest.fixture(scope="module")
def sessions(spark, home, environment):
    """A session of an owner, with a table, and one of a gateway's reader."""
    catalogs = environment.catalogs(str(home / "root"), str(home / "defs"))
    owner = EmbeddedSession(catalogs, environment.settings, start_spark=spark.newSession)
    reader = EmbeddedSession(
        catalogs, environment.settings, start_spark=spark.newSession, rights=Rights.of_gateway(writes=False)
    )
    source = write(home / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)])
    for text in (
        f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
            WITH (path = '{source}', format = plain, records = value, sequence = seq)""",
        "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))",
        "CREATE TABLE more (id BIGINT NOT NULL, PRIMARY KEY (id))",
    ):
        owner.execute(text).result(60)
    catalog = owner.catalog
    write_filling(catalog, plan_insert(catalog, parse_text("INSERT INTO kept SELECT * FROM log")))
    run(LOCAL, catalog.pipeline("kept").spec, catalog.root)
    yield {"owner": owner, "reader": reader}
    owner.close()
    reader.close()


@pytest.mark.parametrize("who", ["owner", "reader"])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM shop.APP.NAMES ORDER BY ID", [[1, "one"], [2, "two"]]),
        ("SELECT v, NAME FROM kept JOIN shop.APP.NAMES n ON kept.id = n.ID WHERE kept.id > 1", [["b", "two"]]),
    ],
)
@pytest.mark.demand("sql-external-catalogs")
def test_tables_of_an_external_catalog_are_read_alone_and_with_those_of_pipelines(sessions, who, query, rows):
    assert sessions[who].execute(query).page(0, 120).rows == rows


def test_external_catalog_is_listed_and_named_by_the_error_of_use(sessions):
    rows = sessions["owner"].execute("SHOW CATALOGS").page(0, 60).rows
    assert [row[:2] for row in rows][-1] == ["shop", JDBC]
    with pytest.raises(EbbtideError, match=r"It is a catalog of Spark: query shop\.database\.table"):
        sessions["owner"].execute("USE shop").result(60)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("INSERT INTO more SELECT ID FROM shop.APP.log", "this is a table of another catalog. Got: shop.APP.log"),
        ("CREATE MATERIALIZED VIEW v AS SELECT ID FROM shop.APP.NAMES", "reads no table of a pipeline"),
        ("CREATE MATERIALIZED VIEW v AS SELECT id FROM kept JOIN shop.APP.NAMES USING (id)", "APP.*NAMES"),
    ],
)
def test_pipelines_and_views_refuse_tables_whose_changes_are_not_known(sessions, statement, says):
    with pytest.raises(EbbtideError, match=says):
        sessions["owner"].execute(statement).result(120)
