"""Rewinds without Spark: where the tables beside the state have no history of the step that is asked for."""

import shutil
from functools import cache
from itertools import cycle, product

import pytest
from frame.limits import limits
from frame.thinned import graded, thinned
from local.local_pipeline import Kept, LocalPipeline, up

from ebbtide.delta import Snapshot
from ebbtide.errors import HistoryGoneError, RepairError, SpecChangedError

DAMAGED = ("state/*.parquet", "sink/*.parquet", "sink/*.bin", "quarantine/*.parquet")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Each way of it, once made."""

    @cache
    def kept(put_back):
        pipeline = LocalPipeline(tmp_path_factory.mktemp("repaired"))
        pipeline.read(up(1, 1))
        shutil.copytree(pipeline.home / "sink", pipeline.home.with_name("earlier"))
        for n in (2, 3, 4):
            pipeline.read(up(n, n))
        rows = Snapshot.read(pipeline.plan.sink.path).rows(pipeline.plan.sink.schema)
        shutil.rmtree(pipeline.home / "sink")
        if put_back:
            shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home / "sink")
        pipeline.repair(rows)
        pipeline.read(up(6, 6))
        return Kept(pipeline)

    return kept


@pytest.fixture
def repaired(kept):
    """Gives a pipeline whose sink was deleted after step 4, or put back to step 1, and repaired in step 5; a step came after."""
    return lambda *, put_back: kept(put_back).again()


@pytest.fixture(scope="module")
def three_kept(tmp_path_factory):
    """A pipeline after three steps, with the newest file of each pattern after the second one."""
    with limits():
        pipeline = LocalPipeline(tmp_path_factory.mktemp("damaged"))
        pipeline.read(up(1, 1), up(2, 1), "{")
        pipeline.read(up(1, 2), "[")
        files = {pattern: newest_file(pipeline, pattern) for pattern in DAMAGED}
        pipeline.read(up(3, 3))
    return Kept(pipeline), files


@pytest.fixture
def three_steps(three_kept):
    kept, files = three_kept
    return kept.again(), files


@pytest.mark.parametrize(("put_back", "step"), graded(product((False, True), (2, 3)), [(False, 2), (True, 3)]))
def test_step_is_refused_of_which_the_sink_has_no_version(repaired, put_back, step):
    pipeline = repaired(put_back=put_back)
    versions = pipeline.versions()
    for action in ("plan", "apply"):
        with pytest.raises(HistoryGoneError) as raised:
            pipeline.act("rewind", action, to_step=step)
        assert str(raised.value) == (
            f"'t' cannot go back to step {step}: its sink was recreated or restored since. Got: step {step}."
            " Allowed: step 4, whose rows were written to the sink again, or a later one."
            " Name one of these, or run 'ebbtide refresh' to rebuild all tables from the source."
        )
    assert pipeline.versions() == versions


@pytest.mark.parametrize(
    ("put_back", "step"), thinned([(False, 4), (False, 5), (False, 6), (True, 1), (True, 4), (True, 5)], 2)
)
def test_steps_that_the_sink_has_are_gone_back_to_beside_a_repair(repaired, put_back, step):
    pipeline = repaired(put_back=put_back)
    wanted = {n: n for n in (1, 2, 3, 4, 6) if n <= step}
    pipeline.act("rewind", to_step=step)
    assert pipeline.rows() == wanted
    pipeline.run()
    assert pipeline.rows() == {n: n for n in (1, 2, 3, 4, 6)}


def test_step_after_which_the_sink_was_not_written_is_gone_back_to(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read("{")
    pipeline.read(up(3, 3))
    pipeline.act("rewind", to_step=2)
    assert pipeline.rows() == {1: 1}
    pipeline.run()
    assert pipeline.rows() == {1: 1, 3: 3}


def test_step_before_columns_were_taken_in_is_refused_with_the_one_that_took_them(make):
    """The spec is as it was: there is nothing to change back."""
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2, more="x"))
    with pytest.raises(SpecChangedError) as raised:
        pipeline.act("rewind", "plan", to_step=1)
    assert str(raised.value) == (
        "Step 1 of 't' was made with another spec. Got: columns. Allowed: step 2 or a later one; or the spec of the step."
        " Name one of these, or change the spec back first."
    )
    pipeline.act("rewind", to_step=2)
    assert pipeline.rows() == {1: 1}
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2}


def newest_file(pipeline, pattern):
    return max(pipeline.home.glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def emptied(data):
    return b""


def cut(data):
    return data[:-1]


def zeros(data):
    return bytes(len(data))


HOWS = (emptied, cut, zeros)


@pytest.mark.parametrize(("pattern", "how"), graded(product(DAMAGED, HOWS), zip(DAMAGED, cycle(HOWS), strict=False)))
def test_step_whose_files_are_damaged_is_refused_and_an_earlier_one_gone_back_to(three_steps, pattern, how):
    pipeline, files = three_steps
    file = files[pattern]
    file.write_bytes(how(file.read_bytes()))
    versions = pipeline.versions()
    with pytest.raises(HistoryGoneError, match=f"{pattern[:4]}.* 1 of its data files damaged, as by a power cut"):
        pipeline.act("rewind", to_step=2)
    assert pipeline.versions() == versions
    pipeline.act("rewind", to_step=1)
    assert pipeline.rows() == {1: 1, 2: 1}
    pipeline.run()
    assert pipeline.rows() == {1: 2, 2: 1, 3: 3}


def test_repair_names_the_newest_step_that_can_be_gone_back_to(make):
    pipeline = make()
    in_sink = []
    for n in (1, 2, 3, 4):
        pipeline.read(up(n, n), up(1, 10 * n))
        in_sink.append(newest_file(pipeline, "sink/*.parquet"))
    for damaged in (in_sink[2], newest_file(pipeline, "state/*.parquet")):
        damaged.write_bytes(b"")
    with pytest.raises(RepairError, match="'ebbtide rewind --to-step 2 --apply': the files of that step are complete"):
        pipeline.act("repair")
    pipeline.act("rewind", to_step=2)
    assert pipeline.rows() == {1: 20, 2: 2}
    pipeline.run()
    assert pipeline.rows() == {1: 40, 2: 2, 3: 3, 4: 4}
