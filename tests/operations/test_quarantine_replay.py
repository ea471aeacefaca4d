"""Replay on disk, without Spark: what is good by now is applied once, what is not stays."""

import json

import pytest
from crashes.disk import DiskPipeline
from frame.interrupting import killed_before
from hypothesis import given, settings
from hypothesis import strategies as st
from local.quarantine_support import by_seq, commits, context_of, held, mended_as, raws, replay, root_of
from local.support import change, envelope, plain, record, spec
from operating import act
from oracles.reference import fold_log, read_event

from ebbtide import MaterializedView, StatefulPipeline
from ebbtide.delta import Log, Snapshot, write_files
from ebbtide.errors import ConfigError, SpecChangedError
from ebbtide.inspect import QuarantinedRecord
from ebbtide.ledger import Cause, writer_of
from ebbtide.operations import maintain
from ebbtide.operations._quarantine.redecoding import redecoded
from ebbtide.tables import QuarantineTable, Selection
from ebbtide.testing import MemoryPipeline

GOOD = change("+I", id=1, n=1, seq=1)
NO_N = json.dumps({"kind": "+I", "row": {"id": 2, "seq": 2}})
A_RECORD = '{"origin": {"source": ..., "partition": ..., "position": ...}, "raw": "the record"}'
NO_JSON = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
WITH_DEFAULT = by_seq("id BIGINT NOT NULL, n INT DEFAULT 7, seq INT")


def ids(pipeline):
    return [row["id"] for row in pipeline.rows()]


def test_records_that_a_mended_spec_reads_are_applied_and_leave(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, NO_N, "{"])
    before = commits(disk)
    plan = replay(disk, WITH_DEFAULT, action="plan", now_ms=0)
    assert (plan["replayed"], [kept["reason"] for kept in plan["kept"]], plan.step) == (1, ["bad_json"], None)
    assert "the same with '--apply'." in plan.text()
    assert commits(disk) == before, "a plan has no effects"
    assert ids(disk) == [1]

    report = replay(disk, WITH_DEFAULT)
    assert (report["replayed"], report.step, report["counts"]["inserted"]) == (1, 2, 1)
    assert "Done in step 2: 1 inserted." in report.text()
    assert disk.rows() == [{"id": 1, "n": 1, "seq": 1}, {"id": 2, "n": 7, "seq": 2}]
    assert raws(disk) == [b"{"]
    facts = disk.head.facts
    assert (facts.cause.what, facts.decision.removed) == ("quarantine_replay", {"replayed": 1})
    assert (facts.read.records, facts.read.quarantined) == (0, 0), "the step that met them has counted them"
    assert not (tmp_path / "t" / "staged").exists()

    again = replay(disk, WITH_DEFAULT)
    assert (again["replayed"], again.step) == (0, None)
    assert disk.head.facts == facts


def test_spec_that_does_not_fit_the_state_is_refused_by_plan_and_replay(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, NO_N])
    other = by_seq("id BIGINT NOT NULL, n BIGINT DEFAULT 7, seq INT")
    with pytest.raises(SpecChangedError):
        replay(disk, other, action="plan", now_ms=0)
    with pytest.raises(SpecChangedError):
        replay(disk, other)
    assert raws(disk) == [NO_N.encode()]


def test_pipeline_without_a_quarantine_has_nothing_to_replay(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    for step in (None, [GOOD]):
        if step is not None:
            disk.step(step)
        for action in ("plan", "apply"):
            assert act("quarantine.replay", action, context_of(disk)).text() == "t: no quarantined record fits."


def test_record_that_is_still_bad_stays_with_the_reason_that_it_has_now(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, json.dumps({"kind": "+I", "row": {"id": None, "seq": 2}})])
    [before] = held(disk)
    report = replay(disk, WITH_DEFAULT, now_ms=1000)
    [after] = held(disk)
    assert (before["reason"], after["reason"]) == ("missing_column", "null_key")
    changed = {"reason", "detail"}
    assert {k: v for k, v in after.items() if k not in changed} == {k: v for k, v in before.items() if k not in changed}
    assert [kept["reason"] for kept in report["kept"]] == ["null_key"]
    assert disk.head.facts.decision.removed == {"replayed": 0}
    assert replay(disk, WITH_DEFAULT).step is None, "nothing has changed since"


