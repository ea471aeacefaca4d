"""Messages and refusals of repairs, without Spark; comparison and repair of rows are in `tests/spark/test_repair.py`."""

import itertools
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from frame.interrupting import killed_before
from frame.thinned import thinned
from local.local_pipeline import up

from ebbtide.delta import Definition, Snapshot, Writer
from ebbtide.errors import ConfigError, RepairError, TableMismatchError
from ebbtide.operations._repair import repair
from ebbtide.operations._repair.report import Finding, RepairReport
from ebbtide.storage import Location
from ebbtide.tables import StateTable

LOST = Finding("changelog", "gone", rows="1 row of step 1 lost")
REFUSED = Finding("sink", "gone", "no way", is_refused=True)


@pytest.mark.parametrize(
    "differing",
    [{"missing": 1}, {"other": 1}, {"extra": 1}, {"repeated": 1}, {"findings": (LOST,)}, {"state_version": 0}],
)
def test_report_of_any_difference_says_how_to_end_it(differing):
    report = RepairReport("t", **differing)
    assert report.differs
    assert (
        report.as_report()
        .text()
        .endswith("\n  To do it: 'ebbtide repair --apply'.\n  To accept it: 'ebbtide acknowledge --reason TEXT'.")
    )


def test_report_is_written_for_people():
    assert not RepairReport("t").differs
    assert RepairReport("t").as_report().text() == "t: the tables match the state; nothing to repair."
    done = RepairReport("t", (LOST,), 5, 2, 3, 4, state_version=0, action="repair", step=8)
    assert done.as_report().text() == (
        "t: 5 rows missing, 2 other, 3 too many, 4 keys repeated.\n  changelog: gone; 1 row of step 1 lost"
        "\n  rows of the state that another client changed: back to its version 0\n  Done in step 8: repair."
    )
    assert done.losses == ("changelog: gone; 1 row of step 1 lost",)
    assert done.as_report()["findings"][0]["table"] == "changelog"
    refused = RepairReport("t", (REFUSED,))
    assert refused.as_report().text() == "t: 1 damage found.\n  sink: gone; no way\n  A repair is refused."
    assert refused.losses == ()
    acknowledged = RepairReport("t", action="acknowledged: why", step=8)
    assert acknowledged.as_report().text() == "t: Done in step 8: acknowledged: why."


@pytest.mark.parametrize(
    ("name", "action", "asked"),
    [("repair", "plan", {}), ("repair", "apply", {}), ("acknowledge", "apply", {"reason": "why"})],
)
def test_pipeline_without_a_step_has_nothing_to_repair(make, name, action, asked):
    pipeline = make()
    pipeline.plan.state.create()
    assert pipeline.act(name, action, **asked).text() == "t: the tables match the state; nothing to repair."
    assert not Location(pipeline.plan.sink.path).exists()


@pytest.mark.parametrize("reason", ["", " \n"])
def test_acknowledging_takes_a_reason(make, reason):
    pipeline = make()
    pipeline.read(up(1, 1))
    with pytest.raises(ConfigError) as raised:
        pipeline.act("acknowledge", reason=reason)
    assert str(raised.value) == "Acknowledging needs a reason. Got: none. Allowed: a text, kept with the step."
    assert pipeline.last.step == 1


def test_acknowledgement_that_died_behind_its_step_is_there_when_it_is_asked_for_again(make, monkeypatch):
    pipeline = make(function="victims:Totals", ttl={"total": "9h", "seen": "9h"})
    pipeline.read(up(1, 1, "+I"))
    pipeline.do("spoil")
    commit = StateTable.perform

    def dies(*given):
        commit(*given)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(StateTable, "perform", dies)
        with pytest.raises(InterruptedError):
            pipeline.act("acknowledge", reason="meant so")
    assert (pipeline.last.cause.what, pipeline.last.step) == ("acknowledge", 2)
    assert pipeline.act("repair", "plan")["findings"] == []
    done = pipeline.act("acknowledge", reason="meant so")
    assert (done.step, pipeline.last.decision.accepts_sink) == (3, pipeline.versions()["sink"])
    assert pipeline.table("sink", pipeline.plan.sink.schema) == []


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_state_of_a_function_tells_its_lost_files(make, action):
    pipeline = make(function="victims:Totals", ttl={"total": "9h", "seen": "9h"})
    pipeline.read(up(1, 1, "+I"))
    assert pipeline.act("repair", action)["findings"] == []
    state = pipeline.plan.state.snapshot()
    [file, *_] = state.files.values()
    Path(file.location(state.table)).unlink()
    with pytest.raises(RepairError, match="has lost data files"):
        pipeline.act("repair", action)


