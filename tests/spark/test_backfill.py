"""A backfill is built beside a sink, compared with it by Spark, and swapped in: one commit, of which the change feed shows what differs."""

import pytest
from clusters.spark_support import act, change, plain_spec, sink, write
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.runtime import Plan, idle_run

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+I", 3, "c", 3), "{"],
    [change("+U", 1, "d", 4), change("+I", 4, "f", 5)],
)
BY_SEQUENCE = {"order": {"sequence": ["seq"]}}
MODES = {"sequence": BY_SEQUENCE, "arrival": {}}
JUDGED = ("ordering", "complete", "unique_key", "foreign_writes", "quarantine_rate")


def shown(spark, root, spec):
    return [(row["id"], row["v"]) for row in sink(spark, root, spec)]


def spoilt(spark, tmp_path, mode):
    """A pipeline whose sink others have changed: a row is another one, one is gone, one has another key."""
    root = tmp_path / "root"
    spec = plain_spec(write(tmp_path / "in", *FILES), **MODES[mode])
    run(spark, spec, str(root))
    name = f"delta.`{root / spec.name / 'sink'}`"
    changed = "CASE id WHEN 3 THEN 9 ELSE id END AS id, CASE id WHEN 1 THEN 'x' ELSE v END AS v, * EXCEPT (id, v)"
    spark.sql(f"INSERT OVERWRITE {name} SELECT {changed} FROM {name} WHERE id <> 2").collect()
    return root, spec, Plan.under(str(root), spec).sink.version()


@pytest.mark.grid
@pytest.mark.parametrize("mode", MODES)
def test_after_a_swap_reading_goes_on_and_checks_are_green(spark, tmp_path, mode):
    root, spec, version = spoilt(spark, tmp_path, mode)
    act(spark, spec, root, "backfill.start")
    planned = act(spark, spec, root, "backfill.swap", "plan")
    assert (planned["added"], planned["changed"], planned["deleted"], planned.step) == (2, 1, 1, None)
    assert Plan.under(str(root), spec).sink.version() == version
    act(spark, spec, root, "backfill.swap")
    tables = Plan.under(str(root), spec)
    assert tables.sink.version() == version + 1
    write(tmp_path / "in", *FILES, [change("+U", 2, "g", 6)])
    run(spark, spec, str(root))
    assert shown(spark, root, spec)[1] == (2, "g")
    assert [check for check in JUDGED if not verdict_of(spark, tables, check).passed] == []
    assert idle_run(spec, str(root), 0) is not None
