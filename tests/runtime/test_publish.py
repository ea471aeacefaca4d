"""What a step has decided reaches each table once, however often it is published; what a later step has written is left alone."""

import json
from collections import Counter
from pathlib import Path

import pytest
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.local_run import SPARK
from local.support import envelope

from ebbtide.delta import Log, Snapshot
from ebbtide.errors import LeaseLostError, SpecChangedError
from ebbtide.ledger import Cause, Head

EVERY = {"order": "arrival", "materializer": {"emission": "every"}}


def publish(pipeline, head=None):
    """Publish the last step, or an earlier one, as what comes next does."""
    with pipeline.stepper() as stepper:
        stepper.head = head or stepper.head
        return stepper.publish(SPARK)


def test_nothing_is_published_before_the_first_step(make):
    pipeline = make()
    pipeline.plan.state.create()
    assert publish(pipeline) == {}
    assert "sink" not in pipeline.versions()


def test_published_step_is_published_once_and_its_counts_are_told_again(make):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"), "{")
    versions = pipeline.versions()
    counts = publish(pipeline)
    assert (counts["inserted"], counts["emitted"]) == (2, 2)
    assert pipeline.versions() == versions


@pytest.mark.parametrize(
    ("lines", "tables"),
    [
        ([up(2, 2, "+I")], {"sink", "changelog"}),
        ([up(1, 1, "-D")], {"sink", "changelog"}),
        ([up(7, 7, "-D")], set()),
        (["{"], {"quarantine"}),
    ],
)
def test_only_tables_for_which_something_was_decided_are_written(make, lines, tables):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "[")
    before = pipeline.versions()
    pipeline.read(*lines)
    after = pipeline.versions()
    assert {name for name in after if after[name] > before[name]} == tables | {"state"}


def test_run_reads_the_log_of_its_sink_whole_once_and_of_an_appended_table_once_a_step(make, monkeypatch):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "{")
    read = []
    real = Snapshot.read.__func__

    def counted(cls, table, *until, **how):
        read.append(Path(table).name)
        return real(cls, table, *until, **how)

    monkeypatch.setattr(Snapshot, "read", classmethod(counted))
    pipeline.put(up(1, 2))
    pipeline.put(up(1, 3), "{")
    assert len(pipeline.run().steps) == 2
    once = {"ledger", "state", "sink", "changelog", "quarantine"}
    assert Counter(read) == Counter(once) + Counter(changelog=2, quarantine=1)


@pytest.mark.parametrize(
    "place", ["the sink is written", "the changelog is appended to", "the quarantine is appended to"]
)
def test_tables_that_a_step_has_not_reached_are_written_by_whoever_comes_next(make, place):
    pipeline = make(**EVERY)
    pipeline.put(up(1, 1, "+I"), "{")
    with killed_before(place):
        pipeline.run()
    counts = publish(pipeline)
    assert counts["inserted"] == 1
    assert pipeline.rows() == {1: 1}
    assert len(pipeline.table("changelog", pipeline.plan.changelog.schema)) == 1
    assert pipeline.plan.quarantine.size() == 1


def test_table_that_a_later_step_has_written_is_not_written_by_an_earlier_one(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    stale = Head(*pipeline.plan.state.last())
    pipeline.read(up(1, 2))
    versions = pipeline.versions()
    with pytest.raises(LeaseLostError) as raised:
        publish(pipeline, stale)
    assert str(raised.value) == (
        "Another run has continued 't'. Got: step 1, after step 2. Nothing was written twice; start the run again."
    )
    assert pipeline.versions() == versions


def test_step_that_decides_nothing_for_the_sink_writes_nothing(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    versions = pipeline.versions()
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what="compaction")), [])
        assert stepper.publish(SPARK) == {}
    assert pipeline.versions() == versions | {"state": versions["state"] + 1}


