"""What a step promises: decided once, finished after a crash, refused where it does not fit."""

import datetime as dt
import gc
import gzip
import json
import shutil
import threading

import pytest
from spark_support import change, forget_last_commit, plain_spec, sink, table, write

from ebbtide.delta import log
from ebbtide.errors import (
    CheckpointMismatchError,
    FileChangedError,
    LateFileError,
    LeaseHeldError,
    QuarantineThresholdError,
    SourceReadError,
    SpecChangedError,
)
from ebbtide.inspect.status import status
from ebbtide.ledger.lease import Lease
from ebbtide.runtime.driver import refresh, run, system_clock
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.step import Stepper

DAY_MS = 86_400_000
BY_SEQ = {"sequence": ["seq"]}


def values(spark, root, spec):
    return {row["id"]: row["v"] for row in sink(spark, root, spec)}


def test_first_run_of_an_empty_source_makes_empty_tables(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in"))
    assert "no step yet" in status(spec, str(tmp_path)).text()
    assert run(spark, spec, str(tmp_path)).totals["records"] == 0
    assert run(spark, spec, str(tmp_path)).steps == []
    assert sink(spark, tmp_path, spec) == []
    assert status(spec, str(tmp_path)).records == 0


def test_source_folder_that_is_missing_is_refused_before_tables_are_made(spark, tmp_path):
    spec = plain_spec(tmp_path / "nowhere")
    with pytest.raises(SourceReadError, match="does not exist"):
        run(spark, spec, str(tmp_path))
    assert not (tmp_path / spec.name).exists()


@pytest.mark.grid
def test_arrival_mode_shows_the_newest_live_row(spark, tmp_path):
    new, old, gone = change("+I", 1, "new", 0), change("-U", 1, "old", 1), change("-D", 1, "new", 0)
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "old", 1), new.replace('"n": 0', '"n": 2')]))
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "new"}
    write(tmp_path / "in", [gone.replace('"n": 0', '"n": 3')], first=1)
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "old"}
    write(tmp_path / "in", [old.replace('"n": 1', '"n": 4')], first=2)
    assert run(spark, spec, str(tmp_path)).totals["deleted"] == 1
    assert values(spark, tmp_path, spec) == {}


def test_idle_run_ends_and_still_expires(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]), ttl="30d")
    run(spark, spec, str(tmp_path))
    later = run(spark, spec, str(tmp_path), clock=lambda: system_clock() + 29 * DAY_MS)
    assert later.steps == []
    much_later = run(spark, spec, str(tmp_path), clock=lambda: system_clock() + 31 * DAY_MS)
    assert [(step.kind, step.metrics) for step in much_later.steps] == [("tick", {"expired": 1, "orphaned": 1})]
    assert values(spark, tmp_path, spec) == {1: "a"}, "on expiry the sink keeps the row"
    write(tmp_path / "in", [change("-D", 1, "a", 1).replace('"n": 1', '"n": 2')], first=1)
    after = run(spark, spec, str(tmp_path))
    assert after.totals["unmatched"] == 1
    assert after.steps[0].now_ms == much_later.steps[0].now_ms, "the clock never goes back"


@pytest.mark.grid
def test_clock_that_jumps_is_held_and_reported(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]), ttl="2d", max_clock_jump="5d")
    first = run(spark, spec, str(tmp_path))
    tick = run(spark, spec, str(tmp_path), clock=lambda: system_clock() + 400 * DAY_MS).steps[0]
    assert tick.now_ms == first.steps[0].now_ms + 5 * DAY_MS
    assert tick.held_ms > 394 * DAY_MS


@pytest.mark.grid
def test_expired_tombstone_lets_a_late_change_in_and_a_live_one_does_not(spark, tmp_path):
    spec = plain_spec(
        write(tmp_path / "in", [change("+I", 1, "a", 1), change("-D", 1, "a", 5)]), order=BY_SEQ, ttl="1d"
    )
    run(spark, spec, str(tmp_path))
    write(tmp_path / "in", [change("+I", 1, "late", 3)], first=1)
    assert run(spark, spec, str(tmp_path)).totals["superseded"] == 1
    run(spark, spec, str(tmp_path), clock=lambda: system_clock() + 2 * DAY_MS)
    write(tmp_path / "in", [change("+I", 1, "later", 4)], first=2)
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "later"}


