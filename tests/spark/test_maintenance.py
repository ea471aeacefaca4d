"""Cleanup and compaction: what goes, what stays, and that streams carry on."""

import threading

import numpy as np
import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, table, write

from ebbtide import run
from ebbtide.delta import Log
from ebbtide.errors import ConfigError, LeaseHeldError, SpecChangedError
from ebbtide.ledger import Cause, Lease
from ebbtide.operations import _registry as registry
from ebbtide.operations import maintain
from ebbtide.operations._maintenance.cleanup import delete_entries
from ebbtide.operations._maintenance.jobs import Maintenance
from ebbtide.operations._maintenance.judging import Doom
from ebbtide.runtime import Plan, system_clock

DAY_MS = 86_400_000
JOBS = ("cleanup", "compaction", "vacuum")
BY_SEQ = {"sequence": ["seq"]}


def later(days):
    return lambda: system_clock() + days * DAY_MS


def entries(spark, root, spec):
    return [row for row in table(spark, root, spec, "state") if row["_entry"] == "row"]


def test_pipeline_that_never_ran_has_nothing_to_do(spark, tmp_path):
    for job in JOBS:
        report = maintain(spark, plain_spec(write(tmp_path / "in")), str(tmp_path), job)
        assert (report.step, report["rows_removed"]) == (None, 0)
        assert "nothing to do" in report.text()


@pytest.mark.grid  # without Spark: tests/operations/test_jobs.py
def test_cleanup_deletes_what_expired_with_all_versions_and_nothing_else(spark, tmp_path):
    lines = [change("+I", 1, "a", 1), change("+I", 2, "b", 2)], [change("-D", 1, "a", 3)]
    source = write(tmp_path / "in", *lines)
    spec = plain_spec(source, order=BY_SEQ, ttl="1d")
    run(LOCAL, spec, str(tmp_path))
    before = maintain(spark, spec, str(tmp_path), "cleanup")
    assert (before.step, before["entries"]) == (None, 2), "the ledger's clock has not moved"

    write(source, [change("+I", 7, "new", 10)], first=2)
    steps = run(LOCAL, spec, str(tmp_path), clock=later(2)).steps
    assert steps[-1].metrics == {"expired": 1}
    state = Plan.under(str(tmp_path), spec).state.path
    untouched = set(Log(state).added(Log(state).versions()[-2]))
    report = maintain(spark, spec, str(tmp_path), "cleanup")
    assert (report.step, report["rows_removed"], report["entries"]) == (steps[-1].step + 1, 3, 2)
    assert {row["id"] for row in entries(spark, tmp_path, spec)} == {2, 7}
    removed = {
        action["remove"]["path"] for action in Log(state).commit(Log(state).versions()[-1]) if "remove" in action
    }
    assert removed
    assert not any(path in location for path in removed for location in untouched), "only files with expired entries"

    with (
        Lease(Plan.under(str(tmp_path), spec).at("ledger"), spec.name, 60),
        pytest.raises(LeaseHeldError, match="is being run by process"),
    ):
        maintain(spark, spec, str(tmp_path), "cleanup")
    with pytest.raises(SpecChangedError, match="no longer fits"):
        maintain(spark, plain_spec(source), str(tmp_path), "cleanup")

    write(source, [change("+I", 1, "again", 11)], first=3)
    assert run(LOCAL, spec, str(tmp_path)).totals["inserted"] == 1
    assert [row["v"] for row in sink(spark, tmp_path, spec)] == ["again", "b", "new"]


