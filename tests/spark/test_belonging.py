"""Tables that do not belong together are refused with the way out: never made again in silence, never gone on with."""

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, write
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.delta import Snapshot
from ebbtide.errors import TableMismatchError
from ebbtide.operations._repair import repair as repairing
from ebbtide.runtime import Plan
from ebbtide.sessions import executor_of

FILES = [
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), "{"],
    [change("+I", 3, "c", 3), "["],
    [change("+U", 1, "d", 4), change("-D", 2, "b", 5)],
]
ROWS = [(1, "d"), (3, "c")]


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py
def test_a_state_that_others_changed_is_refused_until_it_is_brought_back(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", *FILES), order={"sequence": ["seq"]})
    root, home = str(tmp_path / "root"), tmp_path / "root" / spec.name
    run(LOCAL, spec, root)
    state = str(home / "state")
    spark.sql(f"OPTIMIZE delta.`{state}`")
    assert run(spark, spec, root).steps == [], "joined files are no change"
    version = Snapshot.read(state).version
    for mended_by_hand in (True, False):
        spark.sql(f"DELETE FROM delta.`{state}` WHERE id = 3")
        with pytest.raises(
            TableMismatchError,
            match=r"changed by another client\. Got: version \d+, DELETE\. .*'ebbtide repair --apply'",
        ):
            run(spark, spec, root)
        if mended_by_hand:
            spark.sql(f"RESTORE TABLE delta.`{state}` TO VERSION AS OF {version}")
        else:
            spark.sql(f"UPDATE delta.`{home / 'sink'}` SET v = 'x' WHERE id = 1")
            planned = repairing.plan(executor_of(spark), spec, root)
            assert [finding.table for finding in planned.findings] == ["sink"]
            assert planned.state_version is not None
            assert repairing.repair(executor_of(spark), spec, root).state_version == planned.state_version
        assert run(spark, spec, root).steps == []
    assert [(row["id"], row["v"]) for row in sink(spark, home.parent, spec)] == ROWS
    assert not any(finding.broken for finding in verdict_of(spark, Plan.under(root, spec), "foreign_writes").findings)
