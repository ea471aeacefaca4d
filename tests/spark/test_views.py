"""Materialized views on Spark: equal to their query after each step, whatever happens in one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, change, sink, table, write
from frame.limits import set_limits
from frame.stored_names import RESERVED
from pyspark.sql import SparkSession

from ebbtide import MaterializedView, UpsertPipeline, run
from ebbtide.errors import EbbtideError, SourceReadError, ViewQueryError
from ebbtide.runtime import idle_run
from ebbtide.sql import Catalog, EmbeddedSession, parse_text
from ebbtide.sql._views import plan_view, write_view
from ebbtide.views import staging

CRASH = Path(__file__).parent / "crash.py"
LATER_MS = 2_000_000_000_000


def view_of(name, query, key, schema, inputs, **more):
    return MaterializedView(name=name, query=query, key=key, schema=schema, inputs=inputs, **more)


def wanted(spark: SparkSession, root, view):
    """What the query gives now, in Spark alone."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    for name in view.inputs:
        rows = session.read.format("delta").load(str(root / name / "sink"))
        rows.drop(*RESERVED).createOrReplaceTempView(name)
    found = session.sql(view.query).toArrow().to_pylist()
    return sorted(found, key=lambda row: json.dumps([row[k] for k in view.key], default=str))


class Tables:
    """Two small tables that change as a test says, and views over them."""

    def __init__(self, spark, home):
        self.spark, self.home, self.root = spark, home, home / "root"
        self.specs = {name: self._spec(name) for name in ("people", "orders")}
        self._n = 0

    def _spec(self, name):
        return UpsertPipeline(
            name=name,
            source={"path": str(self.home / name), "records": "value"},
            format={"type": "plain"},
            schema="id BIGINT NOT NULL, v STRING, seq BIGINT",
            key=["id"],
            order={"sequence": ["seq"]},
        )

    def change(self, name, *changes):
        """Change rows, as `(kind, id, v)`."""
        self._n += 1
        lines = [change(kind, id_, v, self._n) for kind, id_, v in changes]
        write(self.home / name, lines, first=self._n)
        run(LOCAL, self.specs[name], str(self.root))

    def run(self, view):
        return run(self.spark, view, str(self.root)).steps

    def rows(self, view):
        return sink(self.spark, self.root, view)

    def assert_right(self, view):
        assert self.rows(view) == wanted(self.spark, self.root, view)


@pytest.fixture
def tables(spark, tmp_path):
    return Tables(spark, tmp_path)


@pytest.fixture
def filled(tables):
    tables.change("people", ("+I", 1, "ann"), ("+I", 2, "bob"))
    tables.change("orders", ("+I", 10, "1"), ("+I", 11, "1"), ("+I", 12, "2"))
    return tables


GROUPED = view_of(
    "grouped",
    "SELECT p.id, p.v AS name, count(o.id) AS n FROM people p LEFT JOIN orders o ON p.v = o.v OR p.id = CAST(o.v AS BIGINT) "
    "GROUP BY p.id, p.v",
    ["id"],
    "id BIGINT NOT NULL, name STRING, n BIGINT",
    ["people", "orders"],
)
BY_VALUE = view_of(
    "by_value",
    "SELECT v, count(*) AS n, max(id) AS top FROM orders GROUP BY v",
    ["v"],
    "v STRING NOT NULL, n BIGINT, top BIGINT",
    ["orders"],
)


