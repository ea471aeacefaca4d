"""What a step promises: decided once, finished after a crash, refused where it does not fit; without Spark, and on Spark in the grid."""

import gc
import gzip
import json

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, write
from clusters.spark_support import table as table_on_spark
from frame.limits import limits, set_limits
from oracles.judging import verdict_of
from servers.store_support import line, stateful

from ebbtide import refresh, run
from ebbtide.checks import checks_of
from ebbtide.delta import Snapshot
from ebbtide.errors import (
    LateFileError,
    SourceReadError,
    SpecChangedError,
    StatefulFunctionError,
    StoredFormatError,
)
from ebbtide.inspect import status
from ebbtide.operations import maintain
from ebbtide.runtime import Plan, Stepper, system_clock

DAY_MS = 86_400_000
BY_SEQ = {"sequence": ["seq"]}


@pytest.fixture(params=["local", pytest.param("spark", marks=[pytest.mark.grid, pytest.mark.spark])])
def session(request):
    """What runs a pipeline; on Spark steps of a few changes are dealt out to tasks."""
    if request.param == "local":
        with limits():
            yield LOCAL
        return
    set_limits(rows_in_driver=2)
    yield request.getfixturevalue("spark")


def table(session, root, spec, name="sink"):
    """A table's rows, read by what wrote them."""
    if session is not LOCAL:
        return table_on_spark(session, root, spec, name)
    plan = Plan.under(str(root), spec)
    columns = {"sink": plan.sink.schema, "changelog": plan.changelog.schema, "quarantine": plan.quarantine.schema}
    columns["state"] = plan.state.schema
    return Snapshot.read(plan.at(name)).rows(columns[name]).to_pylist()


def sink(session, root, spec):
    """The sink's rows without the reserved columns, in order of key."""
    rows = [{name: row[name] for name in spec.sink_table.columns.names} for row in table(session, root, spec)]
    return sorted(rows, key=lambda row: [row[name] for name in spec.sink_key])


def values(session, root, spec):
    return {row["id"]: row["v"] for row in sink(session, root, spec)}


def test_first_run_of_an_empty_source_makes_empty_tables(session, tmp_path):
    spec = plain_spec(write(tmp_path / "in"))
    assert "no step yet" in status(spec, str(tmp_path)).text()
    assert run(session, spec, str(tmp_path)).totals["records"] == 0
    assert run(session, spec, str(tmp_path)).steps == []
    assert sink(session, tmp_path, spec) == []
    assert status(spec, str(tmp_path)).read.records == 0


def test_source_folder_that_is_missing_is_refused_before_tables_are_made(session, tmp_path):
    spec = plain_spec(tmp_path / "nowhere")
    with pytest.raises(SourceReadError, match="does not exist"):
        run(session, spec, str(tmp_path))
    assert not (tmp_path / spec.name).exists()


def test_idle_run_ends_and_still_expires(session, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]), ttl="30d", max_clock_jump="366d")
    run(session, spec, str(tmp_path))
    later = run(session, spec, str(tmp_path), clock=lambda: system_clock() + 29 * DAY_MS)
    assert later.steps == []
    much_later = run(session, spec, str(tmp_path), clock=lambda: system_clock() + 31 * DAY_MS)
    assert [(step.kind, step.metrics) for step in much_later.steps] == [("tick", {"expired": 1, "orphaned": 1})]
    assert values(session, tmp_path, spec) == {1: "a"}, "on expiry the sink keeps the row"
    write(tmp_path / "in", [change("-D", 1, "a", 1).replace('"n": 1', '"n": 2')], first=1)
    after = run(session, spec, str(tmp_path))
    assert after.totals["unmatched"] == 1
    assert after.steps[0].clock.now_ms == much_later.steps[0].clock.now_ms, "the clock never goes back"


def test_live_entry_that_expired_is_stood_in_for_by_the_sink(session, tmp_path):
    ttl = {"ttl": "1d", "expire_live": True}
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 5)]), order=BY_SEQ, ttl=ttl)
    run(session, spec, str(tmp_path))
    tick = run(session, spec, str(tmp_path), clock=lambda: system_clock() + 2 * DAY_MS)
    assert tick.totals["expired"] == 1
    write(tmp_path / "in", [change("+U", 1, "old", 4)], [change("+U", 1, "new", 6)], first=1)
    steps = run(session, spec, str(tmp_path)).steps
    assert [step.metrics.get("superseded", 0) for step in steps] == [1, 0]
    assert values(session, tmp_path, spec) == {1: "new"}