def test_live_entry_that_expired_is_stood_in_for_by_the_sink(spark, tmp_path):
    ttl = {"ttl": "1d", "expire_live": True}
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 5)]), order=BY_SEQ, ttl=ttl)
    run(spark, spec, str(tmp_path))
    tick = run(spark, spec, str(tmp_path), clock=lambda: system_clock() + 2 * DAY_MS)
    assert tick.totals["expired"] == 1
    write(tmp_path / "in", [change("+U", 1, "old", 4)], [change("+U", 1, "new", 6)], first=1)
    steps = run(spark, spec, str(tmp_path)).steps
    assert [step.metrics.get("superseded", 0) for step in steps] == [1, 0]
    assert values(spark, tmp_path, spec) == {1: "new"}


@pytest.mark.grid
def test_event_time_ttl_goes_by_the_watermark_of_earlier_steps(spark, tmp_path):
    ttl = {"ttl": "1h", "time_characteristic": "EVENT_TIME"}
    noon, two = "2026-01-01 12:00:00", "2026-01-01 14:00:00"
    spec = plain_spec(
        write(tmp_path / "in", [change("+I", 1, "a", 1, at=noon)], [change("+I", 2, "b", 2, at=two)]),
        ttl=ttl,
        event_time="at",
    )
    steps = run(spark, spec, str(tmp_path)).steps
    assert [step.kind for step in steps] == ["batch", "batch", "tick"]
    assert steps[1].watermark_ms == int(dt.datetime.fromisoformat(noon + "+00:00").timestamp() * 1000)
    assert steps[2].metrics == {"expired": 1, "orphaned": 1}


@pytest.mark.grid  # without Spark: tests/runtime/test_faults.py and test_step.py
def test_recreated_checkpoint_over_old_state_is_refused_and_refresh_rebuilds(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)], [change("+I", 2, "b", 2)]))
    run(spark, spec, str(tmp_path))
    checkpoint = tmp_path / spec.name / "checkpoint"
    kept = shutil.copytree(checkpoint, tmp_path / "kept")
    shutil.rmtree(checkpoint)
    with pytest.raises(CheckpointMismatchError, match="ebbtide refresh"):
        run(spark, spec, str(tmp_path))
    (checkpoint).mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    with pytest.raises(CheckpointMismatchError, match="another"):
        run(spark, spec, str(tmp_path))
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    for name in ("commits/1", "commits/.1.crc", "commits/0", "commits/.0.crc", "offsets/1", "offsets/.1.crc"):
        (checkpoint / name).unlink(missing_ok=True)
    with pytest.raises(CheckpointMismatchError, match="at batch 0, the state at 1"):
        run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "a", 2: "b"}

    before = Plan.under(str(tmp_path), spec).state.last()[1]
    refresh(spark, spec, str(tmp_path))
    after = Plan.under(str(tmp_path), spec).state.last()[1]
    assert values(spark, tmp_path, spec) == {1: "a", 2: "b"}
    assert after.incarnation != before.incarnation
    assert after.step == before.step + 3, "the ledger goes on counting"


@pytest.mark.grid  # without Spark: tests/runtime/test_step.py
def test_changed_batch_under_a_known_id_is_refused(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(spark, spec, str(tmp_path))
    checkpoint = tmp_path / spec.name / "checkpoint"
    for name in ("commits/0", "commits/.0.crc", "offsets/.0.crc"):
        (checkpoint / name).unlink(missing_ok=True)
    offsets = checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":1'))
    with pytest.raises(CheckpointMismatchError, match="other records"):
        run(spark, spec, str(tmp_path))


def test_state_that_is_gone_under_a_checkpoint_is_refused(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(spark, spec, str(tmp_path))
    other = tmp_path / "other"
    (other / spec.name).mkdir(parents=True)
    shutil.copytree(tmp_path / spec.name / "checkpoint", other / spec.name / "checkpoint")
    with pytest.raises(CheckpointMismatchError, match="no steps"):
        run(spark, spec, str(other))


@pytest.mark.grid  # a shorter one: test_refresh.py
def test_spec_that_no_longer_fits_is_refused_until_refreshed(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 1, "b", 2)]))
    run(spark, spec, str(tmp_path))
    for changed in (
        plain_spec(tmp_path / "in", order=BY_SEQ),
        plain_spec(tmp_path / "in", key=["id", "v"]),
    ):
        with pytest.raises(SpecChangedError, match="ebbtide refresh"):
            run(spark, changed, str(tmp_path))
    by_two = plain_spec(tmp_path / "in", key=["id", "v"])
    refresh(spark, by_two, str(tmp_path))
    assert len(sink(spark, tmp_path, by_two)) == 2