@pytest.mark.parametrize(
    "is_little",
    [pytest.param(True, id="cut here"), pytest.param(False, id="cut by Spark", marks=pytest.mark.grid)],
)
def test_view_is_right_after_updates_deletes_and_moves_and_computes_what_they_touch(filled, is_little):
    if not is_little:
        set_limits(view_table_bytes=-1)
    [first] = filled.run(BY_VALUE)
    assert (first.recomputed, first.metrics["inserted"]) == ("it is the first step", 2)
    assert idle_run(BY_VALUE, str(filled.root), LATER_MS) is not None
    filled.change("orders", ("+U", 10, "2"), ("-D", 12, "2"), ("+I", 13, "3"), ("+I", 14, None))
    assert idle_run(BY_VALUE, str(filled.root), LATER_MS) is None
    [second] = filled.run(BY_VALUE)
    assert second.recomputed == ""
    assert {name: second.metrics.get(name) for name in ("inserted", "updated", "deleted")} == {
        "inserted": 1,
        "updated": 2,
        "deleted": None,
    }
    assert second.quarantined == 1  # the group without a key
    [bad] = table(filled.spark, filled.root, BY_VALUE, "quarantine")
    assert (bad["reason"], json.loads(bad["raw"])) == ("null_key", {"v": None, "n": 1, "top": 14})
    assert [(row["v"], row["n"], row["top"]) for row in filled.rows(BY_VALUE)] == [
        ("1", 1, 11),
        ("2", 1, 10),
        ("3", 1, 13),
    ]


@pytest.mark.grid
def test_input_that_no_key_can_be_followed_to_has_all_computed_and_it_is_said(filled):
    filled.run(GROUPED)
    filled.change("orders", ("+U", 12, "1"))
    [step] = filled.run(GROUPED)
    assert step.recomputed == "no column shows which rows a change of orders touches"
    assert (step.metrics["updated"], step.records) == (2, 2)  # rows that stay as they are are no changes
    filled.change("people", ("+U", 2, "eve"))
    [step] = filled.run(GROUPED)
    assert (step.recomputed, step.metrics["updated"], step.records) == ("", 1, 1)
    filled.assert_right(GROUPED)


UNFIT = {
    "SELECT v, id AS n, CAST(rand() AS BIGINT) AS top FROM orders": "a function that is not deterministic",
    "SELECT v, 1 AS n, current_date() AS top FROM orders GROUP BY v": "changes from run to run",
    "SELECT v, 1 AS n, first(id) AS top FROM orders GROUP BY v": "order of rows. Got: First",
    "SELECT v, 1 AS n, collect_list(id) AS top FROM orders GROUP BY v": "Got: CollectList",
    "SELECT v, 1 AS n, id AS top FROM orders TABLESAMPLE (10 PERCENT)": "takes a sample",
    "SELECT v, n, top FROM nobody": "TABLE_OR_VIEW_NOT_FOUND",
    "SELECT v, 1 AS n, 2 AS top FROM orders GROUP BY v": r"Got: v STRING, n INT, top INT. Allowed: v STRING, n BIGINT",
    "SELECT v, count(*) AS n, max(1 DIV (id - 10)) AS top FROM orders GROUP BY v": "DIVIDE_BY_ZERO",
}


def test_query_that_cannot_be_kept_is_refused(filled):
    for query, message in list(UNFIT.items())[-3:]:  # the rest: test_view_analysis.py
        with pytest.raises(ViewQueryError, match=message):
            filled.run(BY_VALUE.model_copy(update={"query": query}))
    path = filled.root / "orders" / "sink"
    by_path = BY_VALUE.model_copy(update={"query": f"SELECT v, id AS n, id AS top FROM delta.`{path}`"})
    with pytest.raises(ViewQueryError, match="reads something other than pipelines' tables"):
        filled.run(by_path)


def test_view_over_a_table_that_is_not_there_is_refused_before_anything_is_made(tables):
    with pytest.raises(SourceReadError, match="reads 'orders', which has no table yet"):
        tables.run(BY_VALUE)
    assert not (tables.root / "by_value").exists()


