"""Power cuts where Spark writes the sink: a later commit of the state relies on no file that is not on disk."""

from pathlib import Path

import pytest
from crashes.power import copies_at_syncs
from frame.limits import limits
from local.local_pipeline import LATER, LocalPipeline, up

import ebbtide
from ebbtide.delta import Snapshot, Writer
from ebbtide.executors import Executor
from ebbtide.operations import maintain
from ebbtide.runtime import Plan
from ebbtide.sessions import OnSpark

pytestmark = pytest.mark.spark


class WithoutStream(OnSpark):
    """Makes batches in this thread, so that a cut is at a known place."""

    drive = Executor.drive


class MergedPipeline(LocalPipeline):
    """A pipeline whose sink is Spark's."""

    def __init__(self, folder, executor):
        super().__init__(folder, sink={"write": "merge"})
        self.executor = executor

    def run(self):
        return ebbtide.run(self.executor, self.spec, self.root, clock=lambda: LATER)

    def read(self, *lines):
        self.put(*lines)
        return self.run()


@pytest.fixture
def pipeline(spark, tmp_path):
    with limits():
        made = MergedPipeline(tmp_path, WithoutStream(spark))
        made.read(up(1, 1), up(2, 1))
        yield made


def relied_on(copy, spec):
    """The last step of the sink that a later commit of the state names."""
    _, last = Plan.under(str(copy), spec).state.last()
    return last.state.tables["sink"].step


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
            if step not in self.sinks:
                continue  # of before the first note
            steps.add(step)
            version, want = self.sinks[step]
            found = Snapshot.read(Plan.under(str(copy), spec).at("sink"), version, any_features=True)
            rows = found.rows(spec.sink_table.columns).to_pylist()
            assert (found.version, {row["id"]: row["n"] for row in rows}) == (version, want), copy
        return steps


@pytest.mark.parametrize("is_compacted", [False, pytest.param(True, marks=pytest.mark.grid)])
def test_commit_of_spark_is_on_disk_before_a_later_one_relies_on_it(pipeline, tmp_path, monkeypatch, is_compacted):
    """That of a run that was killed behind it, perhaps of a compaction, and of a step."""
    sync_commits = Writer.sync_commits
    n_calls = 0

    def killed(*given):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:  # behind the step's MERGE; the first one is what the run begins with
            raise InterruptedError
        sync_commits(*given)

    relied = Relied(pipeline)
    monkeypatch.setattr(Writer, "sync_commits", killed)
    with copies_at_syncs(Path(pipeline.root), tmp_path / "cuts") as copies:
        pipeline.put(up(1, 2), up(3, 2))
        with pytest.raises(InterruptedError):
            pipeline.run()
        relied.note()
        if is_compacted:
            maintain(pipeline.executor, pipeline.spec, pipeline.root, "compaction")
            relied.note()
        pipeline.read(up(2, 4))
        relied.note()
        pipeline.read(up(2, 5))
    assert relied.hold(copies) == set(relied.sinks)
