"""What repairs say and refuse, without Spark; how they compare and mend is in `tests/spark/test_repair.py`."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from local_pipeline import killed, up
from local_run import SPARK

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import create, read_rows
from ebbtide.errors import ConfigError, RepairError, TableMismatchError
from ebbtide.ledger.puts import LOCAL
from ebbtide.maintenance import migration, repair
from ebbtide.maintenance.repair import RepairReport
from ebbtide.paths import exists
from ebbtide.runtime.step import Stepper

KEEPS_NOT = (
    "The state of 't' does not keep what its sink must show. Got: a function of the user's, whose rows for the sink are"
    " forgotten once they are there. Allowed: an upsert pipeline. Run 'ebbtide rewind' to go back to an earlier step, or"
    " 'ebbtide refresh' to rebuild the sink from the source."
)


@pytest.mark.parametrize(
    "differing",
    [{"missing": 1}, {"other": 1}, {"extra": 1}, {"repeated": 1}, {"made": ("sink",)}, {"state_version": 0}],
)
def test_report_of_any_difference_says_how_to_end_it(differing):
    report = RepairReport("t", **differing)
    assert report.differs
    assert report.text().endswith(
        "\n  To bring the sink to what the state shows: 'ebbtide repair --apply'."
        "\n  To leave it as it is: 'ebbtide acknowledge --reason TEXT'."
    )


def test_report_is_written_for_people():
    assert not RepairReport("t").differs
    assert RepairReport("t").text() == "t: the sink shows what the state says; nothing to repair."
    counts = "t: 5 rows missing, 2 other, 3 too many, 4 keys repeated."
    done = RepairReport("t", 5, 2, 3, 4, ("sink", "changelog"), 0, "repair", 8)
    assert done.text() == (
        f"{counts}\n  gone: sink, changelog\n  rows of the state that others changed: as in its version 0"
        "\n  Done in step 8: repair."
    )
    assert (
        RepairReport("t", action="acknowledged: why", step=8).text().endswith("\n  Done in step 8: acknowledged: why.")
    )
    assert done.as_dict()["made"] == ("sink", "changelog")


def begun(pipeline):
    """What each of the three does with a pipeline that has made no step."""
    yield repair.plan(SPARK, pipeline.spec, pipeline.root)
    yield repair.repair(SPARK, pipeline.spec, pipeline.root)
    yield repair.acknowledge(SPARK, pipeline.spec, pipeline.root, "why")


def test_pipeline_without_a_step_has_nothing_to_repair(make):
    pipeline = make()
    pipeline.plan.state.create()
    assert list(begun(pipeline)) == [RepairReport("t")] * 3
    assert not exists(pipeline.plan.sink.path)


@pytest.mark.parametrize("reason", ["", " \n"])
def test_acknowledging_takes_a_reason(make, reason):
    pipeline = make()
    pipeline.read(up(1, 1))
    with pytest.raises(ConfigError) as raised:
        repair.acknowledge(SPARK, pipeline.spec, pipeline.root, reason)
    assert str(raised.value) == "To acknowledge takes a reason. Got: none. Allowed: a text, kept with the step."
    assert pipeline.last.step == 1


@pytest.mark.parametrize("work", [repair.plan, repair.repair])
def test_state_of_a_function_tells_its_lost_files_and_repairs_no_sink(make, work):
    pipeline = make(function="victims:Totals", ttl={"total": "9h", "seen": "9h"})
    with pytest.raises(RepairError) as raised:
        work(SPARK, pipeline.spec, pipeline.root)
    assert str(raised.value) == KEEPS_NOT
    assert not exists(pipeline.plan.state.path)
    pipeline.read(up(1, 1, "+I"))
    with pytest.raises(RepairError) as raised:
        work(SPARK, pipeline.spec, pipeline.root)
    assert str(raised.value) == KEEPS_NOT
    state = pipeline.plan.state.snapshot()
    [file, *_] = state.files.values()
    Path(file.location(state.table)).unlink()
    with pytest.raises(RepairError, match="has lost data files"):
        work(SPARK, pipeline.spec, pipeline.root)


@pytest.mark.parametrize("work", [repair.plan, repair.repair])
def test_nothing_is_repaired_from_a_state_that_is_not_the_newest_or_has_lost_files(make, work):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.copytree(pipeline.home / "state", pipeline.home.with_name("earlier"))
    pipeline.read(up(1, 2))
    state = pipeline.plan.state.snapshot()
    for file in state.files.values():
        Path(file.location(state.table)).unlink()
    with pytest.raises(RepairError, match="has lost data files"):
        work(SPARK, pipeline.spec, pipeline.root)
    shutil.rmtree(pipeline.home / "state")
    shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home / "state")
    with pytest.raises(TableMismatchError, match="is older than"):
        work(SPARK, pipeline.spec, pipeline.root)


def test_tables_that_a_run_would_have_made_are_missed(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    assert repair._gone(pipeline.plan) == ("sink", "changelog")
    pipeline.read(up(1, 1, "+I"))
    assert repair._gone(pipeline.plan) == ()
    shutil.rmtree(pipeline.home / "changelog")
    assert repair._gone(pipeline.plan) == ("changelog",)
    assert repair._gone(make().plan) == ()


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
    migration.undo(SPARK, pipeline.spec, pipeline.root)
    pipeline.spec = spec


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("name", ["sink", "changelog", "quarantine"])
@pytest.mark.parametrize("work", [lambda pipeline: pipeline.do("rewind"), swap, undo_columns])
def test_table_is_repaired_that_was_lost_behind_a_step_which_brought_it_to_another_version(
    make, monkeypatch, work, name, is_killed
):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), "{")
    pipeline.read(up(2, 2, "+I"), "[")
    work(pipeline)
    shown = pipeline.rows()
    rows = read_rows(Snapshot.read(pipeline.plan.sink.path), pipeline.plan.sink.schema)
    shutil.rmtree(pipeline.home / name)
    with pytest.raises(TableMismatchError, match="Run 'ebbtide repair'"):
        pipeline.run()
    if is_killed:
        with monkeypatch.context() as patch:
            patch.setattr(Stepper, "publish", killed)
            with pytest.raises(InterruptedError):
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
    create(LOCAL, pipeline.plan.sink.path, pa.schema([("theirs", pa.int64())]), {}, name="theirs", info={})
    for work in (repair.plan, repair.repair):
        with pytest.raises(
            TableMismatchError, match=r"has other columns .* theirs is not the pipeline's.* 'ebbtide refresh'"
        ):
            work(SPARK, pipeline.spec, pipeline.root)
    assert pipeline.last.step == 1
    pipeline.do("refresh")
    assert pipeline.rows() == {1: 1}


def test_sink_takes_the_columns_of_an_open_migration_before_it_is_compared(make, monkeypatch):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"))
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 7")
    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "publish", killed)
        with pytest.raises(InterruptedError):
            pipeline.do("alter")
    shutil.rmtree(pipeline.home / "changelog")
    with pytest.raises(TableMismatchError, match="Run 'ebbtide repair'"):
        pipeline.run()
    rows = pa.Table.from_pylist([{"id": 1, "n": 1, "more": 7}], pipeline.plan.sink.schema)
    pipeline.repair(rows)
    pipeline.read(up(2, 2, "+I", more=8))
    assert [row["more"] for row in pipeline.table("sink", pipeline.plan.sink.schema)] == [7, 8]
