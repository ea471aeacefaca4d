"""Whether a run would find nothing to do is certain or denied, without Spark: whatever is open, held, due or changed makes a run start."""

import shutil
from dataclasses import replace

import pytest
from frame.interrupting import killed_before
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, SPARK, START, die_behind_a_decision
from local.support import change

from ebbtide.errors import FileChangedError, SourceReadError, TableMismatchError
from ebbtide.ledger import Cause, Lease
from ebbtide.model import Append, Decision, Rewrite
from ebbtide.runtime import AtRest, idle_run

EXPIRING = {"ttl": {"ttl": "1h", "expire_live": True}}


def test_pipeline_without_tables_has_all_to_do(make):
    pipeline = make()
    assert not pipeline.is_idle()
    pipeline.plan.state.create()
    assert not pipeline.is_idle(), "there is no sink yet"


def test_pipeline_over_an_empty_folder_is_idle_once_its_tables_are_there(make):
    pipeline = make()
    summary = pipeline.run()
    idle_summary = idle_run(pipeline.spec, pipeline.root, START)
    assert idle_summary == replace(summary, engine=""), "it needs none"
    assert "it has no files" in idle_summary.nothing_matched
    pipeline.put(up(1, 1))
    assert not pipeline.is_idle(), "a first file"


def test_pipeline_before_its_first_step_is_run_for_whatever_a_run_does(make):
    pipeline = make(schema="id BIGINT NOT NULL, n BIGINT")
    pipeline.run()
    with Lease(pipeline.plan.at("ledger"), "t", 60):
        assert not pipeline.is_idle()
    same = pipeline.spec
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n BIGINT, w STRING")
    assert not pipeline.is_idle(), "its tables are made again"
    selected = {"schema": "id BIGINT NOT NULL, n BIGINT", "key": ["id"], "select": {"id": "id", "n": "n + 1"}}
    pipeline.spec = pipeline.with_fields(transform=selected)
    assert not pipeline.is_idle(), "Spark looks at the transform"
    pipeline.spec = pipeline.with_fields(order="arrival", materializer={"emission": "every"})
    assert not pipeline.is_idle(), "there is no changelog yet"
    pipeline.spec = same
    assert pipeline.is_idle()


