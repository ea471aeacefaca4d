"""Every family of queries, kept as a view: what a step computes, and what it leaves as it was, is what the whole query gives."""

import os

import pytest
from frame.limits import set_limits
from oracles.view_inputs import Followed, Inputs, Oracle
from oracles.view_queries import QUERIES

from ebbtide.views.inputs import ViewTables
from ebbtide.views.recompute import Recomputing

# Some of other kinds; the grid has them all.
SOME = [
    "anti on a value",
    "join over a group",
    "except of tables",
    "first of each",
]


@pytest.fixture(autouse=True)
def _inputs_without_spark():
    set_limits(rows_in_driver=10_000)


def followed(oracle, folder, names):
    """The families, each after its first step."""
    found = []
    for name in names:
        query, key = QUERIES[name]
        each = Followed(oracle, oracle.view(query, key), folder)
        each.step()
        found.append(each)
    return found


def test_families_are_right_after_a_change_of_all_tables(spark, tmp_path):
    inputs = Inputs(tmp_path, seed=1)
    families = followed(Oracle(spark, inputs.root, is_read_by_spark=False), tmp_path, SOME)
    inputs.change("a", "b", "c")
    extents = [each.step() for each in families]
    assert sum(not extent.reason for extent in extents) > len(extents) // 2


def test_rows_that_fit_two_readings_of_a_table_are_cut_out_once_by_spark(spark, tmp_path):
    set_limits(view_table_bytes=-1)
    inputs = Inputs(tmp_path, seed=1)
    oracle = Oracle(spark, inputs.root, is_read_by_spark=False)
    query = "SELECT id FROM a UNION ALL SELECT seq FROM a"
    tables = ViewTables(oracle.view(query, ["id"]), str(inputs.root))
    before = tables.pinned()
    inputs.tables["a"].change(7, [("+U", {"id": 8, "x": 1, "y": "p"})])
    step = Recomputing(spark, tables, "", before, tables.pinned())
    values = step.touched()
    assert {7, 8} <= set(values["id"].to_pylist())
    found = step.cut(step.inputs["a"], (("id",), ("seq",)), values).toArrow().to_pylist()
    assert [row["x"] for row in found if row["id"] == 8] == [1]


@pytest.mark.parametrize(
    ("query", "key", "is_unique"),
    [
        ("SELECT x, y, count(*) AS n FROM a GROUP BY x, y", ["x", "y", "n"], True),
        ("SELECT x, y, count(*) AS n FROM a GROUP BY x, y", ["x"], False),
        ("SELECT id, x FROM a", ["id"], False),
    ],
    ids=["all of what is grouped by", "a part of it", "unknown"],
)
def test_rows_of_a_key_are_counted_unless_the_query_gives_one(spark, tmp_path, query, key, is_unique):
    oracle = Oracle(spark, Inputs(tmp_path, seed=1).root, is_read_by_spark=False)
    tables = ViewTables(oracle.view(query, key), str(oracle.root))
    assert Recomputing(spark, tables, "", None, tables.pinned()).is_unique is is_unique


@pytest.mark.grid
@pytest.mark.parametrize("is_little", [True, False], ids=["cut here", "cut by Spark"])
@pytest.mark.parametrize("name", QUERIES)
def test_family_is_right_after_each_of_a_hundred_rounds(spark, tmp_path, name, is_little):
    if not is_little:
        set_limits(view_table_bytes=-1)
    inputs = Inputs(tmp_path, seed=sum(map(ord, name)))
    n_rounds = int(os.environ.get("EBBTIDE_VIEW_ROUNDS", "100"))
    [each] = followed(Oracle(spark, inputs.root), tmp_path, [name])
    for number in range(n_rounds if is_little else n_rounds // 5):
        inputs.change_any()
        if number % 30 == 29:
            inputs.tables["a"].do("rewind")
        each.step()
