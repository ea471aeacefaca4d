"""Power cuts where Spark writes the sink: a later commit, of the state or the checkpoint, relies on no file that is not on disk."""

from pathlib import Path

import pytest
from local_pipeline import LATER, LocalPipeline, up
from local_run import drive, kept_apart
from power import copies_at_syncs

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.ledger import transaction
from ebbtide.maintenance.job import maintain
from ebbtide.runtime import driver
from ebbtide.runtime import stream as streaming
from ebbtide.runtime.plan import Plan

pytestmark = pytest.mark.spark


class MergedPipeline(LocalPipeline):
    """A pipeline whose steps are made in this process, and whose sink is Spark's."""

    def __init__(self, folder, spark):
        super().__init__(folder, sink={"write": "merge"})
        self.spark = spark

    def run(self):
        streaming.drive = drive
        return driver.run(self.spark, self.spec, self.root, clock=lambda: LATER)

    def read(self, *lines):
        self.put(*lines)
        return self.run()


@pytest.fixture
def pipeline(spark, tmp_path):
    with kept_apart():
        made = MergedPipeline(tmp_path, spark)
        made.read(up(1, 1), up(2, 1))
        yield made


def relied_on(copy, spec):
    """The last step of the sink that a later commit of the state or the checkpoint names."""
    plan = Plan.under(str(copy), spec)
    _, last = plan.state.last()
    is_published = plan.checkpoint.last_committed() == last.batch_id
    return last.step if is_published else last.step - 1


class Relied:
    """Holds that each copy has the sink as it was after the last step that is relied on.

    Args:
        pipeline: Its last step is relied on from now on.
    """

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.sinks = {}
        self.note()

    def note(self):
        """Note what the sink has after the last step."""
        pipeline = self.pipeline
        self.sinks[pipeline.last.step] = (pipeline.plan.sink.version(), pipeline.rows())

    def hold(self, copies):
        """Hold it; return the steps that are relied on."""
        steps = set()
        spec = self.pipeline.spec
        for copy in copies:
            step = relied_on(copy, spec)
            steps.add(step)
            version, want = self.sinks[step]
            found = Snapshot.read(Plan.under(str(copy), spec).at("sink"), version, any_features=True)
            rows = read_rows(found, spec.sink_table.columns).to_pylist()
            assert (found.version, {row["id"]: row["n"] for row in rows}) == (version, want), copy
        return steps


def test_commit_of_spark_is_on_disk_before_a_later_one_relies_on_it(pipeline, tmp_path):
    relied = Relied(pipeline)
    with copies_at_syncs(Path(pipeline.root), tmp_path / "cuts") as copies:
        pipeline.read(up(1, 2), up(3, 2))
        relied.note()
        maintain(pipeline.spark, pipeline.spec, pipeline.root, "compaction")
        relied.note()
        pipeline.read(up(2, 4))
        relied.note()
    assert relied.hold(copies) == {1, 2, 3, 4}


def test_commit_of_spark_that_a_killed_run_left_is_on_disk_before_a_later_one(pipeline, tmp_path, monkeypatch):
    settle = transaction.settle
    n_calls = 0

    def killed(*given):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:  # behind the step's MERGE; the first one is what the run begins with
            raise InterruptedError
        settle(*given)

    relied = Relied(pipeline)
    monkeypatch.setattr(transaction, "settle", killed)
    with copies_at_syncs(Path(pipeline.root), tmp_path / "cuts") as copies:
        pipeline.put(up(1, 2), up(3, 2))
        with pytest.raises(InterruptedError):
            pipeline.run()
        relied.note()
        pipeline.read(up(2, 4))
        relied.note()
    assert relied.hold(copies) == {1, 2, 3}