def test_view_is_declared_explained_filled_and_dropped_in_sql(filled):
    catalog = Catalog(str(filled.root), filled.home / "defs")
    for name, spec in filled.specs.items():
        given = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        folder = catalog.folder / name
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    session = EmbeddedSession({"default": catalog}, {}, start_spark=filled.spark.newSession)

    def do(text):
        operation = session.execute(text)
        result = operation.result(120)
        rows = operation.page(0, 120).rows
        operation.close()
        return [row[0] for row in rows] if result.columns else result.message

    statement = """CREATE MATERIALIZED VIEW named (PRIMARY KEY (id)) REFRESH MANUAL AS
        SELECT o.id, p.v AS name FROM orders o JOIN people p ON p.id = CAST(o.v AS BIGINT)"""
    explained = do(f"EXPLAIN {statement}")[0].splitlines()
    assert "schema: '`id` BIGINT NOT NULL, `name` STRING'" in explained
    assert explained[explained.index("inputs:") + 1 :][:2] == ["- orders", "- people"]
    assert "a change of orders computes the rows of the same id" in explained
    assert "a change of people computes all rows: no column that identifies its rows is selected" not in explained
    assert "a change of people computes the rows of the same name" in explained
    with pytest.raises(EbbtideError, match="does not show which columns"):
        do("EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT v FROM orders")
    with pytest.raises(EbbtideError, match="PARSE_SYNTAX_ERROR"):
        do("EXPLAIN CREATE MATERIALIZED VIEW x AS SELECT FROM GROUP orders")
    write_view(catalog, plan_view(catalog, parse_text(statement), filled.spark.newSession))
    run(filled.spark, catalog.pipeline("named").spec, catalog.root)
    assert do("SELECT name FROM named WHERE id < 12 ORDER BY id") == ["ann", "ann"]
    assert do("DROP MATERIALIZED VIEW named") == "Dropped materialized view 'named'."
    assert not (filled.root / "named").exists()
    session.close()


@pytest.mark.grid
@pytest.mark.parametrize(
    ("place", "kinds"),
    [("before the decision", ["batch"]), ("after the decision", ["replay"]), ("after the sink", [])],
)
def test_view_killed_in_a_step_is_right_after_the_next(filled, place, kinds):
    filled.run(BY_VALUE)
    filled.change("orders", ("+U", 10, "2"), ("-D", 11, "1"), ("+I", 15, "4"))
    given = BY_VALUE.model_dump_json(by_alias=True, exclude_unset=True)
    killed = subprocess.run(
        [sys.executable, CRASH, given, filled.root, place, "once"], check=False, stderr=subprocess.PIPE
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert [step.kind for step in filled.run(BY_VALUE)] == kinds
    filled.assert_right(BY_VALUE)


def test_difference_tells_what_is_new_another_and_gone_and_takes_null_for_a_value(spark):
    new = spark.createDataFrame([(1, None, [1]), (2, "b", [2]), (4, "d", None)], "id INT, v STRING, a ARRAY<INT>")
    old = spark.createDataFrame([(1, None, [1]), (2, "b", [3]), (3, "c", [1])], "id INT, v STRING, a ARRAY<INT>")
    rows = staging.difference(new, old, ["id"], is_unique=False)
    changes = staging.as_changes(rows, ["id"], "view", step=7, wall_ms=1_000).collect()
    assert sorted((row["_kind"], row["id"]) for row in changes) == [("+U", 2), ("+U", 4), ("-D", 3)]
    assert {row["_sequence"] for row in changes} == {(7,)}
    assert len({row["_order"] for row in changes}) == len({row["_origin"] for row in changes}) == 3


def test_row_that_lacks_a_part_of_its_key_is_bad_and_shown(spark):
    new = spark.createDataFrame([(None, "a"), (5, None), (None, "a"), (5, "b")], "id INT, v STRING")
    rows = staging.difference(new, new.limit(0), ["id", "v"], is_unique=False)
    changes = staging.as_changes(rows, ["id", "v"], "view", step=7, wall_ms=1_000).collect()
    assert [row["id"] for row in changes if row["_kind"]] == [5]
    bad = [row for row in changes if row["_kind"] is None]
    assert {row["_reason"] for row in bad} == {"null_key"}
    assert sorted(bytes(row["_raw"]) for row in bad) == [
        b'{"id":5,"v":null}',
        b'{"id":null,"v":"a"}',
        b'{"id":null,"v":"a"}',
    ]
