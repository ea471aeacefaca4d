"""Cleanup, compaction and rewind without Spark: what goes, what stays, and what the report says of it."""

import re
import shutil

import numpy as np
import pytest
from frame.interrupting import killed_before
from frame.limits import set_limits
from frame.stored_names import BASE
from local.local_pipeline import up
from local.local_run import HOUR, SPARK, START
from local.support import change

from ebbtide.delta import DataFile, Log, Snapshot, Writer
from ebbtide.errors import ConfigError, HistoryGoneError, LeaseHeldError, SpecChangedError
from ebbtide.ledger import Cause, Lease
from ebbtide.operations import Context, maintain, operations
from ebbtide.operations import _registry as registry
from ebbtide.operations._maintenance import doomed
from ebbtide.operations._maintenance.cleanup import delete_entries
from ebbtide.operations._maintenance.jobs import Maintenance
from ebbtide.operations._maintenance.judging import Doom

NOTHING = "t: cleanup: found nothing to do; 0 entries."
EXPIRING = {"ttl": {"ttl": "1h"}}


def stored(pipeline):
    """The state's rows for entries: id, step, whether it was dropped."""
    rows = pipeline.table("state", pipeline.plan.state.schema)
    return sorted((row["id"], row["_step"], row["_removed"]) for row in rows if row["_entry"] == "row")


def notes(pipeline):
    """The state's rows that are for no entry, the source files that were read."""
    rows = pipeline.table("state", pipeline.plan.state.schema)
    return [row for row in rows if row["_entry"] == "file"]


def test_job_has_nothing_to_do_where_there_is_no_step(make):
    pipeline = make()
    assert maintain(SPARK, pipeline.spec, pipeline.root, "cleanup").text() == NOTHING
    assert not pipeline.home.exists(), "nothing is made"
    pipeline.plan.state.create()
    assert maintain(SPARK, pipeline.spec, pipeline.root, "cleanup").text() == NOTHING
    shutil.rmtree(pipeline.home)
    with pytest.raises(ConfigError, match=r"'t' has made no step yet\. .* Run 'ebbtide run' first"):
        pipeline.act("rewind", "plan", to_step=1)
    assert not pipeline.home.exists()
    with pytest.raises(ConfigError) as raised:
        maintain(SPARK, pipeline.spec, pipeline.root, "forget")
    assert str(raised.value) == (
        "The maintenance job does not exist. Got: forget. Allowed: cleanup, compaction, vacuum."
    )


class Forget(Maintenance):
    """Drop all entries."""

    name = "forget"

    def step(self, spark, stepper):
        everything = Doom(lambda entries, operator: np.ones(len(entries), dtype=bool))
        return delete_entries(spark, stepper, stepper.facts(Cause(what="cleanup")), everything).is_step


def test_job_of_a_class_of_its_own_is_run_by_its_name(make, monkeypatch):
    own = registry.built_in()
    monkeypatch.setattr(registry, "built_in", lambda _: [*own, Forget()])
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    report = pipeline.do("forget")
    assert (report["job"], report["entries"], report["rows_removed"]) == ("forget", 0, 2)
    with pytest.raises(ConfigError, match=r"Got: forget_all\. Allowed: cleanup, compaction, forget, vacuum"):
        pipeline.do("forget_all")