def test_selection_says_which_records_are_meant(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    for number in (2, 3, 4):
        disk.step([change("+I", id=number, seq=number), "{"])
    replay(disk, WITH_DEFAULT, reasons=["bad_json"])
    assert ids(disk) == []
    replay(disk, WITH_DEFAULT, steps=[2])
    assert ids(disk) == [3]
    replay(disk, WITH_DEFAULT, reasons=["missing_column"], limit=1)
    assert ids(disk) == [2, 3], "the oldest first"


def test_records_of_one_file_leave_one_by_one(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([change("+I", id=number, seq=number) for number in (1, 2, 3)])
    for number in (1, 2, 3):
        replay(disk, WITH_DEFAULT, limit=1)
        assert (ids(disk), len(raws(disk))) == (list(range(1, number + 1)), 3 - number)
    assert Snapshot.read(disk.plan.quarantine.path).files == {}, "a file without any left goes whole"


def test_replay_emits_what_the_records_would_have(tmp_path):
    of = plain("id BIGINT NOT NULL, n INT", materializer={"emission": "every"})
    disk = DiskPipeline(of, tmp_path)
    disk.step(["{", "["])
    lines = change("+I", id=1, n=1), change("-D", id=1, n=1)
    replay(disk, mended=mended_as(disk, *lines), accept_late=True)
    changelog = disk.plan.changelog
    emitted = Snapshot.read(changelog.path).rows(changelog.schema).to_pylist()
    assert [(row["_kind"], row["id"]) for row in emitted] == [("+I", 1), ("-D", 1)]


def test_function_takes_a_replayed_record_when_it_is_replayed(tmp_path):
    def seen(id_, at):
        return json.dumps({"kind": "+I", "row": {"id": id_, "at": at}})

    of = StatefulPipeline(
        name="t",
        source={"path": "in", "records": "value"},
        format={"type": "plain"},
        schema="id BIGINT NOT NULL, at TIMESTAMP NOT NULL",
        key=["id"],
        event_time="at",
        function="ebbtide.functions:LastSeen",
    )
    disk = DiskPipeline(of, tmp_path)
    disk.step([seen(1, "1970-01-01T00:00:00Z"), seen(2, "yesterday")])
    mended = mended_as(disk, seen(2, "1970-01-01T00:00:00Z"))
    with pytest.raises(ConfigError, match="Late: 1 record"):
        replay(disk, mended=mended)
    replay(disk, mended=mended, accept_late=True)
    assert (ids(disk), raws(disk)) == ([1, 2], [])


def test_head_of_a_record_is_never_replayed_and_a_mended_one_is(tmp_path):
    long = json.dumps({"kind": "+I", "row": {"id": 2, "n": 2, "seq": 2}}) + " " * 100
    disk = DiskPipeline(by_seq(quarantine={"max_record_bytes": 60}), tmp_path)
    disk.step([change("+I", id=1, n=1, seq=1), long[:61]])
    assert [row["reason"] for row in held(disk)] == ["too_large"]
    wider = by_seq()
    report = replay(disk, wider)
    assert report.step is None
    assert report["kept"][0]["detail"] == "only its head was kept; it needs a corrected record"
    assert "it needs a corrected record" in report.text()
    replay(disk, wider, mended=mended_as(disk, long))
    assert (ids(disk), raws(disk)) == ([1, 2], [])


def test_whole_record_is_never_called_a_head(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([NO_N])
    assert replay(disk, by_seq(quarantine={"max_record_bytes": 10}))["kept"][0]["reason"] == "too_large"
    assert [row["reason"] for row in held(disk)] == ["missing_column"]
    assert replay(disk, WITH_DEFAULT)["replayed"] == 1


def test_mended_record_that_is_bad_leaves_the_quarantined_one_as_it_was(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(["{", "["])
    before = held(disk)
    report = replay(disk, mended=mended_as(disk, NO_N))
    assert [kept["reason"] for kept in report["kept"]] == ["missing_column"]
    assert held(disk) == before
    report = replay(disk, mended=mended_as(disk, change("+I", id=1, n=1, seq=1)) | {("nowhere", 0, 0): "{}"})
    assert (report["replayed"], report["not_found"]) == (1, 1)
    assert "since no selected record has their origin: 1 corrected record." in report.text()
    assert raws(disk) == [b"["], "what no corrected record stands for is not tried"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n{", f"Line 2 of 'FILE' is not a corrected record. Got: JSONDecodeError: {NO_JSON}. Allowed: {A_RECORD}."),
        (
            '{"raw": "x"}',
            f"Line 1 of 'FILE' is not a corrected record. Got: KeyError: 'origin'. Allowed: {A_RECORD}.",
        ),
        (
            '{"origin": {"source": "f", "partition": 0, "position": 1}, "raw": null}',
            "Line 1 of 'FILE' has no record. Got: raw: None. Allowed: the corrected record as text.",
        ),
        (
            '{"origin": {"source": "f", "partition": 0, "position": 1}, "raw": " "}',
            "Line 1 of 'FILE' has no record. Got: raw: ' '. Allowed: the corrected record as text.",
        ),
        (
            '{"origin": {"source": "f", "partition": 0, "position": 1}, "raw": "x"}\n' * 2,
            "Line 2 of 'FILE' has the origin of an earlier one. Got: ('f', 0, 1).",
        ),
        (None, "The file of corrected records does not exist. Got: FILE."),
    ],
)
def test_file_of_what_is_no_mended_record_is_refused_by_line(tmp_path, content, said):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(["{"])
    mended = tmp_path / "corrected.jsonl"
    if content is not None:
        mended.write_text(content)
    with pytest.raises(ConfigError) as raised:
        replay(disk, action="plan", records=str(mended))
    assert str(raised.value) == said.replace("FILE", str(mended))


# A crash between the decision and what follows from it.


def decided(disk):
    """Decide a replay, and get no further."""
    with killed_before("the sink is written"):
        replay(disk, WITH_DEFAULT)


def finish(disk):
    """Have the next job finish it."""
    maintain(disk, WITH_DEFAULT, root_of(disk), "cleanup")
    disk.reload()


def test_replay_that_was_decided_is_finished_once(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, NO_N, "{"])
    decided(disk)
    assert (ids(disk), len(raws(disk))) == ([1], 2), "decided, and not published"
    _, facts = disk.plan.state.last()
    finish(disk)
    assert (ids(disk), raws(disk)) == ([1, 2], [b"{"])
    assert disk.head.facts == facts
    versions = commits(disk)
    finish(disk)
    assert {name: commits(disk)[name] for name in ("state", "sink", "quarantine")} == {
        name: versions[name] for name in ("state", "sink", "quarantine")
    }


def join_files(disk):
    """The effect of another client's OPTIMIZE on the quarantine."""
    path = disk.plan.quarantine.path
    snapshot = Snapshot.read(path)
    files = list(snapshot.files.values())
    adds = write_files(
        path, snapshot.rows(disk.plan.quarantine.schema), QuarantineTable.BOUNDED, rows_per_file=100, data_change=False
    )
    writer_of(path).join(snapshot, files, adds, {})


def test_files_that_somebody_joins_between_decision_and_publish_lose_the_same_records(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, NO_N, "{", json.dumps({"kind": "+I", "row": {"id": None, "seq": 2}})])
    disk.step([change("+I", id=3, seq=3)])
    decided(disk)
    join_files(disk)
    finish(disk)
    assert ids(disk) == [1, 2, 3]
    assert sorted((row["reason"], row["step"]) for row in held(disk)) == [("bad_json", 1), ("null_key", 1)]
    join_files(disk)
    assert len(held(disk)) == 2


def test_replay_of_rows_that_wait_for_a_value_of_another_key_keeps_them_waiting(tmp_path):
    of = spec("id BIGINT NOT NULL, notes STRING")
    disk, memory = DiskPipeline(of, tmp_path), MemoryPipeline(of)
    unsent = "__debezium_unavailable_value"
    moved = record(envelope("u", 30, before={"id": 1, "notes": None}, after={"id": 2, "notes": unsent}), 1)
    created = record(envelope("c", 10, after={"id": 1, "notes": "kept"}), 0)
    disk.step(["{", "["])
    replay(disk, mended=mended_as(disk, moved))
    replay(disk, mended=mended_as(disk, created))
    memory.step([moved])
    memory.step([created])
    assert disk.rows() == memory.rows() == [{"id": 2, "notes": "kept"}]


# By sequence: as if they had been good.

EVENTS = st.lists(st.tuples(st.sampled_from("cud"), st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=12)
SPOILT = ("{", "other op", "no source")


def spoil(line, how):
    """Make a record bad; of the last two kinds its place can still be read."""
    if how == "{":
        return line[:-9]
    kafka = json.loads(line)
    value = json.loads(kafka["value"])
    if how == "other op":
        value["op"] = "?"
    else:
        del value["source"]
    return json.dumps(kafka | {"value": json.dumps(value)})


@settings(max_examples=5)
@given(EVENTS, st.data())
def test_by_sequence_the_sink_is_as_if_the_records_had_been_good(tmp_path_factory, events, data):
    lines = []
    for at, (op, key, n) in enumerate(events):
        side = {"before" if op == "d" else "after": {"id": key, "n": n}}
        lines.append(record(envelope(op, 10 * at + 10, **side), at))
    disk = DiskPipeline(spec(), tmp_path_factory.mktemp("disk"))
    todo = data.draw(st.permutations(lines))
    good_of = {}
    while todo or good_of:
        size = data.draw(st.integers(1, 4))
        part, todo = todo[:size], todo[size:]
        arriving = []
        for line in part:
            how = data.draw(st.sampled_from([None, *SPOILT]))
            bad = line if how is None else spoil(line, how)
            arriving.append(bad)
            if how is not None:
                good_of[bad.encode()] = line
        if arriving:
            disk.step(arriving)
        assert sorted(raws(disk)) == sorted(good_of)
        if good_of and (not todo or data.draw(st.booleans())):
            most = data.draw(st.integers(1, len(good_of)))
            chosen = [row["raw"] for row in held(disk, Selection(limit=most))]
            replay(disk, mended=mended_as(disk, *(good_of.pop(raw) for raw in chosen)))
    want = fold_log([read_event(line) for line in lines], ["id"])
    assert {(row["id"],): row for row in disk.rows()} == want
    assert raws(disk) == []


# By arrival: within the grace, and never twice.

ARRIVAL = plain("id BIGINT NOT NULL, n INT", materializer={"retraction_grace": "1m"})


def test_by_arrival_a_late_record_is_refused_unless_accepted_and_one_within_the_grace_is_not(tmp_path):
    disk = DiskPipeline(ARRIVAL, tmp_path)
    disk.step(["{", "["], now_ms=0)
    disk.step([change("-D", id=1, n=1)], now_ms=10_000)
    one, two = change("+I", id=1, n=1), change("+I", id=2, n=2)
    replay(disk, mended=mended_as(disk, one), now_ms=59_000)
    assert (ids(disk), len(raws(disk))) == ([], 1), "the retraction had waited for it"

    late = mended_as(disk, two)
    plan = replay(disk, ARRIVAL, action="plan", now_ms=60_000, mended=late)
    assert plan["late"] == 1
    assert "the same with '--apply --accept-late'." in plan.text()
    before = commits(disk)
    with pytest.raises(ConfigError, match=r"Late: 1 record.*Allowed: --accept-late.*ebbtide refresh"):
        replay(disk, mended=late, now_ms=60_000)
    disk.reload()
    assert commits(disk)["state"] == before["state"]
    assert len(raws(disk)) == 1
    replay(disk, mended=late, now_ms=60_000, accept_late=True)
    assert (ids(disk), raws(disk)) == ([2], [])


def test_by_arrival_a_record_from_before_a_truncate_is_late(tmp_path):
    of = spec(order="arrival", materializer={"retraction_grace": "1m"})
    disk = DiskPipeline(of, tmp_path)
    disk.step(["{"])
    disk.step([record(envelope("t", 5), 5)])
    disk.step(["["])
    lines = [record(envelope("c", n, after={"id": n, "n": n}), n) for n in (1, 9)]
    plan = replay(disk, of, action="plan", now_ms=0, mended=mended_as(disk, *lines))
    assert (plan["replayed"], plan["late"]) == (2, 1)


def test_by_arrival_a_truncate_is_not_replayed(tmp_path):
    of = spec(order="arrival", materializer={"retraction_grace": "1m"})
    disk = DiskPipeline(of, tmp_path)
    disk.step(["{", record(envelope("c", 2, after={"id": 2, "n": 2}), 2)])
    report = replay(disk, mended=mended_as(disk, record(envelope("t", 1), 1)))
    assert [kept["reason"] for kept in report["kept"]] == ["truncate"]
    assert ids(disk) == [2]


def kafka(offset, key, *, op="c"):
    return record(envelope(op, offset, after={"id": key, "n": offset}), offset)


@pytest.fixture
def by_arrival(tmp_path):
    return DiskPipeline(spec(order="arrival"), tmp_path)


def unmatched_or_twice(disk):
    """How many rows the state holds: a record applied twice is in it twice."""
    state = disk.plan.state
    return sum(row["_entry"] == "row" for row in state.snapshot().rows(state.schema).to_pylist())


def test_record_whose_place_was_read_when_it_was_set_aside_is_applied_once(by_arrival):
    bad = kafka(7, 1, op="?")
    by_arrival.step([bad])
    assert by_arrival.head.facts.frontier.offsets == {"t/0": [(7, 7)]}
    replay(by_arrival, mended=mended_as(by_arrival, kafka(7, 1)), accept_late=True)
    assert (ids(by_arrival), unmatched_or_twice(by_arrival)) == ([1], 1)

    by_arrival.step([bad, kafka(7, 1)])
    assert raws(by_arrival) == [], "delivered again, and known by its place"
    assert by_arrival.metrics["redelivered"] == 1
    assert (ids(by_arrival), unmatched_or_twice(by_arrival)) == ([1], 1)


def test_record_that_came_good_at_its_place_meanwhile_is_not_applied_again(by_arrival):
    by_arrival.step(["{"])
    by_arrival.step([kafka(7, 1)])
    report = replay(by_arrival, mended=mended_as(by_arrival, kafka(7, 1)), accept_late=True)
    assert (report["counts"]["redelivered"], raws(by_arrival)) == (1, [])
    assert unmatched_or_twice(by_arrival) == 1


def test_replayed_record_that_names_its_place_is_known_when_it_is_delivered_again(by_arrival):
    by_arrival.step(["{"])
    replay(by_arrival, mended=mended_as(by_arrival, kafka(7, 1)), accept_late=True)
    by_arrival.step([kafka(7, 1)])
    assert (by_arrival.metrics["redelivered"], unmatched_or_twice(by_arrival)) == (1, 1)


def test_place_of_a_mended_record_that_is_bad_is_not_taken_for_read(by_arrival):
    by_arrival.step(["{", "["])
    replay(by_arrival, mended=mended_as(by_arrival, kafka(7, 1, op="?"), kafka(8, 2)), accept_late=True)
    by_arrival.step([kafka(7, 1)])
    assert (ids(by_arrival), len(raws(by_arrival))) == ([1, 2], 1)


@pytest.fixture
def upserts(tmp_path):
    """Two keys of which bad records came, each between two good ones: one was written again since, one was deleted."""
    disk = DiskPipeline(plain("id BIGINT NOT NULL, n INT", order="upsert"), tmp_path)
    disk.step([change("+I", id=1, n=1), change("+I", id=2, n=1), change("+I", id=3, n=1), "{", "[", "("])
    disk.step([change("+U", id=1, n=9), change("-D", id=2)])
    return disk


def test_of_upserts_a_replayed_record_takes_its_place_among_the_writes_of_its_key(upserts):
    late = [change("+U", id=id_, n=5) for id_ in (1, 2, 3)]

    report = replay(upserts, mended=mended_as(upserts, *late))

    assert upserts.rows() == [{"id": 1, "n": 9}, {"id": 3, "n": 5}], "a newer write, and a newer delete, stay"
    assert (report["replayed"], report["late"], report["counts"]["updated"]) == (3, 0, 1)
    assert report["counts"]["superseded"] == 2
    upserts.step([change("+U", id=3, n=6)])
    assert upserts.rows() == [{"id": 1, "n": 9}, {"id": 3, "n": 6}]


def test_of_upserts_a_replayed_truncate_empties_what_was_written_before_it(tmp_path):
    disk = DiskPipeline(spec(order="upsert"), tmp_path)
    disk.step([kafka(1, 1), kafka(2, 2), "{"])
    disk.step([kafka(4, 2)])

    replay(disk, mended=mended_as(disk, record(envelope("t", 1), 3)))

    assert disk.rows() == [{"id": 2, "n": 4}]


def test_replayed_records_apply_in_the_order_in_which_they_came(tmp_path):
    disk = DiskPipeline(ARRIVAL, tmp_path)
    disk.step(["{", "["])
    disk.step(["]"])
    mended = mended_as(disk, *(change("+U", id=1, n=n) for n in (1, 2, 3)))
    replay(disk, mended=mended, now_ms=0)
    assert disk.rows() == [{"id": 1, "n": 3}]


def test_cleanup_follows_on_a_replay_that_was_not_finished(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([GOOD, NO_N])
    decided(disk)
    maintain(disk, WITH_DEFAULT, root_of(disk), "compaction")
    assert (ids(disk), raws(disk)) == ([1, 2], [])
    assert Log(disk.plan.quarantine.path).last_step() == 2


def test_what_somebody_asks_for_is_planned_or_done(tmp_path):
    disk = DiskPipeline(ARRIVAL, tmp_path)
    disk.step(["{", "["], now_ms=0)
    first, second = mended_as(disk, "", "")
    mended = {second: change("+I", id=7, n=7), ("nowhere", 0, 0): change("+I", id=8, n=8)}
    asked = {"mended": mended, "now_ms": 60_000}

    planned = replay(disk, action="plan", **asked)
    assert [planned[name] for name in ("replayed", "late", "not_found", "step")] == [1, 1, 1, None]
    with pytest.raises(ConfigError, match="Late: 1 record"):
        replay(disk, **asked)
    done = replay(disk, **asked, accept_late=True)
    assert (done["replayed"], done["not_found"], done.step) == (1, 1, 2)
    assert (disk.rows(), raws(disk)) == ([{"id": 7, "n": 7}], [b"{"])
    assert disk.head.facts.now_ms == 60_000
    none_selected = replay(disk, action="plan", mended=mended, steps=[9])
    assert (none_selected["replayed"], none_selected["not_found"]) == (0, 2)
    assert (
        replay(disk, action="plan", mended={first: "{"}, steps=[9]).text().startswith("t: no quarantined record fits.")
    )


def test_record_of_a_replay_is_found_by_its_place_among_those_tried(tmp_path):
    """As where a transform fails on its row, which Spark evaluates."""
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step(["{", NO_N, "["])
    tables = type(disk.plan).under(root_of(disk), WITH_DEFAULT)
    records = tables.quarantine.records(Selection())
    attempt = redecoded(tables, records, {}, step=2, wall_ms=0, erased=None, log_begins=())
    staged = attempt.staged(str(tmp_path / "staged"))
    origin = held(disk)[1]["origin"]
    assert staged.find([(2, 1, 0), (2, 3, 0)]) == {(2, 1, 0): (origin, NO_N.encode())}
    assert staged.find([]) == {}


def test_bad_rows_of_a_view_are_no_records_to_replay(make):
    pipeline = make()
    pipeline.spec = MaterializedView(name="v", query="SELECT id FROM t", inputs=["t"], schema="id BIGINT", key=["id"])
    pipeline.plan.state.create()
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what="batch")), [])
    with pytest.raises(ConfigError) as raised:
        pipeline.act("quarantine.replay", "plan")
    assert str(raised.value) == (
        "'v' is a materialized view: its bad rows are not records. Correct its query, or the rows of its tables; 'ebbtide quarantine drop'"
        " forgets them."
    )