@pytest.mark.parametrize("action", ["plan", "apply"])
def test_nothing_is_repaired_from_a_state_that_is_not_the_newest_or_has_lost_files(make, action):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.copytree(pipeline.home / "state", pipeline.home.with_name("earlier"))
    pipeline.read(up(1, 2))
    state = pipeline.plan.state.snapshot()
    for file in state.files.values():
        Path(file.location(state.table)).unlink()
    with pytest.raises(RepairError, match="has lost data files"):
        pipeline.act("repair", action)
    shutil.rmtree(pipeline.home / "state")
    shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home / "state")
    with pytest.raises(TableMismatchError, match="is older than"):
        pipeline.act("repair", action)


def test_changelog_that_a_run_has_made_is_missed_before_its_first_row(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read("{")
    shutil.rmtree(pipeline.home / "changelog")
    report = pipeline.repair()
    assert report.lines[1:-1] == ["changelog: gone"]
    assert Location(pipeline.plan.changelog.path).exists()
    assert pipeline.repair()["findings"] == []


def test_acknowledged_keys_are_written_down_under_the_names_and_types_of_the_state(make):
    selected = {"schema": "key BIGINT, n BIGINT", "select": {"key": "id", "n": "n"}, "key": ["key"]}
    pipeline = make(schema="id BIGINT NOT NULL, n BIGINT", transform=selected)
    keys = pa.table({"key": pa.array([7, None], pa.int64())})
    typed = repair._typed(keys, pipeline.plan)
    assert typed.schema == pa.schema([("id", pa.int64())])
    assert typed.to_pylist() == [{"id": 7}, {"id": None}]


def swap(pipeline):
    pipeline.do("backfill")
    pipeline.do("swap")


def undo_columns(pipeline):
    spec = pipeline.spec
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n BIGINT, v STRING, more BIGINT DEFAULT 7")
    pipeline.do("alter")
    pipeline.act("migrate", "undo")
    pipeline.spec = spec


WORKS = (lambda pipeline: pipeline.do("rewind"), swap, undo_columns)
LOST_BEHIND = itertools.product(WORKS, ("sink", "changelog", "quarantine"), (False, True))


@pytest.mark.parametrize(("work", "name", "is_killed"), thinned(LOST_BEHIND, 5))
def test_table_is_repaired_that_was_lost_behind_a_step_which_brought_it_to_another_version(make, work, name, is_killed):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), "{")
    pipeline.read(up(2, 2, "+I"), "[")
    work(pipeline)
    shown = pipeline.rows()
    rows = Snapshot.read(pipeline.plan.sink.path).rows(pipeline.plan.sink.schema)
    shutil.rmtree(pipeline.home / name)
    with pytest.raises(TableMismatchError, match="Run 'ebbtide repair'"):
        pipeline.run()
    if is_killed:
        with killed_before("a step is published"):
            pipeline.repair(rows)
    pipeline.repair(rows)
    assert pipeline.last.cause.what == "repair"
    assert pipeline.rows() == shown
    pipeline.read(up(3, 3, "+I"))
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    assert pipeline.is_idle()


def test_sink_with_other_columns_is_neither_compared_nor_repaired(make):
    """Spark could not read it, and no step is made that could not be finished."""
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.home / "sink")
    Writer().create(pipeline.plan.sink.path, Definition(pa.schema([("theirs", pa.int64())])), name="theirs", info={})
    for action in ("plan", "apply"):
        with pytest.raises(
            TableMismatchError, match=r"has other columns .* theirs is not the pipeline's.* 'ebbtide refresh'"
        ):
            pipeline.act("repair", action)
    assert pipeline.last.step == 1
    pipeline.do("refresh")
    assert pipeline.rows() == {1: 1}


def test_sink_takes_the_columns_of_an_open_migration_before_it_is_compared(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"))
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 7")
    with killed_before("a step is published"):
        pipeline.do("alter")
    shutil.rmtree(pipeline.home / "changelog")
    with pytest.raises(TableMismatchError, match="Run 'ebbtide repair'"):
        pipeline.run()
    rows = pa.Table.from_pylist([{"id": 1, "n": 1, "more": 7}], pipeline.plan.sink.schema)
    pipeline.repair(rows)
    pipeline.read(up(2, 2, "+I", more=8))
    assert [row["more"] for row in pipeline.table("sink", pipeline.plan.sink.schema)] == [7, 8]