def test_job_waits_for_no_run_and_takes_no_changed_spec(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    with Lease(pipeline.plan.at("ledger"), "t", 60), pytest.raises(LeaseHeldError):
        pipeline.do("compaction")
    pipeline.spec = pipeline.with_fields(ttl="1h")
    with pytest.raises(SpecChangedError):
        pipeline.do("compaction")


def test_job_finishes_the_open_step_first(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    with killed_before("a decided step is published"):
        pipeline.run()
    pipeline.do("compaction")
    assert pipeline.rows() == {1: 1}


def test_compaction_keeps_the_newest_version_of_each_live_entry_and_the_files_read(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), up(2, 2, "-D"), clock_ms=START)
    pipeline.read(up(1, 3), up(3, 3, "-D"), clock_ms=START)
    assert stored(pipeline) == [(1, 1, False), (1, 2, False), (2, 1, False), (3, 2, False)]
    files_read = pipeline.plan.state.files(pipeline.plan.state.snapshot().files.values())
    before = pipeline.plan.state.snapshot()
    report = pipeline.do("compaction")
    assert stored(pipeline) == [(1, 2, False), (2, 1, False), (3, 2, False)]
    assert (report.pipeline, report["job"], report.step) == ("t", "compaction", 3)
    assert (report["entries"], report["rows_removed"]) == (3, 1)
    after = pipeline.plan.state.snapshot()
    assert (report["files_before"], report["files_after"]) == (len(before.files), len(after.files))
    assert report["bytes_before"] == sum(file.size for file in before.files.values())
    assert report["bytes_after"] == sum(file.size for file in after.files.values())
    assert report.text() == (
        "t: compaction, step 3: 1 row removed, 3 entries kept,"
        f" files {len(before.files)} -> {len(after.files)}, bytes {report['bytes_before']} -> {report['bytes_after']}."
    )
    assert report["oldest_ms"] == START
    assert report["stored_files_after"] > report["stored_files_before"] > 0, "the old files are kept for a while"
    assert report["stored_bytes_after"] > report["stored_bytes_before"] > 0
    assert pipeline.plan.state.files(after.files.values()) == files_read
    assert len(Snapshot.read(pipeline.plan.sink.path).files) == 1
    assert pipeline.last.cause.what == "compaction"
    written = [action["add"] for action in Log(pipeline.plan.state.path).commit(after.version) if "add" in action]
    assert all(add["dataChange"] for add in written), "older versions of entries are gone"
    assert [BASE.items() <= add["tags"].items() for add in written].count(True) == 1, "the next folds go by its size"
    assert {row["_step"] for row in notes(pipeline)} == {1, 2}, "each keeps the step that read it"
    again = pipeline.do("compaction")
    assert (again.step, again["files_before"], again["rows_removed"]) == (None, len(after.files), 0)
    assert pipeline.rows() == {1: 3}
    assert pipeline.read(up(1, 9))[0].step == 4


def an_hour_later(pipeline):
    """Move the clock of the last step on without a tick."""
    with pipeline.stepper() as stepper:
        later = stepper.facts(Cause(what="cleanup"), stepper.next_clock(START + HOUR))
        stepper.commit(later, [])


def expired_tombstones(make, n):
    """Every second key was deleted an hour before the last step's clock, and no tick came since."""
    pipeline = make(**EXPIRING)
    lines = [up(number, number, "+U" if number % 2 else "-D") for number in range(1, 2 * n + 1)]
    pipeline.read(*lines, clock_ms=START)
    an_hour_later(pipeline)
    return pipeline


def owing_a_deletion(make):
    """A run was stopped before its tick: the state still owes the sink a deletion."""
    pipeline = make(order="arrival", ttl="1h", materializer={"on_expire": "delete"})
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    return pipeline


def test_compaction_keeps_a_row_that_a_tick_has_yet_to_delete_from_the_sink(make):
    pipeline = owing_a_deletion(make)
    an_hour_later(pipeline)
    pipeline.do("compaction")
    assert (pipeline.rows(), [id_ for id_, _, _ in stored(pipeline)]) == ({1: 1}, [1])
    pipeline.run(START + HOUR)
    assert pipeline.rows() == {}
    pipeline.do("compaction")
    assert stored(pipeline) == []


@pytest.mark.parametrize("job", ["compaction", "merge"])
@pytest.mark.parametrize(
    ("cleanup", "left"),
    [({}, set()), ({"background": False}, {1, 2}), ({"background": False, "compaction_filter": {}}, set())],
)
@pytest.mark.demand("ttl-compaction", "ttl-background")
def test_compaction_drops_what_has_expired_where_the_cleanup_of_the_state_says_so(make, job, cleanup, left):
    ttl = {"first": {"ttl": "1h", "cleanup": cleanup}}
    pipeline = make(function="ebbtide.functions:Deduplicate", ttl=ttl)
    pipeline.read(up(1, 1, "+I"), up(2, 1, "+I"), clock_ms=START)
    an_hour_later(pipeline)

    def kept():
        rows = pipeline.table("state", pipeline.plan.state.schema)
        return {row["id"] for row in rows if row["_state"] == "first"}

    assert act("compact", pipeline, "dry_run")["expired"] == 2 - len(left)
    pipeline.do(job)
    assert kept() == left
    pipeline.do("cleanup", START + HOUR)
    assert kept() == set(), "a cleanup is asked for"


@pytest.mark.demand("ttl-now")
def test_cleanup_makes_the_tick_that_expired_rows_wait_for(make):
    pipeline = owing_a_deletion(make)
    assert pipeline.do("cleanup", START + HOUR - 1).step is None
    planned = act("cleanup", pipeline, "dry_run", clock_ms=START + HOUR)
    done = pipeline.do("cleanup", START + HOUR)
    assert (planned["expired"], done["entries_deleted"], done.step) == (1, 1, 3)
    assert (pipeline.rows(), stored(pipeline)) == ({}, [])
    steps = sorted((facts.step, facts.cause.what, facts.now_ms) for _, facts in pipeline.plan.state.steps())
    assert steps == [(1, "batch", START), (2, "tick", START + HOUR), (3, "cleanup", START + HOUR)]


@pytest.mark.demand("ttl-now")
def test_run_without_input_makes_the_tick_that_expired_rows_wait_for(make):
    pipeline = owing_a_deletion(make)
    assert pipeline.run(START + HOUR - 1).steps == []
    [tick] = pipeline.run(START + HOUR).steps
    assert (tick.kind, tick.clock.now_ms, pipeline.rows()) == ("tick", START + HOUR, {})


@pytest.mark.demand("ttl-now")
def test_cleanup_goes_by_the_present_clock_where_no_run_has_ticked_since(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "-D"), up(2, 2), clock_ms=START)
    assert pipeline.do("cleanup", START + HOUR - 1).text().endswith("found nothing to do; 2 entries.")
    assert act("cleanup", pipeline, "dry_run", clock_ms=START + HOUR)["expired"] == 1
    assert pipeline.do("cleanup", START + HOUR)["entries_deleted"] == 1
    assert pipeline.last.now_ms == START + HOUR, "the step that has acted by it"
    assert pipeline.do("cleanup", START).step is None, "the clock never goes back"


