"""A step is decided once and finished by the next run; what does not follow the last one is refused, and so is a run that was
taken over."""

import json
import shutil
import threading
from pathlib import Path

import pytest
from frame.interrupting import killed_before
from frame.limits import limits, set_limits
from local.local_pipeline import LATER, stop_after, up
from local.local_run import BATCH_MS, HOUR, SPARK, START, die_behind_a_decision
from local.support import change, envelope, record

from ebbtide.cli.running import _summary_text
from ebbtide.delta import Commit, Log, Snapshot, Writer
from ebbtide.errors import (
    LeaseLostError,
    QuarantineThresholdError,
    SpecChangedError,
    StoredFormatError,
)
from ebbtide.inspect import status
from ebbtide.ledger import Cause
from ebbtide.model import BatchCounts, BatchSummary, Reading, Restore
from ebbtide.runtime import SourceSteps, Stepper
from ebbtide.runtime import _reading as reading
from ebbtide.runtime._driver import reset
from ebbtide.runtime._reading import PlannedBatch
from ebbtide.storage import Location


def test_each_file_is_a_batch_and_a_step_of_its_own(make):
    pipeline = make()
    pipeline.put(up(1, 1), up(2, 2))
    pipeline.put(up(1, 3), "{")
    first, second = pipeline.run().steps
    assert (first.step, first.kind, first.batch_id, first.records, first.quarantined) == (1, "batch", 0, 2, 0)
    assert (second.step, second.kind, second.batch_id, second.records, second.quarantined) == (2, "batch", 1, 2, 1)
    assert first.metrics["inserted"] == 2
    assert second.metrics["updated"] == 1
    assert first.pipeline == pipeline.spec.name
    assert [first.clock.now_ms, second.clock.now_ms] == [START, START + BATCH_MS], (
        "the time at which the batch was planned"
    )
    assert 0 < first.seconds < 60
    assert pipeline.rows() == {1: 3, 2: 2}
    assert pipeline.run().steps == [], "nothing is read twice"


