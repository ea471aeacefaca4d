"""Backfills: tables built beside those in use are swapped in by one step, whatever the pipeline has done meanwhile."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from frame.interrupting import killed_before
from frame.limits import set_limits
from frame.thinned import thinned
from local import local_run
from local.local_pipeline import up
from local.local_run import HOUR, START
from local.support import change

from ebbtide import MaterializedView
from ebbtide.delta import Writer
from ebbtide.errors import BackfillError, ConfigError, LeaseHeldError, PausedError
from ebbtide.ledger import Lease
from ebbtide.operations._backfill import swap as backfill_swap
from ebbtide.sources import Span
from ebbtide.storage import Location
from ebbtide.tables import _append_table as append_table
from ebbtide.tables import _step_commits as step_commits


def with_steps(make, **fields):
    """A pipeline that has made two steps: a row each of 1, 3, 4 and 5."""
    pipeline = make(**fields)
    pipeline.read(up(1, 1), up(2, 2), up(3, 3))
    pipeline.read(up(4, 4), up(2, 5, "-D"), up(5, 6))
    return pipeline


def test_backfill_is_built_beside_and_changes_nothing(make):
    pipeline = with_steps(make)
    before = pipeline.versions()
    found = pipeline.do("backfill")
    assert (found["start"], found["records"], found["waiting"], found["percent"]) == ("earliest", 6, 0, 100.0)
    assert pipeline.versions() == before
    assert pipeline.is_idle()
    pipeline.read(up(6, 7))
    assert pipeline.act("backfill.status", "plan", START)["waiting"] > 0
    assert pipeline.do("backfill")["records"] == 7


def test_swap_of_a_backfill_that_differs_in_nothing_changes_no_row(make):
    pipeline = with_steps(make)
    rows = pipeline.table("sink", pipeline.plan.sink.schema)
    pipeline.do("backfill")
    report = pipeline.do("swap")
    assert (report["added"], report["changed"], report["deleted"], report.step) == (0, 0, 0, 3)
    assert pipeline.table("sink", pipeline.plan.sink.schema) == rows
    assert (pipeline.last.cause.what, pipeline.last.step) == ("swap", 3)
    assert not Location(pipeline.plan.backfills).exists()
    assert pipeline.is_idle()


@pytest.mark.parametrize("number", thinned(range(7), 6))
def test_swap_that_is_killed_while_it_deletes_the_backfill_is_ended_by_the_next_run(make, monkeypatch, number):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    deletions = iter(range(number))
    delete = Location.delete

    def delete_some(location):
        is_of_backfill = location.startswith(pipeline.plan.backfills)
        if is_of_backfill and next(deletions, None) is None:
            raise InterruptedError
        delete(location)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "delete", delete_some)
        with pytest.raises(InterruptedError):
            pipeline.do("swap")
    pipeline.read(up(6, 7))
    assert not Location(pipeline.plan.backfills).exists()
    assert pipeline.rows() == {1: 1, 3: 3, 4: 4, 5: 6, 6: 7}


def test_swap_gives_the_sink_what_differs_in_one_commit_and_reading_goes_on(make):
    pipeline = make(schema="id BIGINT, n BIGINT, m BIGINT DEFAULT 0")
    pipeline.read(up(1, 1, m=1), up(2, 2, m=1))
    pipeline.read(up(3, 3, m=1), up(1, 4, m=1))
    # Somebody's wrong files are corrected in place of the old ones: the pipeline knows them as read.
    for file in pipeline.source.iterdir():
        file.write_text(file.read_text().replace('"m": 1', '"m": 2').replace('"id": 3', '"id": 9'))
    version = pipeline.plan.sink.version()
    pipeline.do("backfill")
    planned = pipeline.do("swap", applies=False)
    assert (planned["added"], planned["changed"], planned["deleted"], planned.step) == (1, 2, 1, None)
    assert planned["keys"] == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 9}]
    assert planned.text().startswith(
        "t: backfill of 4 records: 1 row added, 2 changed, 1 deleted.\n    id: 1\n    id: 2\n    id: 3\n    id: 9\n"
    )
    assert planned.text().endswith("\n  To do it: 'ebbtide backfill swap --apply'.")
    assert pipeline.plan.sink.version() == version
    report = pipeline.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (1, 2, 1)
    assert "\n  Done in step 3.\n" in report.text()
    assert pipeline.plan.sink.version() == version + 1
    assert pipeline.rows() == {1: 4, 2: 2, 9: 3}
    pipeline.read(up(9, 1), up(2, 8, m=5))
    assert pipeline.rows() == {1: 4, 2: 8, 9: 3}, "what is older than the swapped state knows is no news"


def test_swap_reads_what_the_pipeline_has_read_since(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    pipeline.read(up(1, 7), up(8, 8))
    pipeline.put(up(9, 9))
    pipeline.do("swap")
    assert pipeline.rows() == {1: 7, 3: 3, 4: 4, 5: 6, 8: 8, 9: 9}, "and a row that no table had"
    pipeline.read(up(3, 10))
    assert pipeline.rows()[3] == 10


def test_swap_before_all_is_read_is_refused(make):
    pipeline = with_steps(make)
    with pytest.raises(BackfillError) as raised:
        pipeline.do("swap")
    assert str(raised.value) == "There is no backfill of 't'. Run 'ebbtide backfill start' first."
    pipeline.do("backfill")
    pipeline.read(up(9, 9))
    (pipeline.source / "0002.jsonl").unlink()
    with pytest.raises(BackfillError) as raised:
        pipeline.do("swap")
    assert str(raised.value) == (
        "The backfill of 't' has not read all that the pipeline has. Got: missing 0002.jsonl. Run 'ebbtide backfill start' to continue it; or 'ebbtide backfill drop' if the source is now another one."
    )


def test_backfill_of_another_sink_is_refused(make):
    pipeline = with_steps(make)
    for got, other in [
        ("key", {"key": ["n"]}),
        ("columns", {"schema": "id BIGINT, n BIGINT, m BIGINT DEFAULT 0"}),
        ("columns", {"schema": "id BIGINT NOT NULL, n BIGINT"}),
        ("order", {"order": "arrival"}),
    ]:
        pipeline.spec = pipeline.with_fields(**other)
        with pytest.raises(BackfillError) as raised:
            pipeline.do("backfill")
        assert str(raised.value).startswith(f"The spec of 't' does not fit the existing sink. Got: other {got}")
        assert str(raised.value).endswith(
            "Allowed: the same source, key, order and columns of the sink; another format, transform, function or ttl. Give it another name, or run 'ebbtide refresh' to rebuild the sink from the source."
        )
    assert not Location(pipeline.plan.backfills).exists()


def test_backfill_needs_a_pipeline_that_has_run(make):
    pipeline = make()
    with pytest.raises(BackfillError) as raised:
        pipeline.do("backfill")
    assert str(raised.value) == "'t' has made no step yet: there are no tables to replace. Run 'ebbtide run'."
    assert not Location(pipeline.plan.backfills).exists()


def test_place_is_one_of_the_source_and_stays(make):
    pipeline = with_steps(make)
    with pytest.raises(BackfillError) as raised:
        pipeline.act("backfill.start", begin="2026-01-01")
    assert str(raised.value) == (
        "A backfill from a folder reads all its files, and 't' reads one. Got: 2026-01-01T00:00:00+00:00. Allowed: earliest."
    )
    with pytest.raises(BackfillError) as raised:
        pipeline.act("backfill.start", snapshot="t.snapshot")
    assert str(raised.value) == (
        "'t' cannot begin with a snapshot: its rows would be applied in addition to their changes."
        " Allowed: a topic, with order: {sequence: ...}."
    )
    assert not Location(pipeline.plan.backfills).exists()
    assert pipeline.act("backfill.status", "plan", START).text() == (
        "t: no backfill.\n  To begin one: 'ebbtide backfill start'."
    )


def test_dropped_backfill_is_gone_unless_it_is_built_or_swapped_in(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    with Lease(pipeline.plan.backfill.at("ledger"), "t", 3600), pytest.raises(LeaseHeldError):
        pipeline.act("backfill.drop")
    pipeline.act("backfill.drop")
    assert not Location(pipeline.plan.backfills).exists()
    pipeline.do("backfill")
    with killed_before("the sink takes its rows"):
        pipeline.do("swap")
    with pytest.raises(BackfillError) as raised:
        pipeline.act("backfill.drop")
    assert str(raised.value) == (
        "The backfill of 't' is being swapped in, in step 3. Run 'ebbtide run' or 'ebbtide backfill swap --apply': either completes the swap and drops the backfill."
    )
    pipeline.run()
    assert not Location(pipeline.plan.backfills).exists()


def test_swap_can_be_rewound(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    pipeline.do("swap")
    assert pipeline.do("rewind")["to_step"] == 1
    pipeline.run()
    assert pipeline.rows() == {1: 1, 3: 3, 4: 4, 5: 6}


def test_by_arrival_the_changelog_and_the_quarantine_become_the_backfill_s(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), "{")
    pipeline.read(up(1, 1, "-U"), up(1, 2, "+U"), "[", up(2, 2, "+I"))
    names = ["_kind", "id", "n"]

    def shown():
        changelog = [
            [row[name] for name in names] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)
        ]
        bad = pipeline.plan.quarantine.values("raw").to_pylist()
        return sorted(changelog), sorted(row["raw"] for row in bad), pipeline.rows()

    before = shown()
    pipeline.do("compaction")
    pipeline.do("backfill")
    pipeline.do("swap")
    assert shown() == before
    assert pipeline.last.step == 4
    assert pipeline.last.frontier.total_quarantined == 2
    pipeline.read(up(2, 2, "-D"))
    assert pipeline.rows() == {1: 2}


def test_backfill_goes_on_while_the_pipeline_is_paused_or_run(make):
    pipeline = with_steps(make)
    with Lease(pipeline.plan.at("ledger"), "t", 3600):
        assert pipeline.do("backfill")["waiting"] == 0
        with pytest.raises(LeaseHeldError):
            pipeline.do("swap")
    pipeline.act("pause", clock_ms=START, reason="why")
    assert pipeline.do("swap").step == 3
    with pytest.raises(PausedError):
        pipeline.run()


def test_columns_that_only_one_of_the_two_has_taken_in_are_refused(make):
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    pipeline.do("backfill")
    pipeline.read(up(2, 2, more=7))
    (pipeline.source / "0001.jsonl").write_text(up(2, 2) + "\n")
    with pytest.raises(BackfillError) as raised:
        pipeline.do("swap")
    assert str(raised.value) == (
        "The backfill of 't' has other columns than the sink. Got: more. Allowed: the same columns."
        " Add them to the spec's schema, then 'ebbtide migrate' and begin the backfill again."
    )


def test_clock_of_the_backfill_is_that_of_its_own_steps(make):
    pipeline = make(order="arrival", ttl="2h", materializer={"on_expire": "delete"})
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    pipeline.do("backfill", START + HOUR)
    pipeline.do("swap", START + HOUR)
    pipeline.run(START + 90 * 60_000)
    assert pipeline.rows() == {1: 1}
    pipeline.run(START + 4 * HOUR)
    assert pipeline.rows() == {}


def test_function_s_backfill_brings_its_sink(make):
    pipeline = make(function="victims:Totals", ttl={"total": "9h", "seen": "9h"})
    pipeline.read(change("+I", id=1, n=1), change("+I", id=2, n=2))
    pipeline.read(change("+I", id=1, n=3))
    rows = pipeline.table("sink", pipeline.spec.sink_table.columns)
    pipeline.do("spoil")
    pipeline.do("backfill")
    assert pipeline.do("swap")["added"] > 0
    assert sorted(map(repr, pipeline.table("sink", pipeline.spec.sink_table.columns))) == sorted(map(repr, rows))
    pipeline.read(change("+I", id=1, n=5))
    assert {row["id"]: row["total"] for row in pipeline.table("sink", pipeline.spec.sink_table.columns)} == {1: 9, 2: 2}


def test_format_of_the_backfill_may_be_another_one(make):
    pipeline = make()
    pipeline.read('{"op": "+I", "kind": "-D", "row": {"id": 1, "n": 1}}', up(2, 2))
    assert pipeline.rows() == {2: 2}
    pipeline.spec = pipeline.with_fields(format={"type": "plain", "kind": "op"})
    pipeline.do("backfill")
    pipeline.do("swap")
    assert pipeline.rows() == {1: 1}
    pipeline.read('{"op": "+I", "row": {"id": 3, "n": 3}}')
    assert pipeline.rows() == {1: 1, 3: 3}


@pytest.mark.parametrize("text", ["latest", "0=x", "0:1", "0=-1"])
def test_place_to_begin_that_cannot_be_read_is_named(make, text):
    with pytest.raises(ConfigError) as raised:
        make().act("backfill.start", begin=text)
    assert str(raised.value) == (
        f"The start of the backfill cannot be read. Got: {text}."
        " Allowed: earliest, a time as 2026-01-31T12:00:00, or offsets as 0=12,1=40."
    )


def test_pace_and_what_is_left_are_told_by_the_last_steps(make):
    pipeline = with_steps(make)
    pipeline.read(up(6, 7))
    stop = threading.Event()

    def stop_at_second(step):
        if step.step == 2:
            stop.set()

    times = iter(range(START, START + 10**6, 2_000))
    means = {"on_progress": stop_at_second, "stop": stop, "clock": lambda: next(times)}
    found = pipeline.act("backfill.start", means=means)
    assert (found.step, found["records"], found["quarantined"], found["percent"]) == (2, 6, 0, 66.7)
    assert found["waiting"] == 3, "a file more, of as many records as those read had"
    # Steps are a second apart, and the first one's records were read in that time.
    assert (found["records_per_second"], found["seconds_left"]) == (3.0, 1.0)
    assert found.text() == (
        "t: backfill from earliest: step 2, 6 records, 66.7 %, 3 records/s, about 1 s left; waiting: 3 records."
        "\n  To continue: 'ebbtide backfill start'."
    )
    assert pipeline.do("backfill").text() == (
        "t: backfill from earliest: step 3, 7 records, 100.0 %, 3 records/s.\n  To compare it: 'ebbtide backfill swap'."
    )


def test_pace_of_one_step_is_not_known(make):
    pipeline = make()
    pipeline.read(up(1, 1), "{")
    found = pipeline.do("backfill")
    assert (found["quarantined"], found["records_per_second"], found["seconds_left"]) == (1, None, None)
    assert found.text() == (
        "t: backfill from earliest: step 1, 2 records, 100.0 %.\n  To compare it: 'ebbtide backfill swap'."
    )


def test_status_before_the_first_step_says_what_waits(make):
    pipeline = with_steps(make)
    stop = threading.Event()
    stop.set()
    found = pipeline.act("backfill.start", means={"stop": stop})
    assert (found.step, found["records"], found["waiting"], found["percent"]) == (0, 0, 2, 0.0)
    assert found.as_dict()["start"] == "earliest"


def test_keys_that_are_personal_are_not_named(make):
    pipeline = make(columns={"id": {"personal": True}})
    pipeline.read(up(1, 1))
    pipeline.do("spoil")
    pipeline.do("backfill")
    planned = pipeline.do("swap", applies=False)
    assert (planned["records"], planned["added"], planned["keys"]) == (1, 1, [])


def test_swap_that_died_is_finished_by_the_same_command_and_tells_its_step(make):
    pipeline = with_steps(make)
    pipeline.do("spoil")
    pipeline.do("backfill")
    with killed_before("the sink takes its rows"):
        pipeline.do("swap")
    done = pipeline.do("swap")
    assert (done["records"], done["added"], done.step) == (6, 0, 3)
    assert pipeline.rows() == {1: 1, 3: 3, 4: 4, 5: 6}
    pipeline.read(up(8, 8))
    with pytest.raises(BackfillError, match="There is no backfill"):
        pipeline.do("swap")


def test_backfill_begun_behind_a_swap_is_another_one(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    pipeline.do("swap")
    pipeline.do("backfill")
    assert pipeline.act("backfill.status", "plan", START)["records"] == 6
    assert pipeline.do("swap").step == 4
    pipeline.do("backfill")
    pipeline.act("backfill.drop")
    assert not Location(pipeline.plan.backfills).exists()


def test_swap_whose_backfill_was_taken_away_is_refused_until_it_is_put_back(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    with killed_before("the sink takes its rows"):
        pipeline.do("swap")
    away = pipeline.home / "away"
    Path(pipeline.plan.backfills).rename(away)
    with pytest.raises(BackfillError) as raised:
        pipeline.run()
    assert str(raised.value) == (
        f"The backfill that 't' is being given is gone from '{pipeline.plan.backfills}'. Put its folder back; or run"
        " 'ebbtide refresh' to rebuild all tables from the source."
    )
    away.rename(pipeline.plan.backfills)
    pipeline.run()
    assert pipeline.rows() == {1: 1, 3: 3, 4: 4, 5: 6}


def test_swap_that_reached_some_tables_goes_on_with_the_others(make, monkeypatch):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), "{")
    pipeline.read(up(2, 2, "+I"))
    pipeline.do("backfill")
    for name in ("changelog", "quarantine"):
        with monkeypatch.context() as patch:
            patch.setattr(append_table, "commit_stage", killed_at(name))
            with pytest.raises(InterruptedError):
                pipeline.do("swap")
        versions = pipeline.versions()
    pipeline.run()
    after = pipeline.versions()
    assert [name for name in after if after[name] > versions[name]] == ["quarantine"]
    assert len(pipeline.table("changelog", pipeline.plan.changelog.schema)) == 2
    assert pipeline.plan.quarantine.size() == 1


def killed_at(table):
    """Commit to the tables before it."""

    def commit_stage(location, made, facts, name):
        if name == table:
            raise InterruptedError
        return step_commits.commit_stage(location, made, facts, name)

    return commit_stage


def test_tables_that_the_backfill_lacks_are_emptied(make):
    pipeline = make()
    pipeline.put("{", up(1, 1))
    pipeline.run()
    assert pipeline.plan.quarantine.size() == 1
    (pipeline.source / "0000.jsonl").write_text(up(1, 1) + "\n" + up(2, 2) + "\n")
    pipeline.do("backfill")
    pipeline.do("swap")
    assert pipeline.plan.quarantine.size() == 0
    assert pipeline.rows() == {1: 1, 2: 2}
    pipeline.read("[")
    assert pipeline.plan.quarantine.size() == 1


def test_view_is_not_built_beside_itself(make):
    pipeline = make()
    pipeline.spec = MaterializedView(
        name="v", query="SELECT id FROM t", inputs=["t"], schema="id BIGINT NOT NULL", key=["id"]
    )
    with pytest.raises(BackfillError) as raised:
        pipeline.act("backfill.start")
    assert str(raised.value) == (
        "'v' is a materialized view: it has no source to read again. Run 'ebbtide refresh' to compute it whole."
    )


def test_pace_is_of_the_last_steps_alone_and_none_of_steps_at_one_time(make, monkeypatch):
    pipeline = make()
    for number in range(3):
        pipeline.put(*(up(10 * number + n, number) for n in range(4 - number)))
    pipeline.run()
    pipeline.do("backfill")
    found = pipeline.act("backfill.status", "plan", START)
    assert (found.step, found["records"], found["records_per_second"], found["seconds_left"]) == (3, 9, 3.5, 0)
    set_limits(last_steps=2)
    assert pipeline.act("backfill.status", "plan", START)["records_per_second"] == 3.0
    pipeline.act("backfill.drop")
    monkeypatch.setattr(local_run, "BATCH_MS", 0)
    found = pipeline.do("backfill")
    assert (found.step, found["records_per_second"], found["seconds_left"]) == (3, None, None)


def test_ticks_count_for_no_pace(make):
    pipeline = make(order="arrival", ttl="2h", materializer={"on_expire": "delete"})
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"))
    found = pipeline.do("backfill", START + 9 * HOUR)
    assert (found.step, found["records_per_second"]) == (2, None), "a batch and a tick"


WHOLE = Span({"cluster_id": "c", "topic": "t", "topic_id": "i"}, {0: 0, 1: 5}, {0: 30, 1: 15})


@pytest.mark.parametrize(
    ("reached", "missing"),
    [
        (WHOLE, []),
        (replace(WHOLE, end={0: 31, 1: 15, 2: 9}), []),
        (replace(WHOLE, end={0: 29, 1: 15}), ["offsets 29 to 30 of partition 0"]),
        (replace(WHOLE, end={0: 30}), ["offsets 0 to 15 of partition 1"]),
        (
            replace(WHOLE, identity={**WHOLE.identity, "topic_id": "j"}),
            ["all of cluster_id 'c', topic 't', topic_id 'i'"],
        ),
        (None, ["every record"]),
    ],
)
def test_what_a_backfill_of_a_topic_lacks_is_told_by_its_offsets(reached, missing):
    own = SimpleNamespace(last_read=WHOLE)
    taken = SimpleNamespace(number=0 if reached is None else 1, last_read=reached)
    assert list(backfill_swap._missing(own, taken)) == missing


def test_files_that_a_backfill_lacks_are_told_up_to_some(make):
    pipeline = with_steps(make)
    set_limits(sample=2)
    pipeline.do("backfill")
    for n in range(3):
        pipeline.read(up(9, 9 + n))
    for n in (4, 3, 2):
        (pipeline.source / f"000{n}.jsonl").unlink()
    with pytest.raises(BackfillError, match=r"Got: missing 0002\.jsonl; 0003\.jsonl\. Run"):
        pipeline.do("swap")


def test_pipeline_whose_sink_has_features_of_others_can_be_built_beside(make):
    pipeline = with_steps(make)
    features = {"readerFeatures": ["fromLater"], "writerFeatures": ["fromLater"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    version = pipeline.plan.sink.version() + 1
    Writer().commit_version(pipeline.plan.sink.path, version, [{"protocol": protocol}], {"operation": "UPGRADE"})
    assert pipeline.do("backfill")["records"] == 6


def test_backfill_of_no_record_is_swapped_in(make):
    pipeline = make()
    pipeline.put()
    pipeline.run()
    pipeline.do("backfill")
    done = pipeline.do("swap")
    assert done.as_dict() == {
        "pipeline": "t",
        "records": 0,
        "added": 0,
        "changed": 0,
        "deleted": 0,
        "keys": [],
        "places": done["places"],
        "step": 2,
    }
    pipeline.read(up(1, 1))
    assert pipeline.rows() == {1: 1}


def test_changelog_becomes_that_of_the_backfill_where_they_differ(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"))
    (pipeline.source / "0000.jsonl").write_text(up(1, 2, "+I") + "\n")
    pipeline.do("backfill")
    pipeline.do("swap")
    assert [row["n"] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)] == [2]