@pytest.mark.demand("ttl-callback")
@pytest.mark.parametrize("job", ["cleanup", "compaction", "merge"])
def test_job_deletes_no_entry_that_a_function_has_yet_to_be_handed(make, job):
    """A cleanup makes the tick; a compaction, which goes by the last step's clock, leaves the entries for one."""
    ttl = dict.fromkeys(("newest", "items", "each"), "1h")
    fields = {"function": "user_functions:HandedOver", "schema": "id BIGINT, seq BIGINT", "ttl": ttl}
    pipeline = make(**fields, output_key=["id", "entry"])
    lines = [change("+I", id=id_, seq=10 * id_ + n) for id_ in range(8) for n in range(3)]
    pipeline.read(*lines, clock_ms=START)
    an_hour_later(pipeline)
    want = sorted(f"{state}/{10 * id_ + n}" for id_ in range(8) for state in ("items", "each") for n in range(3))
    want += sorted(f"newest/{10 * id_ + 2}" for id_ in range(8))

    def handed():
        rows = pipeline.table("sink", pipeline.spec.sink_table.columns)
        assert {(row["times"], row["ended_ms"]) for row in rows} <= {(1, START + HOUR)}
        return sorted(row["entry"] for row in rows)

    pipeline.do(job, START + HOUR)
    assert handed() == (sorted(want) if job == "cleanup" else [])
    pipeline.do("cleanup", START + HOUR)
    pipeline.run(START + HOUR)
    pipeline.do("compaction")
    assert handed() == sorted(want)
    rows = pipeline.table("state", pipeline.plan.state.schema)
    assert {row["_state"] for row in rows if row["_entry"] == "row"} == {"times"}


