"""What runs the work of steps: a contract that a stranger's class can meet, and what becomes of a session that is given in its place."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest
from frame.limits import set_limits
from local.local_pipeline import LATER, LocalPipeline, up
from pyspark import cloudpickle

from ebbtide import InProcess, run
from ebbtide.delta import Log
from ebbtide.errors import ConfigError
from ebbtide.executors import Executor
from ebbtide.sessions import OnSpark, executor_of


def _done(sent):
    work, item = cloudpickle.loads(sent)
    return os.getpid(), work(item)


class Pool(Executor):
    """Runs work in processes of a pool.

    Args:
        n_processes: So many.
    """

    def __init__(self, n_processes):
        self._pool = ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn"))
        self._n_processes = n_processes
        self.workers = set()

    @property
    def parallelism(self):
        return self._n_processes

    def map(self, work, items, *, is_little=False, at=None):
        if is_little:
            return [work(item) for item in items]
        sent = [cloudpickle.dumps((work, item)) for item in items]
        results = []
        for worker, result in self._pool.map(_done, sent):
            self.workers.add(worker)
            results.append(result)
        return results

    def close(self):
        self._pool.shutdown()


@pytest.fixture(scope="module")
def started_pool():
    """Started once: each of its processes takes a second to begin."""
    made = Pool(2)
    yield made
    made.close()


@pytest.fixture
def pool(started_pool):
    started_pool.workers.clear()
    return started_pool


@pytest.mark.parametrize("write", ["vectors", "rewrite"])
def test_third_executor_makes_the_same_tables(tmp_path, pool, write):
    set_limits(
        rows_in_driver=1,
        file_source_bytes_in_driver=0,
        judging_rows_in_driver=0,
        little_bytes=0,
        change_piece_bytes=1,
    )
    rows = []
    for executor in (pool, InProcess()):
        pipeline = LocalPipeline(tmp_path / type(executor).__name__ / write, ttl="1h", sink={"write": write})
        for lines in ([up(n, 1) for n in range(9)], [up(1, 2), up(2, 2, "-D"), up(9, 2)]):
            pipeline.put(*lines)
            run(executor, pipeline.spec, pipeline.root, clock=lambda: LATER)
        rows.append(pipeline.rows())
        written = Log(pipeline.plan.sink.path).commit(2).adds()
        assert len(written) > 1, "a task for each part"
    of_pool, here = rows
    assert of_pool == here == {0: 1, 1: 2, **dict.fromkeys(range(3, 9), 1), 9: 2}
    assert pool.workers
    assert os.getpid() not in pool.workers


def test_executor_without_spark_says_how_to_have_it():
    for executor in (InProcess(), Pool(1)):
        with pytest.raises(ConfigError, match=r"needs Spark.*Got: an executor in this process.*--engine spark"):
            executor.spark()


def test_executor_stands_for_itself():
    here = InProcess()
    assert executor_of(here) is here


@pytest.mark.parametrize(
    ("engine", "is_little", "is_here"), [("auto", True, True), ("auto", False, False), ("spark", True, False)]
)
def test_spark_leaves_little_work_to_this_process_but_for_engine_spark(engine, is_little, is_here):
    assert OnSpark(object).for_pipeline(engine, runs_user_code=False).does_itself(is_little=is_little) is is_here
