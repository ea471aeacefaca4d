"""Materialized views in SQL, as far as no query has to be read: catalog, refusals, what is written again."""

import re

import pytest
import yaml

from ebbtide import load
from ebbtide.errors import EbbtideError, SqlError
from ebbtide.sql import _jobs as jobs
from ebbtide.sql import parse_text
from ebbtide.sql._jobs import repeats
from ebbtide.sql._views import _refuse_cycle, refresh_of


@pytest.fixture
def define(catalog):
    """Write a pipeline's definition."""

    def define(name, kind="UpsertPipeline", **attributes):
        of_table = {"source": {"path": "in"}, "format": {"type": "plain"}, "order": "arrival"}
        of_view = {"query": "SELECT id FROM orders", "inputs": ["orders"]}
        own = of_table if kind == "UpsertPipeline" else of_view
        document = {"name": name, "schema": "id BIGINT NOT NULL", "key": ["id"], **own, **attributes}
        folder = catalog.folder / name
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(yaml.safe_dump({"type": f"ebbtide.{kind}", "attributes": document}))
        return load(folder)

    return define


@pytest.fixture
def shop(define):
    """A table, a source's table that nothing fills, a view and a view over it."""
    define("orders")
    define("ids", "MaterializedView", description="Of orders.", refresh={"every": "5m"}, sink={"write": "rewrite"})
    define("more", "MaterializedView", inputs=["ids"], query="SELECT id FROM ids", refresh="manual")


@pytest.mark.usefixtures("shop")
def test_views_are_listed_described_and_written_again(do):
    assert do("SHOW TABLES") == [
        ["ids", "materialized view", "Of orders."],
        ["more", "materialized view", ""],
        ["orders", "table", ""],
    ]
    assert [row[0] for row in do("SHOW PIPELINES")] == ["ids", "more", "orders"]
    assert do("SHOW STEPS FROM ids") == []
    assert do("DESCRIBE ids") == [["id", "BIGINT", False, True, ""]]
    [[statement]] = do("SHOW CREATE MATERIALIZED VIEW ids")
    asked = parse_text(statement.rstrip(";"))
    assert (asked.key, asked.refresh, asked.comment) == (("id",), "5m", "Of orders.")
    assert {name: option.value for name, option in asked.options.items()} == {"sink.write": "rewrite"}
    assert asked.query.text == "SELECT id FROM orders"
    [[manual]] = do("SHOW CREATE MATERIALIZED VIEW more")
    assert parse_text(manual.rstrip(";")).refresh == "MANUAL"
    with pytest.raises(SqlError, match="There is no table 'ids'"):
        do("SHOW CREATE TABLE ids")


@pytest.mark.usefixtures("shop")
def test_what_a_view_reads_is_dropped_after_it(do, catalog):
    with pytest.raises(SqlError, match=r"'orders' is read by materialized views. Got: ids"):
        do("DROP TABLE orders")
    with pytest.raises(SqlError, match=r"Got: more. Drop these first"):
        do("DROP MATERIALIZED VIEW ids")
    with pytest.raises(SqlError, match=r"There is no table 'more'. Got: a materialized view"):
        do("DROP TABLE more")
    assert do("DROP MATERIALIZED VIEW more") == "Dropped materialized view 'more'."
    assert do("DROP MATERIALIZED VIEW ids") == "Dropped materialized view 'ids'."
    assert do("DROP TABLE orders") == "Dropped table 'orders'."
    assert not list(catalog.folder.rglob("*.yaml"))


@pytest.mark.usefixtures("shop", "declared")
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "reads no table of a pipeline. Allowed: ids, more, orders"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM log", "'log' is a source"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM kept", "Nothing fills the table 'kept' yet"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders$changes", "cannot read 'orders$changes'"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM orders VERSION AS OF 1", "cannot read 'orders@version1'"),
        ("CREATE MATERIALIZED VIEW orders AS SELECT * FROM ids", "There is a table 'orders' already"),
        ("CREATE OR REPLACE MATERIALIZED VIEW orders AS SELECT 1", "There is a table 'orders' already"),
        ("CREATE MATERIALIZED VIEW ids AS SELECT * FROM orders", "a materialized view 'ids' already"),
        ("CREATE MATERIALIZED VIEW `../v` AS SELECT * FROM orders", "not the name of a materialized view"),
        ("CREATE MATERIALIZED VIEW v WITH (path = x) AS SELECT * FROM orders", "no option 'path' of a view"),
        ("CREATE MATERIALIZED VIEW v WITH (query = x) AS SELECT * FROM orders", "no option 'query' of a view"),
        ("CREATE MATERIALIZED VIEW v WITH (sink.token = x) AS SELECT * FROM orders", "is a credential"),
        (
            "CREATE OR REPLACE MATERIALIZED VIEW ids AS SELECT * FROM more",
            "The view 'ids' would read itself. Got: ids of more of ids",
        ),
        ("CREATE OR REPLACE MATERIALIZED VIEW ids AS SELECT * FROM ids", "would read itself"),
        ("REFRESH MATERIALIZED VIEW orders", "There is no materialized view 'orders'. Got: a table"),
        ("REFRESH MATERIALIZED VIEW no", "There is no materialized view 'no'"),
        ("DROP MATERIALIZED VIEW no", "There is no materialized view 'no'"),
    ],
)
def test_what_is_no_view_is_refused_before_spark_is_needed(do, statement, says):
    with pytest.raises(EbbtideError, match=re.escape(says)):
        do(statement)


@pytest.mark.usefixtures("shop")
def test_view_that_is_there_may_stay(do):
    says = do("CREATE MATERIALIZED VIEW IF NOT EXISTS ids AS SELECT * FROM orders")
    assert says == "There is a materialized view 'ids' already."


def test_view_over_the_same_table_in_two_ways_is_no_circle(catalog, define):
    define("orders")
    define("a", "MaterializedView")
    define("b", "MaterializedView", inputs=["a", "orders"])
    _refuse_cycle(catalog.entries(), "c", ["a", "b", "orders"])


@pytest.mark.parametrize(
    ("text", "refresh"), [("ON CHANGE", "on_change"), ("MANUAL", "manual"), ("1h", {"every": "1h"})]
)
def test_refresh_is_said_as_the_spec_has_it(text, refresh):
    assert refresh_of(text) == refresh


def test_job_of_a_view_goes_on_unless_it_is_refreshed_by_hand(define):
    assert not repeats(define("orders"))
    assert repeats(define("a", "MaterializedView"))
    assert not repeats(define("b", "MaterializedView", refresh="manual"))


@pytest.mark.demand("sql-views")
def test_view_is_due_at_its_interval(catalog, define):
    define("a", "MaterializedView", refresh={"every": "1h"})
    folder = str(catalog.folder / "a")
    now = jobs.time.monotonic()
    assert not jobs._due(folder, catalog.root, now)()
    assert jobs._due(folder, catalog.root, now - 3601)()