def test_facts_say_what_made_the_step_and_what_it_was_made_of(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    facts = pipeline.last
    assert (facts.step, facts.source.batch_id, facts.cause.what) == (2, 1, "batch")
    assert facts.source.path == str(pipeline.source)
    assert facts.state.spec == pipeline.spec.identity
    assert facts.pipeline == pipeline.spec.name
    assert facts.epoch == 2, "each run has taken the lease once"
    assert facts.state.tables["sink"].step == 1
    assert facts.state.version < Log(pipeline.plan.state.path).versions()[-1]


def test_batch_that_is_in_no_table_yet_is_finished_and_not_decided_again(make):
    pipeline = make()
    pipeline.put(up(1, 1), "{")
    die_behind_a_decision(SPARK, pipeline.root, pipeline.spec)
    assert pipeline.rows() == {}
    decided = pipeline.versions()["state"]
    [replayed] = pipeline.run().steps
    assert (replayed.kind, replayed.step, replayed.batch_id, replayed.records) == ("replay", 1, 0, 2)
    assert replayed.quarantined == 1
    assert pipeline.rows() == {1: 1}
    assert pipeline.versions()["state"] == decided


def fold_each_file(stepper):
    with limits(width=1):
        stepper.fold(SPARK)


ACTS = {
    "batch": lambda stepper: SourceSteps(stepper).batch(SPARK, PlannedBatch(1, {"files": [("0001.jsonl", 1)]}, LATER)),
    "decide": lambda stepper: stepper.apply(SPARK, None, None),
    "tick": lambda stepper: SourceSteps(stepper).tick(SPARK, LATER + 3 * HOUR),
    "commit": lambda stepper: stepper.commit(stepper.facts(Cause(what="cleanup")), []),
    "reset": lambda stepper: reset(stepper, LATER, None),
    "fold": fold_each_file,
}


@pytest.mark.parametrize("act", ACTS)
def test_run_that_was_taken_over_commits_nothing(make, act):
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.put(up(1, 1))
    pipeline.put(up(1, 2))
    stop = threading.Event()
    pipeline.run(stop=stop, on_progress=stop_after(1, stop))
    with pipeline.taken_over() as stepper:
        versions = pipeline.versions()
        ledger = Log(pipeline.plan.at("ledger")).versions()
        with pytest.raises(LeaseLostError):
            ACTS[act](stepper)
        assert pipeline.versions() == versions
        assert Log(pipeline.plan.at("ledger")).versions() == ledger
        assert not (pipeline.home / "staged").exists()


def test_take_over_right_behind_the_look_at_the_lease_is_met_by_the_fence_of_each_table(make, monkeypatch):
    pipeline = make()
    pipeline.read(up(1, 1), "{")
    with pipeline.taken_over() as stale:
        monkeypatch.setattr(stale.lease, "check", lambda: None)
        stale.newest()
        winner = Stepper(pipeline.plan, stale.lease, LATER)
        winner.commit(winner.facts(Cause(what="compaction")), [])
        versions = pipeline.versions()
        with pytest.raises(LeaseLostError):
            stale.commit(stale.facts(Cause(what="cleanup")), [])
        with pytest.raises(LeaseLostError):
            stale.commit(stale.facts(Cause(what="reset")), stale.plan.state.emptied(stale.found()))
    assert pipeline.versions() == versions
    assert pipeline.last.cause.what == "compaction"


def test_watermark_stays_behind_the_greatest_event_time_of_earlier_steps(make):
    by_event = {"ttl": "1h", "time_characteristic": "EVENT_TIME"}
    pipeline = make(
        schema="id BIGINT NOT NULL, n INT, at TIMESTAMP", event_time="at", allowed_delay="10s", ttl=by_event
    )
    [first] = pipeline.read(up(1, 1, at="1970-01-01T00:01:00Z"), up(2, 2, at="1970-01-01T00:00:30Z"))
    [second] = pipeline.read(up(3, 3, at="1970-01-01T00:02:00Z"))
    [third] = pipeline.read(up(4, 4, at="1970-01-01T00:00:01Z"))
    watermarks = [step.clock.watermark_ms for step in (first, second, third)]
    assert watermarks == [None, 50_000, 110_000]


def test_event_time_far_ahead_of_the_batch_s_own_time_is_bad(make):
    ahead = {"quarantine": {"max_event_time_ahead": "1h"}, "schema_evolution_mode": "evolve"}
    pipeline = make(schema="id BIGINT NOT NULL, n INT, at TIMESTAMP", event_time="at", **ahead)
    near, far, farther = (f"1970-02-11T{time}Z" for time in ("17:00:00", "17:00:01", "17:00:02"))  # an hour after START
    [first] = pipeline.read(up(1, 1, at=near), up(2, 2, at=far))
    [second] = pipeline.read(up(3, 3, at=far, note="x"), up(4, 4, at=farther))
    assert (first.quarantined, second.quarantined, dict(second.columns.evolved)) == (1, 1, {"note": "STRING"})


def test_state_of_an_older_format_is_nothing_that_a_job_goes_on_from(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    state = pipeline.plan.state.path
    made_by = {"pipeline": "t", "incarnation": "i", "epoch": 1, "code": "0", "step": 2}
    stored = {Commit.FORMAT: 1, **made_by, "now_ms": 0, "state_version": 1}
    said = {"operation": "WRITE", "userMetadata": json.dumps(stored)}
    Writer().commit_version(state, Log(state).versions()[-1] + 1, [], said)
    with pytest.raises(StoredFormatError, match="an older"), pipeline.stepper():
        pass


def test_clock_that_jumps_is_held_back_and_that_is_told(make):
    pipeline = make(max_clock_jump="1h", ttl={"ttl": "1h", "expire_live": True})
    [first] = pipeline.read(up(1, 1), clock_ms=START)
    [tick] = pipeline.run(START + 9 * HOUR).steps
    assert (tick.clock.now_ms, tick.clock.held_ms) == (first.clock.now_ms + HOUR, 8 * HOUR)


def test_staged_files_go_with_the_step_and_with_a_step_that_fails(make, monkeypatch):
    set_limits(flush_bytes=1)  # else few changes stay in memory
    pipeline = make()
    seen = []

    def looking(*given):
        staged = stage(*given)
        seen.append(sorted(path.name for path in Path(pipeline.plan.at("staged")).iterdir()))
        return staged

    stage = reading.stage
    monkeypatch.setattr(reading, "stage", looking)
    pipeline.read(up(1, 1))
    assert seen == [["1"]], "each step stages in a folder of its own"
    assert not (pipeline.home / "staged").exists()
    pipeline.put(up(1, 2))
    with killed_before("a batch is decided"):
        pipeline.run()
    assert not (pipeline.home / "staged").exists()
    assert pipeline.last.step == 1


@pytest.mark.parametrize(("rows_in_driver", "n_files"), [(100, 1), (0, 2)], ids=["one task", "several"])
def test_source_files_are_noted_behind_the_entries_of_the_only_task(make, rows_in_driver, n_files):
    set_limits(rows_in_driver=rows_in_driver)
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 1))
    state = pipeline.plan.state
    files = list(state.snapshot().files.values())
    assert len({file.path.partition("-")[0] for file in files}) == n_files
    assert state.files(files) == {"0000.jsonl": (pipeline.source / "0000.jsonl").stat().st_size}
    assert (state.entry_rows(files), len(state.stored_in(files).read())) == (2, 2)