def test_pipeline_that_has_read_all_is_idle_and_told_as_a_run_is(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    (pipeline.source / "notes.txt").write_text("x")
    summary = idle_run(pipeline.spec, pipeline.root, START + HOUR)
    assert (summary.pipeline, summary.root, summary.steps) == ("t", str(pipeline.home), [])
    assert (summary.files_unmatched, summary.files_young) == (1, 0)
    pipeline.put(up(2, 2))
    assert not pipeline.is_idle(), "a new file"


def test_foreign_write_is_in_the_summary_of_each_run_until_it_is_put_right(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.do("spoil")
    spoilt = pipeline.versions()["sink"]
    idle_summary = idle_run(pipeline.spec, pipeline.root, START + HOUR)
    pipeline.put(up(2, 2))
    summary = pipeline.run()
    for each in (idle_summary, summary):
        assert [(write.table, write.version) for write in each.foreign_writes] == [("sink", spoilt)]
        assert each.as_dict()["foreign_writes"][0]["operation"] == "DELETE"
    assert pipeline.do("undo") is not None
    assert pipeline.run().foreign_writes == ()


def test_file_that_is_too_young_leaves_a_pipeline_idle_and_is_told(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.put(up(2, 2))
    pipeline.spec = pipeline.with_fields(source={"min_age": "1h"})
    young_ms = int((pipeline.source / "0001.jsonl").stat().st_mtime * 1000) + 1_000
    summary = idle_run(pipeline.spec, pipeline.root, young_ms)
    assert (summary.steps, summary.files_young) == ([], 1)
    assert idle_run(pipeline.spec, pipeline.root, young_ms + HOUR) is None


def test_source_that_is_gone_or_moved_or_empty_is_for_the_run_to_tell(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    moved = pipeline.source.rename(pipeline.source.with_name("moved"))
    with pytest.raises(SourceReadError):
        pipeline.is_idle()
    pipeline.source = moved
    pipeline.spec = pipeline.with_fields()
    assert not pipeline.is_idle(), "the run asks whether it is the same source"
    for file in moved.iterdir():
        file.rename(file.with_suffix(".txt"))
    assert not pipeline.is_idle()


def test_changed_spec_and_format_are_for_the_run_to_refuse(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    same = pipeline.spec
    pipeline.spec = pipeline.with_fields(ttl="1h")
    assert not pipeline.is_idle()
    pipeline.spec = same
    assert pipeline.is_idle()


def test_pipeline_that_is_being_run_or_whose_run_died_is_not_idle(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    with Lease(pipeline.plan.at("ledger"), "t", 60):
        assert not pipeline.is_idle()
    assert pipeline.is_idle()
    for file in (pipeline.home / "ledger" / "_delta_log").iterdir():
        file.unlink()
    with pytest.raises(TableMismatchError, match=r"The ledger at '.*' was deleted or put back"):
        pipeline.is_idle()


def test_batch_that_was_decided_and_is_not_in_all_tables_is_something_to_do(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.put(up(1, 2))
    die_behind_a_decision(SPARK, pipeline.root, pipeline.spec)
    assert pipeline.rows() == {1: 1}
    assert not pipeline.is_idle()
    pipeline.run()
    assert pipeline.is_idle()


def test_file_that_was_read_and_moved_below_is_not_counted_again(make):
    pipeline = make(order="arrival")
    pipeline.read(up(1, 1, "+I"))
    for folder in ("done", "_done"):
        (pipeline.source / folder).mkdir()
    read, moved, kept = (pipeline.source / name / "0000.jsonl" for name in ("", "done", "_done"))
    read.rename(moved)
    for begin in (pipeline.is_idle, pipeline.run):
        with pytest.raises(FileChangedError, match=r"Got: done/0000\.jsonl, read as 0000\.jsonl"):
            begin()
    moved.rename(kept)
    (pipeline.source / "0001.jsonl").write_text(up(1, 1, "-D") + "\n")
    pipeline.run()
    assert pipeline.rows() == {}


def test_file_that_was_moved_below_is_a_repeat_by_sequence(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    (pipeline.source / "done").mkdir()
    (pipeline.source / "0000.jsonl").rename(pipeline.source / "done" / "0000.jsonl")
    pipeline.run()
    assert pipeline.rows() == {1: 1}


def test_state_of_many_files_is_left_to_spark(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    set_limits(most_files=len(pipeline.plan.state.snapshot().files))
    assert pipeline.is_idle()
    set_limits(most_files=len(pipeline.plan.state.snapshot().files) - 1)
    assert not pipeline.is_idle()


def test_entry_that_is_due_is_something_to_do_until_a_tick_has_expired_it(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 5), clock_ms=START)
    assert pipeline.is_idle(START + HOUR - 1)
    assert not pipeline.is_idle(START + HOUR)
    [tick] = pipeline.run(START + HOUR).steps
    assert tick.kind == "tick"
    assert pipeline.is_idle(START + HOUR), "what has expired is not due again"


def test_changelog_that_is_gone_behind_the_first_step_is_missed(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 5, "+I"))
    assert pipeline.is_idle()
    shutil.rmtree(pipeline.home / "changelog")
    with pytest.raises(TableMismatchError, match="is gone"):
        pipeline.is_idle()


@pytest.mark.parametrize(
    ("place", "emission"),
    [("the sink is written", "every"), ("the sink is written", "net"), ("the changelog is appended to", "every")],
)
def test_tick_that_did_not_reach_a_table_is_something_to_do(make, place, emission):
    pipeline = make(order="arrival", ttl="1h", materializer={"emission": emission, "on_expire": "delete"})
    pipeline.read(up(1, 5, "+I"), clock_ms=START)
    with killed_before(place):
        pipeline.run(START + HOUR)
    assert pipeline.last.cause.what == "tick"
    assert not pipeline.is_idle(START + HOUR)
    pipeline.run(START + HOUR)
    assert pipeline.is_idle(START + HOUR)


def test_many_entries_are_left_to_spark_where_one_may_be_due(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), clock_ms=START)
    set_limits(idle_most_rows=0)
    assert pipeline.is_idle(START + HOUR - 1), "statistics say that nothing can have expired"
    pipeline.read(up(1, 2), clock_ms=START + HOUR - 1)
    at = START + HOUR + 10
    assert not pipeline.is_idle(at), "an older version of the entry may be"
    n_rows = sum(file.rows for file in pipeline.plan.state.snapshot().files.values())
    set_limits(idle_most_rows=n_rows - 1)
    assert not pipeline.is_idle(at)
    set_limits(idle_most_rows=n_rows)
    assert pipeline.is_idle(at), "the newest is not"


@pytest.mark.parametrize(
    ("what", "tables", "is_idle"),
    [
        ("quarantine_drop", {"quarantine": Append(({"remove": {"path": "part.parquet"}},))}, False),
        ("cleanup", {}, True),
        ("repair", {"sink": Rewrite()}, False),
    ],
)
def test_step_of_a_job_is_finished_once_its_tables_have_it(make, what, tables, is_idle):
    pipeline = make()
    pipeline.read(up(1, 1), "{")
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what=what), decision=Decision(tables=tables)), [])
    assert pipeline.is_idle() == is_idle


def test_state_of_a_function_is_due_when_it_expires(make):
    pipeline = make(function="victims:Totals", ttl={"total": "1h", "seen": "2h"})
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    assert pipeline.is_idle(START + HOUR - 1)
    assert not pipeline.is_idle(START + HOUR)
    pipeline.run(START + HOUR)
    assert pipeline.is_idle(START + HOUR)
    assert not pipeline.is_idle(START + 2 * HOUR)


def test_timer_of_a_function_is_due_at_its_time(make):
    pipeline = make(function="user_functions:Alarm", schema="id BIGINT, n BIGINT")
    [batch] = pipeline.read(up(1, 1, "+I"), clock_ms=START).copy()
    assert pipeline.is_idle(batch.clock.now_ms + 49)
    assert not pipeline.is_idle(batch.clock.now_ms + 50)


def test_refresh_that_has_read_nothing_is_something_to_do(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(source={"min_age": "1h"})
    young_ms = int((pipeline.source / "0000.jsonl").stat().st_mtime * 1000) + 1_000
    with killed_before("a source is looked at"):
        pipeline.do("refresh", START + HOUR)
    assert pipeline.last.cause.what == "reset"
    assert not pipeline.is_idle(young_ms), "no file may be read yet, but the tables are not empty"
    assert not pipeline.is_idle()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, "a step is published"),
        ({"order": "arrival", "materializer": {"emission": "every"}}, "the changelog is altered"),
    ],
)
def test_migration_that_did_not_reach_a_table_is_something_to_do(make, fields, place):
    pipeline = make(**fields)
    pipeline.read(up(1, 1, "+I"))
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT")
    with killed_before(place):
        pipeline.do("alter")
    assert pipeline.last.cause.what == "migration"
    assert not pipeline.is_idle()
    pipeline.run()
    assert pipeline.is_idle()


def test_state_at_rest_is_read_once_until_its_next_entry_ends(make, tmp_path):
    ttl = dict.fromkeys(("newest", "items"), "1h") | {"each": "2h"}
    fields = {"function": "user_functions:HandedOver", "schema": "id BIGINT, seq BIGINT", "ttl": ttl}
    pipeline = make(**fields, output_key=["id", "entry"])
    pipeline.read(change("+I", id=1, seq=1), clock_ms=START)

    def is_due(clock_ms):
        return AtRest.of(pipeline.spec, pipeline.root).is_due(clock_ms)

    assert not is_due(START)
    files = [*(pipeline.home / "state").glob("*.parquet")]
    for file in files:
        file.rename(tmp_path / file.name)
    assert not is_due(START + HOUR - 1), "by what the first look has read"
    for file in files:
        (tmp_path / file.name).rename(file)
    assert is_due(START + HOUR)
    assert is_due(START + HOUR), "until a run has ticked"
    pipeline.run(START + HOUR)
    assert [is_due(START + hours * HOUR + ms) for hours, ms in ((1, 0), (2, -1), (2, 0))] == [False, False, True]