def test_cleanup_believes_a_clock_no_further_than_a_run_does(make):
    """Its host is years ahead."""
    pipeline = make(order="arrival", ttl="10d", materializer={"on_expire": "delete"}, quarantine={"max_age": "1d"})
    pipeline.read(up(1, 1, "+I"), "{", clock_ms=START)
    years_ahead = START + 10**12
    report = pipeline.do("cleanup", years_ahead)
    assert (report["entries_deleted"], report["quarantine_max_age"]) == (0, 1), "a jump by half of the time to live"
    assert pipeline.last.now_ms == START + 5 * 24 * HOUR
    pipeline.spec = pipeline.with_fields(max_clock_jump="11d", quarantine={"max_age": "1d"})
    pipeline.read("{")
    report = pipeline.do("cleanup", years_ahead)
    assert (report["entries_deleted"], report["quarantine_max_age"], report.step) == (1, 1, 6)
    assert pipeline.last.now_ms == START + 16 * 24 * HOUR, "once, though the cleanup made three steps"


def test_cleanup_leaves_the_clock_alone_where_downtime_does_not_count(make):
    """It is no run: were its time noted, a long pause with cleanups in it would look like short ones, which count."""
    pipeline = make(ttl="10h", downtime_over="2h")
    pipeline.read(up(1, 1, "-D"), clock_ms=START)
    for hours in range(1, 24):
        assert pipeline.do("cleanup", START + hours * HOUR).step is None
    assert pipeline.run(START + 24 * HOUR).steps[-1].clock.now_ms == START
    assert [id_ for id_, _, _ in stored(pipeline)] == [1]


@pytest.mark.parametrize("job", ["cleanup", "compaction"])
def test_every_version_of_an_expired_entry_goes_and_no_deleted_row_comes_back(make, job):
    """Of the versions of an entry the newest counts: were only that deleted, the row before the delete would count again."""
    set_limits(width=100)  # the files of the steps stay apart
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), up(2, 2), clock_ms=START)
    pipeline.read(up(1, 3), clock_ms=START)
    pipeline.read(up(1, 4, "-D"), clock_ms=START)
    later = START + 2 * HOUR
    pipeline.read(up(9, 9), clock_ms=later)
    versions = [(1, 1, False), (1, 2, False), (1, 3, False)]
    with_tick = [row for row in stored(pipeline) if row[0] == 1]
    assert with_tick[:3] == versions, "several versions of one entry, in several files"
    report = pipeline.do(job, later)
    assert [id_ for id_, _, _ in stored(pipeline)] == [2, 9]
    assert report["rows_removed"] == len(with_tick)
    assert pipeline.rows() == {2: 2, 9: 9}
    # What arrives for the key decides alone: an older version would supersede it.
    [step] = pipeline.read(up(1, 2), clock_ms=later)
    assert (step.metrics.get("inserted"), step.metrics.get("superseded")) == (1, None)
    assert pipeline.rows() == {1: 2, 2: 2, 9: 9}


@pytest.mark.parametrize("job", ["cleanup", "compaction"])
def test_state_is_gone_over_in_parts(make, job):
    set_limits(rewriting_rows_in_part=3, doomed_rows_in_part=3)
    pipeline = expired_tombstones(make, 8)
    report = pipeline.do(job)
    assert [id_ for id_, _, _ in stored(pipeline)] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert (report.step, report["rows_removed"], report["entries"], report["oldest_ms"]) == (3, 8, 8, START)
    assert pipeline.rows() == {number: number for number in range(1, 17, 2)}, "the sink keeps its rows"


def test_cleanup_of_few_files_goes_on_in_the_next_run(make):
    set_limits(width=100)
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "-D"), up(2, 2), up(3, 3, "-D"), clock_ms=START)
    pipeline.read(up(4, 4, "-D"), clock_ms=START)
    later = {"clock_ms": START + 2 * HOUR, "max_files": 1}
    planned = act("cleanup", pipeline, "dry_run", **later)
    assert (planned["rows"], planned["files_left"]) == (2, 1)
    first = act("cleanup", pipeline, **later)
    assert (first["rows_removed"], first["entries"]) == (2, 2), "the file with the most of them"
    assert first.text().endswith("\n  1 file left, at least: the next run continues.")
    second = act("cleanup", pipeline, **later)
    assert (second["rows_removed"], second["entries"]) == (1, 1)
    assert "left" not in second.text()
    assert act("cleanup", pipeline, **later).step is None
    assert [id_ for id_, _, _ in stored(pipeline)] == [2]