def test_bad_records_go_to_the_quarantine_once(spark, tmp_path):
    bad = ["{", change("?", 1, "x", 3), change("+I", None, "x", 4), change("+I", 1, 7, 5)]
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), *bad, change("+I", 2, "b", 6)]))
    summary = run(spark, spec, str(tmp_path))
    assert summary.totals["quarantined"] == 4
    commits = tmp_path / spec.name / "checkpoint" / "commits"
    shutil.rmtree(commits)
    assert run(spark, spec, str(tmp_path)).steps[0].kind == "replay"
    rows = table(spark, tmp_path, spec, "quarantine")
    assert sorted((row["reason"], row["raw"].decode()) for row in rows) == sorted(
        zip(("bad_json", "unknown_kind", "null_key", "wrong_type"), bad, strict=True)
    )
    assert all(row["origin"]["source"] is not None and row["detail"] and row["step"] == 1 for row in rows)
    assert values(spark, tmp_path, spec) == {1: "a", 2: "b"}
    write(tmp_path / "in", bad, first=1)
    again = run(spark, spec, str(tmp_path))
    assert (again.totals["quarantined"], again.totals["redelivered"]) == (1, 3), "a line that is no JSON names no place"
    assert Plan.under(str(tmp_path), spec).state.last()[1].frontier.offsets == {"/0": [(1, 1), (3, 6)]}
    refresh(spark, spec, str(tmp_path))
    assert len(table(spark, tmp_path, spec, "quarantine")) == 5


@pytest.mark.grid  # without Spark: tests/runtime/test_step.py
def test_too_many_bad_records_stop_the_run_before_anything_is_committed(spark, tmp_path):
    limit = {"max_rows_per_step": 1}
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), "{", "["]), quarantine=limit)
    with pytest.raises(QuarantineThresholdError, match="Got: 2 of 3"):
        run(spark, spec, str(tmp_path))
    assert sink(spark, tmp_path, spec) == []
    assert status(spec, str(tmp_path)).step == 0
    assert log.versions(Plan.under(str(tmp_path), spec).at("quarantine")) == []
    write(tmp_path / "in", [change("+I", 1, "a", 1)])
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "a"}


def test_file_below_one_already_read_is_refused_by_name(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)], first=5))
    run(spark, spec, str(tmp_path))
    write(tmp_path / "in", [change("+I", 2, "b", 2)], first=3)
    with pytest.raises(LateFileError, match=r"0003\.jsonl"):
        run(spark, spec, str(tmp_path))
    (tmp_path / "in" / "0003.jsonl").rename(tmp_path / "in" / "0006.jsonl")
    (tmp_path / "in" / "0005.jsonl").unlink()
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "a", 2: "b"}


@pytest.mark.grid
def test_files_of_any_name_are_read_once_by_sequence_and_one_that_grew_is_refused(spark, tmp_path):
    def totals():
        return run(spark, spec, str(tmp_path)).totals["records"]

    spec = plain_spec(write(tmp_path / "in" / "p=1", [change("+I", 1, "a", 1)], first=5), order=BY_SEQ)
    spec = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(tmp_path / "in")})})
    write(tmp_path / "in" / "p=0", [change("+I", 2, "b", 2)], [change("+I", 3, "c", 3)], first=8)
    (tmp_path / "in" / "p=0" / "0010.jsonl.tmp").write_text(change("+I", 9, "unfinished", 9))
    assert totals() == 3
    write(tmp_path / "in" / "p=1", [change("+I", 4, "d", 4)], first=2)
    assert [totals(), totals()] == [1, 0], "a smaller name is read, once"
    assert values(spark, tmp_path, spec) == {1: "a", 2: "b", 3: "c", 4: "d"}
    forget_last_commit(tmp_path, spec)
    [replay] = run(spark, spec, str(tmp_path)).steps
    assert (replay.kind, replay.records) == ("replay", 1)

    write(tmp_path / "in" / "p=0", [change("+I", 3, "c", 3), change("+I", 5, "lost", 5)], first=9)
    with pytest.raises(FileChangedError, match=r"p=0/0009\.jsonl with \d+ bytes, read with \d+"):
        run(spark, spec, str(tmp_path))
    assert refresh(spark, spec, str(tmp_path)).totals["records"] == 5
    assert values(spark, tmp_path, spec)[5] == "lost"