def test_source_file_without_a_change_is_noted(make):
    pipeline = make()
    pipeline.read("{")
    [file] = pipeline.plan.state.snapshot().files.values()
    assert list(pipeline.plan.state.files([file])) == ["0000.jsonl"]
    assert pipeline.plan.state.entry_rows([file]) == 0


def test_failure_of_a_step_is_told_though_what_was_staged_cannot_be_deleted(make, monkeypatch):
    delete = Location.delete

    def full(location):
        if location.endswith("staged"):
            raise OSError(28, "No space left on device")
        delete(location)

    pipeline = make()
    pipeline.put(up(1, 1))
    monkeypatch.setattr(Location, "delete", full)
    with killed_before("a batch is decided"):
        pipeline.run()


def test_too_many_bad_records_refuse_the_step_and_stay_to_be_looked_at(make):
    pipeline = make(quarantine={"max_rows_per_step": 1})
    pipeline.read(up(1, 1), "{")
    assert pipeline.last.read.quarantined == 1, "as many as are allowed"
    pipeline.put(up(1, 2), "{", "[")
    with pytest.raises(QuarantineThresholdError) as raised:
        pipeline.run()
    staged = pipeline.plan.at("staged")
    assert str(raised.value) == (
        "Pipeline 't' met too many bad records in one step; nothing of it was committed. Got: 2 of 3."
        " Allowed: up to 1 (quarantine.max_rows_per_step)."
        f" See their reasons in '{staged}' (_reason, _detail, _raw), then repair the source or the spec, or raise the limit."
    )
    assert list(Path(staged).rglob("*"))
    assert pipeline.last.step == 1


def test_bad_record_that_comes_again_is_counted_as_redelivered(make):
    placed = {"format": {"type": "plain", "position": ["p", "o"]}, "order": "arrival"}
    pipeline = make(**placed)
    good = '{"p": 0, "o": 0, "kind": "+I", "row": {"id": 1, "n": 1}}'
    bad = '{"p": 0, "o": 1, "kind": "+I", "row": {"id": null, "n": 2}}'
    assert pipeline.read(good, bad)[0].quarantined == 1
    [again] = pipeline.read(good, bad)
    assert (again.quarantined, again.metrics["redelivered"]) == (0, 2)
    assert again.records == 2
    other = bad.replace('"o": 1', '"o": 2')
    [half_new] = pipeline.read(bad, other)
    assert (half_new.quarantined, half_new.metrics["redelivered"]) == (1, 1)


def test_bad_record_that_was_dropped_is_not_quarantined_again(make):
    pipeline = make(format={"type": "plain", "position": ["p", "o"]}, order="arrival")
    bad = '{"p": 0, "o": 1, "kind": "+I", "row": {"id": null, "n": 2}}'
    pipeline.read(bad)
    pipeline.do("drop")
    [again] = pipeline.read(bad)
    assert (again.quarantined, again.metrics["redelivered"]) == (0, 1)
    assert pipeline.plan.quarantine.size() == 0


def test_tick_follows_what_the_pipeline_lets_expire(make):
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.plan.state.create()
    with pipeline.stepper() as stepper:
        assert SourceSteps(stepper).tick(SPARK, LATER) is None, "there is nothing before the first step"
    [batch] = pipeline.read(up(1, 1), clock_ms=START)
    assert pipeline.run(START + HOUR - 1).steps == [], "nothing is due"
    [tick] = pipeline.run(START + HOUR).steps
    assert (tick.kind, tick.step, tick.batch_id, tick.records) == ("tick", 2, None, 0)
    assert tick.metrics["expired"] == 1
    assert tick.clock.now_ms == START + HOUR
    assert 0 < tick.seconds < 60
    assert (pipeline.last.cause.what, pipeline.last.source.batch_id) == ("tick", batch.batch_id)
    assert pipeline.run(START + HOUR).steps == []


