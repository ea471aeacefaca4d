"""A pipeline goes back to an earlier step with all its tables, and on from there; what is gone is refused."""

import shutil

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, table, write
from frame.interrupting import killed_before
from oracles.judging import verdict_of

from ebbtide import refresh, run
from ebbtide.errors import HistoryGoneError, SpecChangedError
from ebbtide.inspect import status
from ebbtide.operations import _rewind as rewinding
from ebbtide.operations import maintain
from ebbtide.runtime import Plan

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2)],
    [change("+U", 1, "c", 3), "{", change("+I", 3, "d", 4)],
    [change("-D", 1, "c", 3).replace('"n": 3', '"n": 5'), "["],
)
FIRST = [(1, "a"), (2, "b")]
LAST = {"every": [(1, "a"), (2, "b"), (3, "d")], "sequence": [(2, "b"), (3, "d")], "merge": [(2, "b"), (3, "d")]}
MODES = {
    "every": {"materializer": {"emission": "every"}},
    "sequence": {"order": {"sequence": ["seq"]}},
    "merge": {"order": {"sequence": ["seq"]}, "sink": {"write": "merge"}},
}


def made(spark, folder, mode):
    spec = plain_spec(write(folder / "in", *FILES), **MODES[mode])
    run(LOCAL, spec, str(folder / "root"))
    return spec


def rows(spark, root, spec):
    return [(row["id"], row["v"]) for row in sink(spark, root, spec)]


def bad(spark, root, spec):
    return [row["raw"] for row in table(spark, root, spec, "quarantine")]


@pytest.mark.grid  # without Spark: tests/operations/test_jobs.py
@pytest.mark.parametrize("mode", MODES)
def test_all_tables_go_back_together_and_forward_again(spark, tmp_path, mode):
    spec = made(spark, tmp_path, mode)
    root = tmp_path / "root"
    last = status(spec, str(root)).last.step
    assert rows(spark, root, spec) == LAST[mode]
    emitted = table(spark, root, spec, "changelog") if mode == "every" else []
    planned = rewinding.plan(spark, spec, str(root), 1)
    assert (planned["steps"], planned["records"], planned.step) == (last - 1, 5, None)
    assert rows(spark, root, spec) == LAST[mode], "a plan changes nothing"
    done = rewinding.apply(spark, spec, str(root), 1)
    assert done.step == last + 1
    assert rows(spark, root, spec) == FIRST
    assert bad(spark, root, spec) == []
    if mode == "every":
        assert len(table(spark, root, spec, "changelog")) == 2
    found = status(spec, str(root))
    assert (found.last.step, found.read.records, found.read.quarantined) == (last + 1, 2, 0)
    steps = run(LOCAL, spec, str(root)).steps
    assert [step.step for step in steps if step.kind == "batch"] == [last + 2, last + 3]
    assert rows(spark, root, spec) == LAST[mode]
    assert bad(spark, root, spec) == [b"{", b"["]
    if mode == "every":
        again = table(spark, root, spec, "changelog")
        key = ("_kind", "id", "v")
        assert sorted(tuple(row[k] for k in key) for row in again) == sorted(
            tuple(row[k] for k in key) for row in emitted
        )
    tables = Plan.under(str(root), spec)
    for check in ("ordering", "complete", "unique_key", "foreign_writes"):
        assert verdict_of(spark, tables, check).passed, check
    rewinding.apply(spark, spec, str(root), last)
    assert rows(spark, root, spec) == LAST[mode], "a rewind can be rewound"
    assert bad(spark, root, spec) == [b"{", b"["]


@pytest.mark.grid  # killed without Spark: tests/runtime/test_crashes.py
def test_rewind_that_died_after_its_decision_is_finished_by_the_next_run(spark, tmp_path):
    spec = made(spark, tmp_path, "every")
    root = tmp_path / "root"
    for place in ("the sink's stage is restored", "another table is restored"):
        with killed_before(place):
            rewinding.apply(spark, spec, str(root), 2)
        run(LOCAL, spec, str(root))
        assert rows(spark, root, spec) == LAST["every"]
        assert bad(spark, root, spec) == [b"{", b"["]


@pytest.mark.grid
def test_what_is_gone_is_refused_before_anything_changes(spark, tmp_path):
    spec = made(spark, tmp_path, "sequence")
    root = tmp_path / "root"
    other = spec.model_copy(update={"ttl": plain_spec(tmp_path / "in", **MODES["sequence"], ttl="1d").ttl})
    with pytest.raises(SpecChangedError, match="Step 1 of 'plain' was made with another spec"):
        rewinding.plan(spark, other, str(root), 1)
    with pytest.raises(HistoryGoneError, match=r"cannot go back to step 9\. Got: step 9\. Allowed: 1 to 3"):
        rewinding.plan(spark, spec, str(root), 9)
    maintain(spark, spec, str(root), "compaction")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{root / spec.name / 'state'}` RETAIN 0 HOURS")
    before = status(spec, str(root))
    with pytest.raises(HistoryGoneError, match=r"state' cannot be brought back to version .* deleted, as by VACUUM"):
        rewinding.apply(spark, spec, str(root), 1)
    assert status(spec, str(root)) == before
    refresh(spark, spec, str(root))
    with pytest.raises(HistoryGoneError, match="since the last refresh"):
        rewinding.plan(spark, spec, str(root), 1)
    shutil.rmtree(root)