@pytest.mark.grid
def test_source_with_nothing_that_matches_is_said_and_still_expires(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]), ttl="1d", order=BY_SEQ)
    other = spec.model_copy(update={"source": spec.source.model_copy(update={"pattern": ["*.csv"]})})
    assert "what does not match: 0000.jsonl." in run(spark, other, str(tmp_path)).nothing_matched
    assert run(spark, spec, str(tmp_path)).nothing_matched is None
    assert run(spark, spec, str(tmp_path)).nothing_matched is None, "nothing new is no fault"
    assert values(spark, tmp_path, spec) == {1: "a"}


def test_run_that_has_ended_is_not_held_by_its_session(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(spark, spec, str(tmp_path))
    gc.collect()
    held = [each for each in gc.get_objects() if isinstance(each, Stepper)]
    assert [each.spec.name for each in held if each.plan.root == str(tmp_path)] == []


@pytest.mark.grid
def test_value_under_the_old_key_of_a_row_is_found_in_a_later_run(spark, tmp_path):
    def event(op, lsn, before=None, after=None, ts_ms=0):
        return json.dumps({"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": ts_ms}})

    moved = event("u", 20, {"id": 1}, {"id": 2, "v": "__debezium_unavailable_value"}, DAY_MS * 3 // 2)
    gone = event("d", 5, {"id": 9}, ts_ms=DAY_MS * 3 // 4)
    spec = plain_spec(
        write(tmp_path / "in", [moved, gone]),
        format={"type": "debezium"},
        order={"sequence": ["_lsn"]},
        schema="id BIGINT, v STRING",
        ttl={"ttl": "1d", "time_characteristic": "EVENT_TIME"},
    )
    assert run(spark, spec, str(tmp_path)).totals["waiting"] == 1
    write(tmp_path / "in", [event("c", 30, None, {"id": 3, "v": "new"}, 2 * DAY_MS)], first=1)
    assert [step.kind for step in run(spark, spec, str(tmp_path)).steps] == ["batch", "tick"]
    assert values(spark, tmp_path, spec) == {2: None, 3: "new"}
    write(tmp_path / "in", [event("c", 10, None, {"id": 1, "v": "found"})], first=2)
    assert run(spark, spec, str(tmp_path)).totals["filled"] == 1
    assert values(spark, tmp_path, spec) == {2: "found", 3: "new"}, "1 moved on after it was found"


def test_file_that_is_cut_off_stops_the_run_and_is_read_when_whole(spark, tmp_path):
    whole = gzip.compress(b"".join(change("+I", n, "a", n).encode() + b"\n" for n in range(1000)))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0000.jsonl.gz").write_bytes(whole[:-100])
    spec = plain_spec(tmp_path / "in")
    with pytest.raises(SourceReadError, match=r"0000\.jsonl\.gz' cannot be read"):
        run(spark, spec, str(tmp_path))
    (tmp_path / "in" / "0000.jsonl.gz").write_bytes(whole)
    run(spark, spec, str(tmp_path))
    assert len(values(spark, tmp_path, spec)) == 1000


@pytest.mark.grid  # without Spark: tests/ledger/test_lease.py; of a job: tests/operations/test_jobs.py
def test_second_run_is_refused_by_the_lease_which_names_the_holder(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    ledger = Plan.under(str(tmp_path), spec).at("ledger")
    with Lease(ledger, spec.name, 60), pytest.raises(LeaseHeldError, match="is being run by process"):
        run(spark, spec, str(tmp_path))
    run(spark, spec, str(tmp_path))
    assert values(spark, tmp_path, spec) == {1: "a"}


@pytest.mark.grid  # by a signal: test_cli.py
def test_run_that_is_stopped_ends_after_its_step_and_goes_on_later(spark, tmp_path):
    spec = plain_spec(write(tmp_path / "in", *[[change("+I", n, "a", n)] for n in range(4)]))
    stop = threading.Event()
    stopped = run(spark, spec, str(tmp_path), on_progress=lambda step: stop.set(), stop=stop)
    assert len(stopped.steps) == 1
    rest = run(spark, spec, str(tmp_path))
    assert len(stopped.steps) + len([s for s in rest.steps if s.kind == "batch"]) == 4
    assert len(values(spark, tmp_path, spec)) == 4


@pytest.mark.grid
def test_status_tells_where_a_pipeline_stands_without_spark(spark, tmp_path):
    extra = json.dumps({"p": 0, "n": 9, "kind": "+I", "row": {"id": 9, "v": "z", "seq": 9, "colour": "red"}})
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), extra]))
    run(spark, spec, str(tmp_path))
    found = status(spec, str(tmp_path))
    assert (found.step, found.records, found.ignored_columns) == (1, 2, ("colour",))
    assert "columns not in the schema: colour" in found.text()
