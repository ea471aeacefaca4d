"""A backfill is built beside a sink, compared with it by Spark, and swapped in: one commit, of which the change feed shows what differs."""

import pytest
from judging import verdict_of
from spark_support import change, plain_spec, sink, write

from ebbtide.maintenance import backfill
from ebbtide.runtime.driver import run
from ebbtide.runtime.idle import idle_run
from ebbtide.runtime.plan import Plan

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+I", 3, "c", 3), "{"],
    [change("+U", 1, "d", 4), change("+I", 4, "f", 5)],
)
BY_SEQUENCE = {"order": {"sequence": ["seq"]}}
MODES = {"sequence": BY_SEQUENCE, "arrival": {}, "merge": BY_SEQUENCE | {"sink": {"write": "merge"}}}
JUDGED = ("ordering", "complete", "unique_key", "foreign_writes", "quarantine_rate")
GRID = [pytest.param(mode, marks=pytest.mark.grid) for mode in ("arrival", "merge")]


def shown(spark, root, spec):
    return [(row["id"], row["v"]) for row in sink(spark, root, spec)]


@pytest.mark.parametrize("mode", ["sequence", *GRID])
def test_swap_shows_the_net_changes_in_one_commit_and_checks_are_green(spark, tmp_path, mode):
    root = tmp_path / "root"
    spec = plain_spec(write(tmp_path / "in", *FILES), **MODES[mode])
    run(spark, spec, str(root))
    name = f"delta.`{root / spec.name / 'sink'}`"
    spark.sql(f"UPDATE {name} SET v = 'x' WHERE id = 1").collect()
    spark.sql(f"DELETE FROM {name} WHERE id = 2").collect()
    spark.sql(f"UPDATE {name} SET id = 9 WHERE id = 3").collect()
    version = Plan.under(str(root), spec).sink.version()
    assert backfill.start(spark, spec, str(root)).percent == 100
    planned = backfill.swap_in(spark, spec, str(root), applies=False)
    assert (planned.added, planned.changed, planned.deleted) == (2, 1, 1)
    assert [key["id"] for key in planned.keys] == [1, 2, 3, 9]
    assert backfill.swap_in(spark, spec, str(root), applies=True).step
    assert shown(spark, root, spec) == [(1, "d"), (2, "b"), (3, "c"), (4, "f")]
    tables = Plan.under(str(root), spec)
    assert tables.sink.version() == version + 1
    if mode != "merge":
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version + 1)
        changes = feed.load(tables.sink.path).select("id", "_change_type").collect()
        assert sorted(map(tuple, changes)) == [
            (1, "delete"),
            (1, "insert"),
            (2, "insert"),
            (3, "insert"),
            (9, "delete"),
        ]
    write(tmp_path / "in", *FILES, [change("+U", 2, "g", 6)])
    run(spark, spec, str(root))
    assert shown(spark, root, spec)[1] == (2, "g")
    assert [check for check in JUDGED if not verdict_of(spark, tables, check).passed] == []
    assert idle_run(spec, str(root), 0) is not None