def test_bad_records_go_to_the_quarantine_once(session, tmp_path):
    bad = ["{", change("?", 1, "x", 3), change("+I", None, "x", 4), change("+I", 1, 7, 5)]
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1), *bad, change("+I", 2, "b", 6)]))
    summary = run(session, spec, str(tmp_path))
    assert summary.totals["quarantined"] == 4
    assert run(session, spec, str(tmp_path)).steps == []
    rows = table(session, tmp_path, spec, "quarantine")
    assert sorted((row["reason"], row["raw"].decode()) for row in rows) == sorted(
        zip(("bad_json", "unknown_kind", "null_key", "wrong_type"), bad, strict=True)
    )
    assert all(row["origin"]["source"] is not None and row["detail"] and row["step"] == 1 for row in rows)
    assert values(session, tmp_path, spec) == {1: "a", 2: "b"}
    write(tmp_path / "in", bad, first=1)
    again = run(session, spec, str(tmp_path))
    assert (again.totals["quarantined"], again.totals["redelivered"]) == (1, 3), "a line that is no JSON names no place"
    assert Plan.under(str(tmp_path), spec).state.last()[1].frontier.offsets == {"/0": [(1, 1), (3, 6)]}
    refresh(session, spec, str(tmp_path))
    assert len(table(session, tmp_path, spec, "quarantine")) == 5


def test_file_below_one_already_read_is_refused_by_name(session, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)], first=5))
    run(session, spec, str(tmp_path))
    write(tmp_path / "in", [change("+I", 2, "b", 2)], first=3)
    with pytest.raises(LateFileError, match=r"0003\.jsonl"):
        run(session, spec, str(tmp_path))
    (tmp_path / "in" / "0003.jsonl").rename(tmp_path / "in" / "0006.jsonl")
    (tmp_path / "in" / "0005.jsonl").unlink()
    run(session, spec, str(tmp_path))
    assert values(session, tmp_path, spec) == {1: "a", 2: "b"}


def test_run_that_has_ended_is_not_held_by_its_session(session, tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]))
    run(session, spec, str(tmp_path))
    gc.collect()
    held = [each for each in gc.get_objects() if type(each) is Stepper]
    assert [each.spec.name for each in held if each.plan.root == str(tmp_path)] == []


def test_file_that_is_cut_off_stops_the_run_and_is_read_when_whole(session, tmp_path):
    whole = gzip.compress(b"".join(change("+I", n, "a", n).encode() + b"\n" for n in range(1000)))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0000.jsonl.gz").write_bytes(whole[:-100])
    spec = plain_spec(tmp_path / "in")
    with pytest.raises(SourceReadError, match=r"0000\.jsonl\.gz' cannot be read"):
        run(session, spec, str(tmp_path))
    (tmp_path / "in" / "0000.jsonl.gz").write_bytes(whole)
    run(session, spec, str(tmp_path))
    assert len(values(session, tmp_path, spec)) == 1000


