"""Backfills: tables built beside those in use are swapped in by one step, whatever the pipeline has done meanwhile."""

import pytest
from local_pipeline import up
from local_run import HOUR, START
from support import change

from ebbtide.errors import BackfillError, ConfigError, LeaseHeldError, PausedError
from ebbtide.ledger.lease import Lease
from ebbtide.maintenance import backfill, backfill_asked, backfill_status, pausing
from ebbtide.model.step import StepKind
from ebbtide.paths import exists


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
    assert (found.start, found.records, found.waiting, found.percent) == ("earliest", 6, 0, 100.0)
    assert pipeline.versions() == before
    assert pipeline.is_idle()
    pipeline.read(up(6, 7))
    assert backfill_status.status(pipeline.spec, pipeline.root, START).waiting > 0
    assert pipeline.do("backfill").records == 7


def test_swap_of_a_backfill_that_differs_in_nothing_changes_no_row(make):
    pipeline = with_steps(make)
    rows = pipeline.table("sink", pipeline.plan.sink.schema)
    pipeline.do("backfill")
    report = pipeline.do("swap")
    assert (report.added, report.changed, report.deleted, report.step) == (0, 0, 0, 3)
    assert pipeline.table("sink", pipeline.plan.sink.schema) == rows
    assert (pipeline.last.kind, pipeline.last.step) == (StepKind.SWAP, 3)
    assert not exists(pipeline.plan.backfills)
    assert pipeline.is_idle()


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
    assert (planned.added, planned.changed, planned.deleted, planned.step) == (1, 2, 1, None)
    assert planned.keys == [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 9}]
    assert pipeline.plan.sink.version() == version
    report = pipeline.do("swap")
    assert (report.added, report.changed, report.deleted) == (1, 2, 1)
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
    assert pipeline.rows() == {1: 7, 3: 3, 4: 4, 5: 6, 8: 8, 9: 9}, "and what nobody had"
    pipeline.read(up(3, 10))
    assert pipeline.rows()[3] == 10


def test_swap_before_all_is_read_is_refused(make):
    pipeline = with_steps(make)
    with pytest.raises(BackfillError, match="There is no backfill of 't'"):
        pipeline.do("swap")
    pipeline.do("backfill")
    pipeline.read(up(9, 9))
    (pipeline.source / "0002.jsonl").unlink()
    with pytest.raises(BackfillError, match=r"has not read all that the pipeline has\. Got: missing 0002.jsonl"):
        pipeline.do("swap")


def test_backfill_of_another_sink_is_refused(make):
    pipeline = with_steps(make)
    for other in ({"key": ["n"]}, {"schema": "id BIGINT, n BIGINT, m BIGINT DEFAULT 0"}, {"order": "arrival"}):
        pipeline.spec = pipeline.with_fields(**other)
        with pytest.raises(BackfillError, match="is for another sink than the one that is there"):
            pipeline.do("backfill")
    assert not exists(pipeline.plan.backfills)


def test_backfill_needs_a_pipeline_that_has_run(make):
    pipeline = make()
    with pytest.raises(BackfillError, match="has made no step yet"):
        pipeline.do("backfill")


def test_place_is_one_of_the_source_and_stays(make):
    pipeline = with_steps(make)
    with pytest.raises(BackfillError, match="reads all its files"):
        backfill.start(None, pipeline.spec, pipeline.root, backfill_asked.start_of("2026-01-01"))
    assert backfill_status.status(pipeline.spec, pipeline.root, START).text() == (
        "t: no backfill. To begin one: 'ebbtide backfill start'."
    )


def test_dropped_backfill_is_gone_unless_it_is_built_or_swapped_in(make, monkeypatch):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    with Lease(pipeline.plan.backfill.at("ledger"), "t", 3600), pytest.raises(LeaseHeldError):
        backfill.drop(pipeline.spec, pipeline.root)
    backfill.drop(pipeline.spec, pipeline.root)
    assert not exists(pipeline.plan.backfills)
    pipeline.do("backfill")
    with monkeypatch.context() as patch:
        patch.setattr("ebbtide.runtime.publish.publish_swap", killed)
        with pytest.raises(InterruptedError):
            pipeline.do("swap")
    with pytest.raises(BackfillError, match="is being swapped in, in step 3"):
        backfill.drop(pipeline.spec, pipeline.root)
    pipeline.run()
    assert not exists(pipeline.plan.backfills)


def killed(*_, **__):
    raise InterruptedError


def test_swap_can_be_rewound(make):
    pipeline = with_steps(make)
    pipeline.do("backfill")
    pipeline.do("swap")
    assert pipeline.do("rewind").to_step == 1
    pipeline.run()
    assert pipeline.rows() == {1: 1, 3: 3, 4: 4, 5: 6}


def test_by_arrival_the_changelog_and_the_quarantine_become_the_backfill_s(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), "{")
    pipeline.read(up(1, 1, "-U"), up(1, 2, "+U"), "[", up(2, 2, "+I"))
    names = ["_kind", "id", "n"]

    def told():
        changelog = [
            [row[name] for name in names] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)
        ]
        bad = pipeline.plan.quarantine.read("raw").to_pylist()
        return sorted(changelog), sorted(row["raw"] for row in bad), pipeline.rows()

    before = told()
    pipeline.do("compaction")
    pipeline.do("backfill")
    pipeline.do("swap")
    assert told() == before
    assert pipeline.last.step == 4
    assert pipeline.last.total_quarantined == 2
    pipeline.read(up(2, 2, "-D"))
    assert pipeline.rows() == {1: 2}


def test_backfill_goes_on_while_the_pipeline_is_paused_or_run(make):
    pipeline = with_steps(make)
    with Lease(pipeline.plan.at("ledger"), "t", 3600):
        assert pipeline.do("backfill").waiting == 0
        with pytest.raises(LeaseHeldError):
            pipeline.do("swap")
    pausing.pause(pipeline.spec, pipeline.root, "ann", "why", START)
    assert pipeline.do("swap").step == 3
    with pytest.raises(PausedError):
        pipeline.run()


def test_columns_that_only_one_of_the_two_has_taken_in_are_refused(make):
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    pipeline.do("backfill")
    pipeline.read(up(2, 2, more=7))
    (pipeline.source / "0001.jsonl").write_text(up(2, 2) + "\n")
    with pytest.raises(BackfillError, match=r"has other columns than the sink\. Got: more"):
        pipeline.do("swap")


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
    assert pipeline.do("swap").added > 0
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


def test_place_to_begin_is_read_or_named(make):
    assert backfill_asked.start_of("earliest") == "earliest"
    assert backfill_asked.start_of("2026-01-31T12:00:00").timestamp.isoformat() == "2026-01-31T12:00:00+00:00"
    for text in ("latest", "0=x", "0:1", "0=-1"):
        with pytest.raises(ConfigError, match="Where the backfill is to begin cannot be read"):
            backfill_asked.start_of(text)