def test_report_names_some_of_the_records_that_stay_and_counts_the_others(tmp_path):
    disk = DiskPipeline(ARRIVAL, tmp_path)
    disk.step(["{"] * 24, now_ms=0)
    origins = [row["origin"] for row in held(disk)]
    good = [change("+I", id=number, n=number) for number in (1, 2)]
    nowhere = {("nowhere", 0, position): "{}" for position in range(3)}
    mended = mended_as(disk, *["["] * 22, *good) | nowhere
    lines = replay(disk, action="plan", mended=mended, now_ms=60_000).text().splitlines()
    assert lines[0] == "t: 2 records to replay, 22 left."
    shown = [f"  stays: step 1, {QuarantinedRecord.place_text(origin)}: bad_json: " for origin in origins[:20]]
    assert [line[: len(start)] for line, start in zip(lines[1:21], shown, strict=True)] == shown
    assert lines[21:23] == [
        "  ... and 2 more (--json has them all)",
        "  Left out, since no selected record has their origin: 3 corrected records.",
    ]
    assert lines[23] == (
        "  Late: 2 records. By arrival they apply now, after all later records, so the sink may differ from a result without bad"
        " records. It is the same only within materializer.retraction_grace, and without a TRUNCATE since."
    )
    assert lines[24:] == ["  To do it: the same with '--apply --accept-late'."]
    all_of_them = replay(disk, action="plan", mended=mended_as(disk, *["["] * 20))
    assert len(all_of_them.text().splitlines()) == 21, "nothing is to be done"


def test_replay_of_what_newer_changes_have_superseded_changes_no_table(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([change("+I", id=2, n=5, seq=5), NO_N])
    done = replay(disk, WITH_DEFAULT)
    assert done.text() == "t: 1 record replayed, 0 left.\n  Done in step 2: the tables do not change."
    assert (done["counts"]["superseded"], disk.rows()) == (1, [{"id": 2, "n": 5, "seq": 5}])