def test_compaction_keeps_the_newest_version_of_each_live_entry(spark, tmp_path):
    steps = [[change("+I", 1, "a", 1), change("+I", 2, "b", 2)], [change("+U", 1, "c", 3)], [change("-D", 2, "b", 4)]]
    spec = plain_spec(write(tmp_path / "in", *steps), order=BY_SEQ)
    run(LOCAL, spec, str(tmp_path))
    report = maintain(spark, spec, str(tmp_path), "compaction")
    assert report["entries"] == 2
    assert report["rows_removed"] == 2, "superseded versions"
    assert report["files_after"] < report["files_before"]
    assert {(row["id"], row["v"], row["_tombstone"]) for row in entries(spark, tmp_path, spec)} == {
        (1, "c", False),
        (2, None, True),
    }
    assert maintain(spark, spec, str(tmp_path), "compaction").step is None
    write(tmp_path / "in", [change("+U", 1, "late", 2), change("+I", 2, "late", 1), change("+U", 1, "d", 5)], first=3)
    after = run(LOCAL, spec, str(tmp_path))
    assert after.totals["superseded"] == 2, "the folded entries still decide"
    assert [row["v"] for row in sink(spark, tmp_path, spec)] == ["d"]


@pytest.mark.grid
def test_compaction_keeps_arrival_histories_and_the_files_read(spark, tmp_path):
    steps = [
        [change("+I", 1, "a", 1)],
        [change("+I", 1, "b", 2)],
        [change("-D", 1, "b", 2).replace('"n": 2', '"n": 3')],
    ]
    spec = plain_spec(write(tmp_path / "in", *steps))
    run(LOCAL, spec, str(tmp_path))
    maintain(spark, spec, str(tmp_path), "compaction")
    assert [row["v"] for row in entries(spark, tmp_path, spec)] == ["a"]
    assert run(LOCAL, spec, str(tmp_path)).steps == [], "no file is read twice"
    write(tmp_path / "in", [change("-D", 1, "a", 1).replace('"n": 1', '"n": 5')], first=3)
    assert run(LOCAL, spec, str(tmp_path)).totals["deleted"] == 1
    assert sink(spark, tmp_path, spec) == []


@pytest.mark.grid
def test_row_that_the_tick_has_yet_to_delete_outlives_cleanup_and_compaction(spark, tmp_path):
    """A run stopped before its tick: the state still owes the sink a deletion."""
    hours = [change("+I", key, "v", n, at=n * 3_600_000_000) for key, n in ((1, 0), (2, 100), (2, 200))]
    spec = plain_spec(
        write(tmp_path / "in", *([line] for line in hours)),
        event_time="at",
        ttl={"ttl": "10h", "time_characteristic": "EVENT_TIME"},
        materializer={"on_expire": "delete"},
    )
    stop = threading.Event()
    run(LOCAL, spec, str(tmp_path), stop=stop, on_progress=lambda step: stop.set() if step.step == 3 else None)
    for job in JOBS:
        maintain(spark, spec, str(tmp_path), job)
        assert 1 in {row["id"] for row in entries(spark, tmp_path, spec)}, job
    assert run(LOCAL, spec, str(tmp_path)).totals["deleted"] == 1
    assert [row["id"] for row in sink(spark, tmp_path, spec)] == [2]
    maintain(spark, spec, str(tmp_path), "compaction")
    assert {row["id"] for row in entries(spark, tmp_path, spec)} == {2}


class Forget(Maintenance):
    """Drop all entries."""

    name = "forget"

    def step(self, spark, stepper):
        facts = stepper.facts(Cause(what="cleanup"))
        return delete_entries(
            spark, stepper, facts, Doom(lambda entries, operator: np.ones(len(entries), dtype=bool))
        ).is_step


def test_job_of_a_class_of_its_own_is_run_by_its_name_and_one_unknown_is_refused(spark, tmp_path, monkeypatch):
    own = registry.built_in()
    monkeypatch.setattr(registry, "built_in", lambda _: [*own, Forget()])
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)]), order=BY_SEQ)
    run(LOCAL, spec, str(tmp_path))
    report = maintain(spark, spec, str(tmp_path), "forget")
    assert (report["job"], report["entries"], report["rows_removed"]) == ("forget", 0, 2)
    with pytest.raises(
        ConfigError, match=r"maintenance job does not exist.*forget_all.*cleanup, compaction, forget, vacuum"
    ):
        maintain(spark, spec, str(tmp_path), "forget_all")
