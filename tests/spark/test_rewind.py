"""A pipeline whose sink Spark merges goes back to an earlier step with all its tables, and on from there; of other sinks: tests/operations/test_jobs.py."""

import pytest
from clusters.spark_support import act, change, plain_spec, sink, table, write
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.inspect import status
from ebbtide.runtime import Plan

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2)],
    [change("+U", 1, "c", 3), "{", change("+I", 3, "d", 4)],
    [change("-D", 1, "c", 3).replace('"n": 3', '"n": 5'), "["],
)
FIRST = ([(1, "a"), (2, "b")], [])
LAST = ([(2, "b"), (3, "d")], [b"{", b"["])


@pytest.mark.grid
def test_sink_that_spark_merges_goes_back_with_the_other_tables_and_forward_again(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", *FILES), order={"sequence": ["seq"]}, sink={"write": "merge"})
    root = tmp_path / "root"
    run(spark, spec, str(root))

    def shown():
        rows = [(row["id"], row["v"]) for row in sink(spark, root, spec)]
        return rows, [row["raw"] for row in table(spark, root, spec, "quarantine")]

    last = status(spec, str(root)).last.step
    assert shown() == LAST
    assert act(spark, spec, root, "rewind", to_step=1).step == last + 1
    assert shown() == FIRST
    run(spark, spec, str(root))
    assert shown() == LAST
    tables = Plan.under(str(root), spec)
    for check in ("ordering", "complete", "unique_key", "foreign_writes"):
        assert verdict_of(spark, tables, check).passed, check
    act(spark, spec, root, "rewind", to_step=last)
    assert shown() == LAST, "a rewind can be rewound"