@pytest.mark.parametrize(
    "fields", [{"source": {"records": "kafka", "topic": "other"}}, {"format": {"type": "plain", "kind": "op"}}]
)
def test_other_source_under_the_same_name_is_refused(make, fields):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(**fields)
    with pytest.raises(SpecChangedError, match=r"Is it another pipeline\? Then give it another name"):
        pipeline.run()
    assert pipeline.last.step == 1


def test_source_that_has_moved_is_refused_until_that_is_accepted_and_a_tick_writes_it_down(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    moved = pipeline.source.rename(pipeline.source.with_name("moved"))
    before, pipeline.source = pipeline.source, moved
    pipeline.spec = pipeline.with_fields()
    with pytest.raises(SpecChangedError, match=rf"Got: {moved}\. Allowed: {before}\. .*--accept-source-path"):
        pipeline.run()
    [tick] = pipeline.run(accept_source_path=True).steps
    assert tick.kind == "tick"
    assert pipeline.last.source.path == str(moved)
    assert pipeline.run().steps == []


def test_tick_writes_down_when_a_run_ended_where_downtime_is_left_out(make):
    pipeline = make(ttl={"ttl": "9d"}, downtime_over="1m")
    steps = pipeline.read(up(1, 1), clock_ms=START)
    assert [step.kind for step in steps] == ["batch", "tick"]
    assert pipeline.last.cause.what == "tick"
    assert not pipeline.is_idle(START)


def test_reset_goes_on_counting_above_all_tables(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(1, 2), "{")
    before = pipeline.last
    steps = pipeline.do("refresh").steps
    assert [step.step for step in steps] == [4, 5], "the reset was step 3"
    assert pipeline.rows() == {1: 2}
    assert pipeline.last.incarnation != before.incarnation
    assert pipeline.last.frontier.total_records == 3
    with pipeline.stepper() as stepper:
        reset(stepper, LATER, None)
        stepper.publish(SPARK)
        assert not stepper.last.state.pending_key_changes
    facts = pipeline.last
    assert (facts.step, facts.cause.what, facts.source.batch_id) == (6, "reset", None)
    assert pipeline.rows() == {}


def test_reset_over_a_state_that_was_lost_counts_above_the_other_tables(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(1, 2))
    shutil.rmtree(pipeline.home / "state")
    steps = pipeline.do("refresh").steps
    assert [step.step for step in steps] == [4, 5]
    assert pipeline.rows() == {1: 2}


def test_rewound_pipeline_waits_again_for_what_it_waited_for(make):
    keyed = {
        "format": {"type": "debezium"},
        "order": {"sequence": ["_lsn"]},
        "schema": "id BIGINT NOT NULL, body STRING",
    }
    pipeline = make(**keyed)
    unsent = {"id": 2, "body": "__debezium_unavailable_value"}
    pipeline.read(json.dumps(envelope("u", 2, before={"id": 1}, after=unsent)))
    waiting = pipeline.last
    with pipeline.stepper() as stepper:
        assert stepper.last.state.pending_key_changes, "as the step before it was begun knew"
    pipeline.read(json.dumps(envelope("c", 1, after={"id": 1, "body": "a"})))
    with pipeline.stepper() as stepper:
        assert not stepper.last.state.pending_key_changes
    pipeline.do("rewind")
    assert pipeline.last.state.pending_key_changes == waiting.state.pending_key_changes
    with pipeline.stepper() as stepper:
        assert stepper.facts(Cause(what="cleanup")).state.pending_key_changes, "until a step reads records"


def test_job_s_step_stands_where_the_last_one_stood(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    batch = pipeline.last
    with pipeline.stepper() as stepper:
        facts = stepper.facts(Cause(what="compaction"))
        later = stepper.facts(Cause(what="cleanup", why="why"), Reading(LATER, LATER))
        replayed = stepper.facts(Cause(what="quarantine_replay"), batch=BatchSummary(BatchCounts(records=3)))
        stepper.commit(facts, [])
        assert (stepper.number, stepper.last, stepper.version) == (2, facts, pipeline.versions()["state"])
    assert facts.frontier.clock == batch.frontier.clock
    assert (facts.step, facts.source.batch_id) == (2, batch.source.batch_id)
    assert (later.now_ms, later.cause.why) == (LATER, "why")
    assert (replayed.read.records, replayed.frontier.total_records) == (3, 4)
    assert facts.epoch == batch.epoch + 1
    assert pipeline.last == facts


def test_job_s_step_before_the_first_batch_has_no_clock(make):
    pipeline = make()
    pipeline.plan.state.create()
    with pipeline.stepper() as stepper:
        facts = stepper.facts(Cause(what="cleanup"))
    assert (
        facts.step,
        facts.now_ms,
        facts.frontier.clock.wall_ms,
        facts.source.batch_id,
    ) == (1, 0, 0, None)


def test_rewound_pipeline_stands_where_it_stood_in_another_incarnation(make):
    pipeline = make()
    pipeline.read(up(1, 1, note="x"), "{", clock_ms=START)
    first = pipeline.last
    assert first.read.ignored_columns == ("note",)
    pipeline.read(up(1, 2), "[", clock_ms=LATER)
    last = pipeline.last
    sink_version = pipeline.versions()["sink"]
    pipeline.do("rewind")
    facts = pipeline.last
    assert (facts.step, facts.cause.what) == (last.step + 1, "rewind")
    assert facts.decision.tables["sink"] == Restore(sink_version - 1, changes_rows=True)
    assert facts.frontier == first.frontier
    assert (facts.frontier.total_records, facts.frontier.total_quarantined) == (2, 1)
    assert (facts.read.records, facts.read.quarantined, facts.read.ignored_columns, facts.read.floor_raised) == (
        0,
        0,
        (),
        False,
    )
    assert facts.incarnation not in (first.incarnation, last.incarnation)
    assert facts.source.batch_id is None
    assert facts.state.pending_key_changes is False


def test_phases_say_which_step_begins_what(make):
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.put(up(1, 1))
    pipeline.put(up(2, 2))
    phases = []
    pipeline.run(START + 2 * HOUR, on_phase=lambda phase: phases.append((phase.name, phase.step, phase.files_read)))
    assert phases[3:] == [
        ("reading", 1, 0),
        ("deciding", 1, 0),
        ("merging", 1, 0),
        ("reading", 2, 1),
        ("deciding", 2, 1),
        ("merging", 2, 1),
        ("expiring", 3, 2),
    ]


def test_small_files_are_joined_once_a_step_is_published(make):
    pipeline = make()
    for number in range(3):
        pipeline.put(up(number, number))
    pipeline.do("run", width=2)
    operations = [
        Log(pipeline.plan.sink.path).commit(version).info()["operation"]
        for version in Log(pipeline.plan.sink.path).versions()
    ]
    assert operations == ["CREATE TABLE", "MERGE", "MERGE", "OPTIMIZE", "MERGE", "OPTIMIZE"]


EVOLVE = {"schema_evolution_mode": "evolve"}


def test_copies_of_files_are_as_few_as_those_that_count_however_many_steps_there_were(make, shell, tmp_path):
    shell.export(EBBTIDE_CACHE=tmp_path / "copies")
    pipeline = make()
    for number in range(15):
        pipeline.put(up(number % 5, number))
    pipeline.do("run", width=2)
    live = sum(len(Snapshot.read(pipeline.plan.at(name)).files) for name in ("state", "sink"))
    assert len(list((tmp_path / "copies").iterdir())) <= live + 5  # those of the last step's folds go with the next one


def test_new_column_is_taken_in_by_a_step_of_its_own_before_the_batch_that_brings_it(make):
    pipeline = make(**EVOLVE)
    pipeline.read(up(1, 1))
    [step] = pipeline.read(up(2, 2, note="x"))
    assert (step.step, step.kind, step.columns.ignored, dict(step.columns.evolved)) == (
        3,
        "batch",
        [],
        {"note": "STRING"},
    )
    evolution, batch = [facts for _, facts in pipeline.plan.state.steps()][1::-1]
    assert (evolution.cause.what, evolution.step, evolution.decision.changes_columns) == ("migration", 2, True)
    assert evolution.decision.tables["sink"].columns_before == "`id` BIGINT NOT NULL, `n` INT"
    assert evolution.now_ms == batch.now_ms
    assert batch.state.evolved == {"note": "STRING"}
    assert not (pipeline.home / "staged").exists()
    rows = pipeline.table("sink", pipeline.plan.sink.schema)
    assert sorted((row["id"], row["note"], row["_changed_by"]["step"]) for row in rows) == [(1, None, 1), (2, "x", 3)]


@pytest.mark.parametrize(
    ("table", "rows", "is_of_others", "said"),
    [
        (
            "order",
            {},
            True,
            "No record is of source.table: see that it is the table's name. Of other tables: 2 records.",
        ),
        ("orders", {1: 1}, False, "Of other tables than source.table, and left out: 1 record."),
        ("public.orders", {1: 1}, False, "Of other tables than source.table, and left out: 1 record."),
    ],
)
def test_records_of_other_tables_are_counted_and_it_is_said_where_there_are_no_others(
    make, table, rows, is_of_others, said
):
    pipeline = make(format={"type": "debezium"}, order={"sequence": ["_lsn"]})
    pipeline.spec = pipeline.with_fields(source={"table": table})
    own = envelope("c", 1, after={"id": 1, "n": 1}, table="orders")
    other = envelope("c", 2, after={"id": 2, "n": 2}, table="customers")
    pipeline.put(json.dumps(own), json.dumps(other))
    summary = pipeline.run()
    [step] = summary.steps
    n_other = 2 - len(rows)
    assert pipeline.rows() == rows
    assert (step.records, step.other_tables, pipeline.last.read.other_tables) == (len(rows), n_other, n_other)
    assert f"{n_other} of other tables" in step.line()
    assert summary.is_of_other_tables == is_of_others
    assert said in _summary_text(summary)
    assert status(pipeline.spec, pipeline.root).read.other_tables == n_other


@pytest.mark.parametrize(
    ("lines", "got"),
    [
        (["x"] * 100, "10 of the first 10"),
        ([*["x"] * 4, *[up(1, 1)] * 96], "4 of the first 10"),
        (["x"] * 9, "9 of 9"),
        ([*[up(1, 1)] * 96, *["x"] * 4], "4 of 100"),
    ],
)
def test_too_many_bad_records_are_refused_while_they_are_decoded(make, lines, got):
    set_limits(batch_rows=10)
    pipeline = make(quarantine={"max_rows_per_step": 3})
    pipeline.put(*lines)
    with pytest.raises(QuarantineThresholdError, match=f"Got: {got}. Allowed: up to 3.*See their reasons"):
        pipeline.run()
    assert list((pipeline.home / "staged").rglob("*.bad.parquet"))
    pipeline.spec = pipeline.with_fields(quarantine={"max_rows_per_step": 100})
    [step, *_] = pipeline.run().steps
    assert (step.records, step.quarantined) == (len(lines), lines.count("x"))


@pytest.mark.parametrize("order", ["arrival", "upsert", {"sequence": ["n"]}])
@pytest.mark.demand("sum-memory")
def test_large_step_is_decided_and_published_in_parts_in_one_commit(make, order):
    set_limits(change_piece_bytes=500)
    pipeline = make(order=order, ttl=None, max_group_bytes=500)
    pipeline.read(*[up(id_, 1) for id_ in range(60)])
    first_commit = 1
    assert len(Log(pipeline.plan.sink.path).commit(first_commit).adds()) > 1
    pipeline.read(*[up(id_, 2) for id_ in range(30, 90)], *[change("-D", id=id_, n=2) for id_ in range(90, 95)])
    assert pipeline.rows() == {id_: 1 if id_ < 30 else 2 for id_ in range(90)}


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["n"]}])
def test_redelivered_bad_records_count_once_and_new_ones_are_refused_while_they_are_decoded(make, order):
    set_limits(batch_rows=2)
    lines = [record("x", number) for number in range(3)]
    pipeline = make(quarantine={"max_rows_per_step": 3}, order=order)
    pipeline.spec = pipeline.with_fields(source={"records": "kafka"})
    pipeline.read(*lines)
    [step, *_] = pipeline.read(*lines, *lines, *lines)
    assert step.counts["quarantined"] == 0
    pipeline.put(*lines, *[record("x", 100 + number) for number in range(100)])
    with pytest.raises(QuarantineThresholdError, match="Got: 5 of the first 8"):
        pipeline.run()


def test_events_that_change_no_row_are_counted_in_facts_line_and_summary(make):
    pipeline = make(format={"type": "debezium"}, order={"sequence": ["_lsn"]}, quarantine={"max_rows_per_step": 1})
    own = envelope("c", 1, after={"id": 1, "n": 1}, table="orders")
    heartbeats = [json.dumps({"ts_ms": number}) for number in range(5)]
    pipeline.put(*heartbeats, json.dumps(own))
    pipeline.put(*heartbeats)
    summary = pipeline.run()
    assert (pipeline.rows(), pipeline.last.read.not_rows) == ({1: 1}, 5)
    assert [(step.records, step.counts["not_rows"]) for step in summary.steps if step.kind == "batch"] == [
        (1, 5),
        (0, 5),
    ]
    assert "5 not rows" in summary.steps[0].line()
    assert "Events that change no row, such as heartbeats and DDL, passed over: 10." in _summary_text(summary)