def test_truncate_reaches_sink_and_changelog_though_no_row_is_emitted(make):
    pipeline = make(**EVERY, format={"type": "debezium"})
    pipeline.read(json.dumps(envelope("c", 1, after={"id": 1, "n": 1})))
    before = pipeline.versions()
    pipeline.read(json.dumps(envelope("t", 2)))
    assert pipeline.last.read.floor_raised
    after = pipeline.versions()
    assert pipeline.rows() == {}
    assert after["changelog"] == before["changelog"] + 1
    kinds = [row["_kind"] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)]
    assert sorted(kinds) == ["+I", "T"]


def test_refresh_leaves_nothing_of_what_the_tables_showed(make):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"), "{")
    staged = Path(pipeline.plan.at("staged"), "2")
    staged.mkdir(parents=True)
    with killed_before("a source is looked at"):
        pipeline.do("refresh")
    assert pipeline.last.cause.what == "reset"
    for name, columns in (
        ("sink", pipeline.spec.sink_table.columns),
        ("changelog", pipeline.plan.changelog.schema),
    ):
        assert pipeline.table(name, columns) == []
    assert pipeline.plan.quarantine.size() == 0
    assert not staged.parent.exists()
    versions = pipeline.versions()
    assert publish(pipeline) == {}
    assert pipeline.versions() == versions


def altered(pipeline):
    return pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 7")


@pytest.mark.parametrize("place", ["the sink is altered", "the changelog is altered"])
def test_tables_that_lack_the_columns_of_a_migration_get_them_from_a_run_with_its_spec(make, place):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"))
    before = pipeline.spec
    pipeline.spec = altered(pipeline)
    with killed_before(place):
        pipeline.do("alter")
    step = pipeline.last.step
    after = pipeline.spec
    pipeline.spec = before
    with pytest.raises(SpecChangedError) as raised:
        publish(pipeline)
    message = str(raised.value)
    assert message == (
        f"The migration of 't' in step {step} is not finished, and its spec was another one. Got: {before.identity}."
        f" Allowed: {after.identity}. Run 'ebbtide run' or 'ebbtide migrate --apply' with that spec first."
    )
    pipeline.spec = after
    pipeline.run()
    assert pipeline.table("sink", pipeline.spec.sink_table.columns) == [{"id": 1, "n": 1, "more": 7}]
    [emitted] = pipeline.table("changelog", pipeline.plan.changelog.schema)
    assert emitted["more"] == 7
    versions = pipeline.versions()
    pipeline.spec = before
    publish(pipeline)
    assert pipeline.versions() == versions, "done already, it asks for no spec"


def test_rewind_that_ended_between_two_tables_goes_on_with_the_second(make):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"))
    pipeline.read(up(2, 2, "+I"))
    with killed_before("another table is restored"):
        pipeline.do("rewind")
    assert pipeline.rows() == {1: 1}
    assert len(pipeline.table("changelog", pipeline.plan.changelog.schema)) == 2
    publish(pipeline)
    assert len(pipeline.table("changelog", pipeline.plan.changelog.schema)) == 1
    assert Snapshot.read(pipeline.plan.changelog.path).transactions == {"t/changelog": pipeline.last.step}


def test_rewind_brings_back_each_table_once(make):
    pipeline = make(**EVERY)
    pipeline.read(up(1, 1, "+I"))
    pipeline.read(up(1, 1, "-D"), up(2, 2, "+I"), "{")
    pipeline.do("rewind")
    assert pipeline.last.cause.what == "rewind"
    assert pipeline.last.decision.tables.keys() == {"sink", "changelog", "quarantine"} & pipeline.versions().keys()
    assert pipeline.rows() == {1: 1}
    assert len(pipeline.table("changelog", pipeline.plan.changelog.schema)) == 1
    assert pipeline.plan.quarantine.size() == 0
    versions = pipeline.versions()
    publish(pipeline)
    assert pipeline.versions() == versions
    operations = [
        Log(pipeline.plan.at(name)).commit(versions[name]).info()["operation"] for name in ("sink", "changelog")
    ]
    assert operations == ["RESTORE", "RESTORE"]
