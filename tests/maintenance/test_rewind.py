"""Rewinds without Spark: where the tables beside the state have no history of the step that is asked for."""

import shutil

import pytest
from local_pipeline import up
from local_run import SPARK

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.errors import HistoryGoneError, SpecChangedError
from ebbtide.maintenance import rewind


@pytest.fixture
def repaired(make):
    """Makes a pipeline whose sink was deleted after step 4, or put back to step 1, and repaired in step 5; a step came after."""

    def repaired(*, put_back):
        pipeline = make()
        pipeline.read(up(1, 1))
        shutil.copytree(pipeline.home / "sink", pipeline.home.with_name("earlier"))
        for n in (2, 3, 4):
            pipeline.read(up(n, n))
        rows = read_rows(Snapshot.read(pipeline.plan.sink.path), pipeline.plan.sink.schema)
        shutil.rmtree(pipeline.home / "sink")
        if put_back:
            shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home / "sink")
        pipeline.repair(rows)
        pipeline.read(up(6, 6))
        return pipeline

    return repaired


@pytest.mark.parametrize("put_back", [False, True])
@pytest.mark.parametrize("step", [2, 3])
def test_step_is_refused_of_which_the_sink_has_no_version(repaired, put_back, step):
    pipeline = repaired(put_back=put_back)
    versions = pipeline.versions()
    for work in (rewind.plan, rewind.apply):
        with pytest.raises(HistoryGoneError) as raised:
            work(SPARK, pipeline.spec, pipeline.root, step)
        assert str(raised.value) == (
            f"'t' cannot go back to step {step}: its sink was made anew or put back since. Got: step {step}."
            " Allowed: step 4, whose rows the sink was given again, or a later one."
            " Name one of these, or run 'ebbtide refresh' to rebuild all tables from the source."
        )
    assert pipeline.versions() == versions


@pytest.mark.parametrize(("put_back", "step"), [(False, 4), (False, 5), (False, 6), (True, 1), (True, 4), (True, 5)])
def test_steps_that_the_sink_has_are_gone_back_to_beside_a_repair(repaired, put_back, step):
    pipeline = repaired(put_back=put_back)
    wanted = {n: n for n in (1, 2, 3, 4, 6) if n <= step}
    rewind.apply(SPARK, pipeline.spec, pipeline.root, step)
    assert pipeline.rows() == wanted
    pipeline.run()
    assert pipeline.rows() == {n: n for n in (1, 2, 3, 4, 6)}


def test_step_after_which_the_sink_was_not_written_is_gone_back_to(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read("{")
    pipeline.read(up(3, 3))
    rewind.apply(SPARK, pipeline.spec, pipeline.root, 2)
    assert pipeline.rows() == {1: 1}
    pipeline.run()
    assert pipeline.rows() == {1: 1, 3: 3}


def test_step_before_columns_were_taken_in_is_refused_with_the_one_that_took_them(make):
    """The spec is as it was: there is nothing to change back."""
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2, more="x"))
    with pytest.raises(SpecChangedError) as raised:
        rewind.plan(SPARK, pipeline.spec, pipeline.root, 1)
    assert str(raised.value) == (
        "Step 1 of 't' was made with another spec. Got: columns. Allowed: step 2 or a later one; or the spec of the step."
        " Name one of these, or change the spec back first."
    )
    rewind.apply(SPARK, pipeline.spec, pipeline.root, 2)
    assert pipeline.rows() == {1: 1}
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2}