def act(name, pipeline, action="apply", clock_ms=START, **params):
    """Do what the command does, without Spark."""
    [operation] = [each for each in operations() if each.name == name]
    means = {"on_phase": lambda phase: PHASES.append(phase.name), "clock": lambda: clock_ms}
    ctx = Context(pipeline.spec, pipeline.root, SPARK, **means)
    return operation.act(action, ctx, operation.asked(params))


PHASES = []


def test_dry_run_says_what_cleanup_then_does_and_changes_nothing(make):
    set_limits(width=100)
    pipeline = make(**EXPIRING, quarantine={"max_bytes": 3})
    assert act("cleanup", pipeline, "dry_run").text() == "t: cleanup: nothing to do."
    living = [up(number, number) for number in range(2, 9)]
    pipeline.read(up(1, 1, "-D"), *living, "{1", "{2", clock_ms=START)
    pipeline.read(up(11, 1, "-D"), up(12, 2), clock_ms=START)
    pipeline.read(up(13, 1, "-D"), clock_ms=START)
    later = START + 2 * HOUR
    versions, disk = pipeline.versions(), sorted(pipeline.home.rglob("*"))
    planned = act("cleanup", pipeline, "dry_run", later)
    assert (pipeline.versions(), sorted(pipeline.home.rglob("*"))) == (versions, disk)
    assert (planned["expired"], planned["rows"], planned["entries"]) == (3, 3, 8)
    assert (planned["files_hidden"], planned["files_rewritten"], planned["files_removed"]) == (1, 2, 0)
    assert planned["quarantine_max_bytes"] == 1
    sizes = {file.path: file.size for file in pipeline.plan.state.snapshot().files.values()}
    by_change = {each["change"]: each for each in planned["files"]}
    assert [each["bytes"] for each in planned["files"]] == [sizes[each["path"]] for each in planned["files"]]
    gone = "gone by the first 'ebbtide vacuum' after 7 days"
    hidden = by_change["gets a vector"]["bytes"]
    assert planned.text().splitlines()[1:] == [
        f"  state: 2 rows, 2 files, {planned['bytes_rewritten']:,} bytes: to be rewritten without the rows; old files are {gone}",
        f"  state: 1 row, 1 file, {hidden:,} bytes: to get a deletion vector, which hides the rows; the files stay",
        "  quarantine: 1 row, 0 files: dropped by max_bytes",
        "  To do it: 'ebbtide cleanup'.",
    ]
    PHASES.clear()
    done = act("cleanup", pipeline, clock_ms=later)
    assert (done["rows_removed"], done["entries"], done["quarantine_max_bytes"]) == (3, 8, 1)
    assert PHASES == ["opening the tables", "cleanup, step 4", "counting the entries"]
    before = {each["path"] for each in planned["files"]}
    left = {file.path for file in pipeline.plan.state.snapshot().files.values()}
    assert before - left == before - {by_change["gets a vector"]["path"]}, "the note of a file stays"
    assert act("cleanup", pipeline, "dry_run", later).text() == "t: nothing has expired; 8 entries."