def make_older(path):
    """Make the stored facts those of a format from before states could be read, which had no checksums either."""
    for file in sorted((path / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            info = action.get("commitInfo", {})
            info.pop("ebbtideChecksum", None)
            if "userMetadata" in info:
                info["userMetadata"] = json.dumps(of_format_0(json.loads(info["userMetadata"])))
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def of_format_0(facts):
    """What every format has had of a step's facts."""
    made_by = {name: facts[name] for name in ("pipeline", "incarnation", "epoch", "step", "code")}
    stands = {"now_ms": facts["frontier"]["clock"]["now_ms"]}
    return {"ebbtide": 0, **made_by, **stands, "state_version": facts["state"]["version"]}


def test_refresh_rebuilds_the_tables_whatever_was_changed(session, tmp_path):
    root, source = str(tmp_path), tmp_path / "in"
    row = {"id": 1, "code": "7", "v": "a", "seq": 1}
    write(source, [json.dumps({"p": 0, "n": 1, "kind": "+I", "row": row}), "{"])
    every = {"emission": "every"}
    first = plain_spec(source, schema="id BIGINT, v STRING, seq INT", materializer=every, ttl="30d")
    run(session, first, root)
    assert len(table(session, tmp_path, first, "changelog")) == 1

    other_key = plain_spec(source, schema="code STRING, v STRING, seq BIGINT", key=["code"], materializer=every)
    with pytest.raises(SpecChangedError, match="ebbtide refresh"):
        run(session, other_key, root)
    refresh(session, other_key, root)
    assert sink(session, tmp_path, other_key) == [{"code": "7", "v": "a", "seq": 1}]
    [emitted] = table(session, tmp_path, other_key, "changelog")
    assert (emitted["code"], "id" in emitted) == ("7", False)

    by_sequence = plain_spec(source, schema="id INT, seq BIGINT", order={"sequence": ["seq"]})
    refresh(session, by_sequence, root)
    assert sink(session, tmp_path, by_sequence) == [{"id": 1, "seq": 1}]
    assert table(session, tmp_path, by_sequence, "changelog") == []

    of = {"path": str(source), "records": "value"}
    given = {"name": "plain", "source": of, "format": {"type": "plain"}, "schema": "v STRING, id INT", "key": ["v"]}
    function = stateful("ebbtide.functions:Deduplicate", **given)
    state = Plan.under(root, function).state.path
    make_older(tmp_path / "plain" / "state")
    with pytest.raises(StoredFormatError, match=r"written by an older Ebbtide\. Got: format 0\. .*ebbtide refresh"):
        run(session, function, root)
    refresh(session, function, root)
    assert sink(session, tmp_path, function) == [{"v": "a", "id": 1}]
    assert len(table(session, tmp_path, function, "quarantine")) == 1
    stored = json.loads(Snapshot.read(f"{root}/plain/sink").metadata["schemaString"])
    nullable = {field["name"]: field["nullable"] for field in stored["fields"]}
    assert (nullable["v"], nullable["id"]) == (False, True)
    assert "`v`" in str(Snapshot.read(state).metadata["configuration"])
    assert run(session, function, root).steps == []

    write(source, [json.dumps({"kind": "+I", "row": {"v": "b", "id": 2}})], first=1)
    run(session, function, root)
    min(source.iterdir()).unlink()
    refresh(session, function, root, accept_loss=True)
    assert sink(session, tmp_path, function) == [{"v": "b", "id": 2}]
    assert not verdict_of(None, Plan.under(root, function), "source_loss").passed


def over(source, function, **more):
    return stateful(function, source={"path": str(source), "records": "value", "max_files_per_step": 1}, **more)


def test_tick_fires_timers_expires_state_and_deletes_from_the_sink(session, tmp_path):
    day = 86_400_000
    ttl = {"seen": {"ttl": "1d", "time_characteristic": "EVENT_TIME"}}
    source = write(tmp_path / "in", [line(1, at=0), line(2, at=5)], [line(2, at=day)], [line(3, at=day + 3)])
    spec = over(source, "ebbtide.functions:LastSeen", event_time="at", ttl=ttl)
    steps = run(session, spec, str(tmp_path)).steps
    assert [step.kind for step in steps] == ["batch", "batch", "batch", "tick"]
    assert (steps[-1].metrics["deleted"], steps[-1].metrics["expired"]) == (1, 1)
    assert [row["id"] for row in sink(session, tmp_path, spec)] == [2, 3]
    assert run(session, spec, str(tmp_path)).steps == [], "nothing more is due"
    tables = Plan.under(str(tmp_path), spec)
    for check in checks_of(tables.spec):
        verdict = verdict_of(None, tables, check.name, clock_ms=0)
        assert verdict.passed, (check.name, verdict.findings)
    report = maintain(session, spec, str(tmp_path), "cleanup")
    assert report["rows_removed"] > 0
    assert {row["id"] for row in table(session, tmp_path, spec, "state") if row["_state"] == "seen"} == {2, 3}


def test_function_that_fails_leaves_nothing_and_is_named(session, tmp_path):
    spec = over(write(tmp_path / "in", [line(1)]), "user_functions:Fails")
    with pytest.raises(StatefulFunctionError, match=r"Fails failed on key \(1,\): KeyError: 'gone'"):
        run(session, spec, str(tmp_path))
    assert table(session, tmp_path, spec, "state") == []
    assert json.dumps(sink(session, tmp_path, spec)) == "[]"


@pytest.mark.demand("ttl-refused")
def test_ttl_switched_on_over_stored_state_is_refused(session, tmp_path):
    source = write(tmp_path / "in", [line(1)])
    spec = over(source, "user_functions:Alarm")
    run(session, spec, str(tmp_path), clock=lambda: 10**13)
    with pytest.raises(SpecChangedError, match="no longer fits its stored state"):
        run(session, over(source, "user_functions:Alarm", ttl={"rang": "1d"}), str(tmp_path))