def test_cleanup_that_would_win_too_little_is_skipped_and_says_why(make):
    set_limits(width=100)
    pipeline = make(**EXPIRING)
    assert act("cleanup", pipeline, min_share=0.1).text() == "t: cleanup: skipped: no step was made."
    pipeline.read(*(up(number, number, "-D" if number < 3 else "+U") for number in range(10)), clock_ms=START)
    n_bytes = sum(file.size for file in pipeline.plan.state.snapshot().files.values())
    small = f"t: cleanup: skipped: the state has {n_bytes:,} bytes, below {n_bytes + 1:,} bytes."
    assert act("cleanup", pipeline, min_bytes=n_bytes + 1).text() == small
    assert act("cleanup", pipeline, min_share=0.1).text() == "t: cleanup: skipped: nothing has expired."
    versions, later = pipeline.versions(), START + 2 * HOUR
    skipped = act("cleanup", pipeline, clock_ms=later, min_share=0.31)
    assert re.fullmatch(
        r"t: cleanup: skipped: it would free 30\.0% of entries, [\d,]+ bytes, below 31\.0%\.", skipped.text()
    )
    assert act("cleanup", pipeline, "dry_run", later, min_share=0.31) == skipped
    assert (skipped.step, pipeline.versions()) == (None, versions)
    too_few = act("cleanup", pipeline, clock_ms=later, min_bytes=n_bytes // 2)
    assert too_few.text().endswith(f"below {n_bytes // 2:,} bytes.")
    done = act("cleanup", pipeline, clock_ms=later, min_share=0.3, min_bytes=1)
    assert (done["entries_deleted"], done["entries"]) == (3, 7)


def test_cleanup_is_skipped_without_reading_a_file_or_keys_where_few_rows_of_a_fold_have_expired(make, monkeypatch):
    set_limits(width=100)
    pipeline = make(**EXPIRING)
    pipeline.read(*(up(number, number, "-D" if number < 3 else "+U") for number in range(10)), clock_ms=START)
    pipeline.do("compaction")
    with monkeypatch.context() as patch:
        patch.setattr(DataFile, "read", None)
        assert act("cleanup", pipeline, min_share=0.1).text() == "t: cleanup: skipped: nothing has expired."
    pipeline.read(up(20, 20), clock_ms=START)
    monkeypatch.setattr(doomed, "FindVersions", None)
    skipped = act("cleanup", pipeline, clock_ms=START + 2 * HOUR, min_share=0.31)
    assert skipped.text() == "t: cleanup: skipped: it would free at most 30.0% of entries, below 31.0%."


def test_expired_versions_of_entries_that_were_written_again_are_nothing_that_cleanup_would_win(make):
    set_limits(width=100)
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.read(up(1, 1), up(2, 2), clock_ms=START)
    with pipeline.stepper() as stepper:
        clock = stepper.next_clock(START + HOUR // 2)
        stepper.commit(stepper.facts(Cause(what="cleanup"), clock), [])
    pipeline.read(up(1, 3), up(2, 4), clock_ms=START)
    later = START + HOUR * 6 // 5
    assert "it would free 0.0% of entries, 0 bytes" in act("cleanup", pipeline, clock_ms=later, min_share=0.1).text()
    assert act("cleanup", pipeline, clock_ms=later)["entries_deleted"] == 0


def test_dry_run_of_a_compaction_counts_the_rows_that_it_leaves_out(make):
    set_limits(width=100)
    pipeline = make(**EXPIRING)
    assert act("compact", pipeline, "dry_run").text() == "t: compaction: nothing to do."
    pipeline.read(up(1, 1), up(2, 2, "-D"), clock_ms=START)
    pipeline.read(up(1, 3), clock_ms=START)
    planned = act("compact", pipeline, "dry_run")
    done = act("compact", pipeline)
    assert (planned["rows"], planned["entries"]) == (done["rows_removed"], done["entries"]) == (1, 2)
    assert (planned["files_rewritten"], planned["bytes_rewritten"]) == (done["files_before"], done["bytes_before"])
    assert act("compact", pipeline, "dry_run").text() == "t: compaction: nothing to do."


@pytest.fixture
def three_steps(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 3), "{")
    pipeline.read(up(2, 4, "-D"))
    return pipeline


def test_rewind_counts_no_records_that_an_earlier_one_has_given_back(three_steps):
    pipeline = three_steps
    pipeline.act("rewind", to_step=2)
    assert pipeline.act("rewind", "plan", to_step=1)["records"] == 2
    pipeline.run()
    assert pipeline.act("rewind", "plan", to_step=1)["records"] == 3


def test_rewind_is_planned_and_done_with_all_tables(three_steps):
    pipeline = three_steps
    versions = pipeline.versions()
    planned = pipeline.act("rewind", "plan", to_step=1)
    assert pipeline.versions() == versions, "a plan changes nothing"
    state_version = next(version for version, facts in pipeline.plan.state.steps() if facts.step == 1)
    places = planned["places"]
    assert planned.as_dict() == {
        "places": places,
        "pipeline": "t",
        "to_step": 1,
        "kind": "batch",
        "steps": 2,
        "records": 3,
        "versions": {"state": state_version, "sink": 1, "quarantine": 0},
        "step": None,
    }
    first, versions_line, *_, last = planned.text().splitlines()
    assert (first, versions_line, last) == (
        "t: back to step 1 (batch): 2 steps undone, 3 records to be read again.",
        f"  state to version {state_version}, sink to version 1, quarantine to version 0",
        "  To do it: 'ebbtide rewind --to-step 1 --apply'.",
    )
    done = pipeline.act("rewind", to_step=1)
    assert done.as_dict() == {**planned.as_dict(), "step": 4}
    assert done.text().endswith("\n  Done in step 4. The next run reads on from there.")
    assert pipeline.rows() == {1: 1, 2: 2}
    assert pipeline.plan.quarantine.size() == 0
    assert stored(pipeline) == [(1, 1, False), (2, 1, False)]
    steps = pipeline.run().steps
    assert [(step.step, step.kind, step.batch_id) for step in steps] == [(5, "batch", 0), (6, "batch", 1)]
    assert pipeline.rows() == {1: 3}
    assert pipeline.plan.quarantine.size() == 1
    pipeline.act("rewind", to_step=3)
    assert pipeline.rows() == {1: 3}, "a rewind can be rewound"


def test_step_that_is_not_there_cannot_be_gone_back_to(three_steps):
    with pytest.raises(HistoryGoneError) as raised:
        three_steps.act("rewind", "plan", to_step=9)
    assert str(raised.value) == (
        "'t' cannot go back to step 9. Got: step 9."
        " Allowed: 1 to 3: the steps since the last refresh whose commits are kept."
        " Name one of these, or run 'ebbtide refresh' to rebuild all tables from the source."
    )
    three_steps.do("refresh")
    with pytest.raises(HistoryGoneError, match="Allowed: 4 to 7: "):
        three_steps.act("rewind", "plan", to_step=3)


def test_pipeline_that_has_made_no_step_cannot_go_back(make):
    pipeline = make()
    pipeline.plan.state.create()
    with pytest.raises(HistoryGoneError, match="Allowed: 0 to 0: "):
        pipeline.act("rewind", "plan", to_step=1)


def test_step_of_another_spec_cannot_be_gone_back_to(three_steps):
    three_steps.spec = three_steps.with_fields(ttl="1h", schema="id BIGINT NOT NULL, n BIGINT")
    three_steps.do("migrate")
    versions = three_steps.versions()
    with pytest.raises(SpecChangedError) as raised:
        three_steps.act("rewind", to_step=1)
    assert str(raised.value) == (
        "Step 1 of 't' was made with another spec. Got: columns, ttl. Allowed: step 4 or a later one; or the spec of the step."
        " Name one of these, or change the spec back first."
    )
    assert three_steps.versions() == versions


def test_sink_with_features_that_are_not_known_here_can_be_gone_back_in_as_far_as_a_plan_goes(three_steps):
    sink = three_steps.plan.sink.path
    features = {"readerFeatures": ["fromLater"], "writerFeatures": ["fromLater"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    Writer().commit_version(sink, Log(sink).versions()[-1] + 1, [protocol], {"operation": "UPGRADE PROTOCOL"})
    assert three_steps.act("rewind", "plan", to_step=1)["versions"]["sink"] == 1


def test_versions_whose_files_are_gone_are_refused_before_anything_changes(three_steps):
    sink = Snapshot.read(three_steps.plan.sink.path, 1)
    for file in sink.files.values():
        (three_steps.home / "sink" / file.path).unlink()
    versions = three_steps.versions()
    with pytest.raises(HistoryGoneError, match=r"sink' cannot be brought back to version 1\. .* deleted, as by VACUUM"):
        three_steps.act("rewind", to_step=1)
    assert three_steps.versions() == versions


def test_rewind_finishes_the_open_step_first(three_steps):
    three_steps.put(up(5, 5))
    with killed_before("the sink is written"):
        three_steps.run()
    three_steps.act("rewind", to_step=4)
    assert three_steps.rows() == {1: 3, 5: 5}


def with_second_versions(make):
    """Keys 0 to 19 in a whole fold, of which some have further versions in files of their own; one was deleted, one is new."""
    set_limits(width=100, rewriting_rows_in_part=5, rows_in_piece=2)
    pipeline = make(**EXPIRING)
    pipeline.read(*[up(number, 1) for number in range(20)], clock_ms=START)
    pipeline.do("compaction")
    pipeline.read(*[up(number, 2) for number in range(0, 20, 2)], clock_ms=START)
    pipeline.read(up(4, 3), up(5, 3, "-D"), up(30, 3), clock_ms=START)
    return pipeline


def test_bounded_compactions_end_with_what_one_fold_leaves(make):
    pipeline = with_second_versions(make)
    rows, read = pipeline.rows(), pipeline.plan.state.files(pipeline.plan.state.snapshot().files.values())
    wanted = newest_of(stored(pipeline))
    planned = act("compact", pipeline, "dry_run", max_files=1)
    lefts = [planned["files_left"]]
    for _ in range(20):
        report = act("compact", pipeline, max_files=1)
        if report.step is None:
            break
        lefts.append(report.as_dict().get("files_left", 0))
        assert newest_of(stored(pipeline)) == wanted, "after each run, whatever is left"
        assert pipeline.rows() == rows
        assert act("cleanup", pipeline).step is None, "each entry is counted and judged once"
    assert lefts[0] == lefts[1] == len(lefts) - 2 > 2, "each run writes one file"
    assert lefts[1:] == sorted(lefts[1:], reverse=True)
    assert stored(pipeline) == wanted, "one version of each entry"
    files = pipeline.plan.state.snapshot().files.values()
    assert pipeline.plan.state.files(files) == read
    added = pipeline.plan.state.stored_in(files).added
    assert all(map(is_of_notes, added.values()))
    assert act("compact", pipeline, "dry_run", max_files=1).text() == "t: compaction: nothing to do."
    # What comes later meets the merged files.
    pipeline.read(up(4, 9), up(7, 9, "-D"), clock_ms=START)
    assert pipeline.rows() == {**{key: n for key, n in rows.items() if key != 7}, 4: 9}
    pipeline.do("compaction")
    assert pipeline.rows() == {**{key: n for key, n in rows.items() if key != 7}, 4: 9}


def newest_of(versions):
    """Of each entry the newest version, without dropped ones."""
    newest = {id_: (id_, step, removed) for id_, step, removed in sorted(versions)}
    return [entry for entry in newest.values() if not entry[2]]


def is_of_notes(file):
    return file.least("_entry") != "row"


@pytest.mark.parametrize("at", [pytest.param(0, marks=pytest.mark.grid), 1])
def test_bounded_compaction_that_is_killed_has_done_all_or_nothing(make, at):
    pipeline = with_second_versions(make)
    wanted = newest_of(stored(pipeline))
    act("compact", pipeline, max_files=1)
    before, rows = stored(pipeline), pipeline.rows()
    place = ["ranges are merged", "a step is committed"][at]  # files are written and no vector, or both
    with killed_before(place):
        act("compact", pipeline, max_files=1)
    assert (stored(pipeline), pipeline.rows()) == (before, rows)
    while act("compact", pipeline, max_files=1).step:
        assert pipeline.rows() == rows
    assert stored(pipeline) == wanted


def test_what_has_expired_in_the_ranges_of_a_bounded_compaction_goes(make):
    pipeline = with_second_versions(make)
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what="cleanup"), stepper.next_clock(START + 2 * HOUR)), [])
    rows = pipeline.rows()
    while act("compact", pipeline, max_files=2).step:
        assert pipeline.rows() == rows
    assert 5 not in {id_ for id_, _, _ in stored(pipeline)}
