"""Work of a run without Spark goes to threads of its process: which work, how many threads, and the same tables as one thread makes."""

import random
import sys
import threading

import pytest
from frame.limits import set_limits
from local.local_pipeline import LATER, LocalPipeline, up
from local.support import plain

from ebbtide import InProcess, StatefulPipeline, run
from ebbtide.delta import Log
from ebbtide.errors import ConfigError
from ebbtide.executors import _in_process as in_process
from ebbtide.storage import Together


def test_items_are_done_at_the_same_time_in_the_context_of_their_caller():
    both = threading.Barrier(2, timeout=60)

    def work(item):
        both.wait()  # broken unless two threads come
        return item, Together.current(), InProcess().under_way

    with Together.step():
        InProcess.describe("orders step 3")
        step = Together.current()
        done = InProcess(threads=2).map(work, [3, 1])
    assert done == [(3, step, "orders step 3"), (1, step, "orders step 3")]


def test_little_work_stays_in_the_thread_of_its_caller():
    def thread(_):
        return threading.current_thread()

    here = threading.current_thread()
    assert InProcess(threads=2).map(thread, [1, 2], is_little=True) == [here, here]
    assert InProcess(threads=1).map(thread, [1, 2]) == [here, here]
    assert here not in InProcess(threads=2).map(thread, [1, 2])


def test_first_error_is_raised_and_waiting_items_are_not_begun():
    begun = []

    def work(item):
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        InProcess(threads=2).map(work, list(range(5_000)))
    assert len(begun) < 5_000


def test_output_of_work_in_threads_goes_to_standard_error(capsys):
    InProcess(threads=2).map(lambda item: sys.stdout.write(f"{item}\n"), [1, 2])
    out, err = capsys.readouterr()
    assert (out, sorted(err.split())) == ("", ["1", "2"])


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("1", 1)])
def test_number_of_threads_is_a_setting(shell, given, threads):
    shell.export(EBBTIDE_THREADS=given)
    executor = InProcess()
    assert executor.parallelism == threads
    assert executor.slices == (1 if threads == 1 else 8)


def test_number_of_threads_follows_the_cores(shell):
    shell.unset("EBBTIDE_THREADS")
    assert 1 <= InProcess().parallelism <= 8
    shell.export(EBBTIDE_THREADS="many")
    with pytest.raises(ConfigError, match=r"EBBTIDE_THREADS is not usable.*from 1 to 99"):
        InProcess()


@pytest.mark.parametrize(("limit", "cores"), [("50000 100000", 1), ("max 100000", None), ("nonsense", None)])
def test_threads_are_no_more_than_a_container_s_cores(tmp_path, limit, cores):
    cpu_max = tmp_path / "cpu.max"
    cpu_max.write_text(f"{limit}\n")
    assert in_process._cores(cpu_max) == (cores or in_process._cores(tmp_path / "none"))


def test_code_of_users_runs_in_one_thread():
    ours = plain("id BIGINT NOT NULL, n INT")
    function = StatefulPipeline(
        name="t",
        schema="id BIGINT, at TIMESTAMP",
        event_time="at",
        key=["id"],
        format={"type": "plain"},
        source={"path": "in", "records": "value"},
        function="ebbtide.functions:LastSeen",
    )
    executor = InProcess(threads=4)
    for spec, threads in ((ours, 4), (function, 1)):
        assert executor.for_pipeline("local", runs_user_code=spec.runs_user_code).parallelism == threads
    assert executor.parallelism == 4


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "fields",
    [
        {"ttl": "1h"},
        {"sink": {"write": "rewrite"}, "ttl": {"ttl": "1h", "expire_live": True}},
        {"order": "arrival", "materializer": {"emission": "every"}},
    ],
    ids=["vectors", "rewrite", "arrival"],
)
def test_threads_make_the_tables_that_one_thread_makes(tmp_path, fields, seed):
    set_limits(rows_in_driver=1, file_source_bytes_in_driver=0, little_bytes=0, change_piece_bytes=1)
    drawn = random.Random(seed)
    steps = [[[drawn_change(drawn) for _ in range(12)] for _ in range(3)] for _ in range(4)]
    made = []
    for threads in (1, 4):
        pipeline = LocalPipeline(tmp_path / str(threads), **fields)
        pipeline.spec = pipeline.with_fields(source={"max_files_per_step": 3})
        for files in steps:
            for lines in files:
                pipeline.put(*lines)
            run(InProcess(threads=threads), pipeline.spec, pipeline.root, clock=lambda: LATER)
        made.append((pipeline.rows(), pipeline.last.decision.counts))
        n_files = len(Log(pipeline.plan.sink.path).commit(1).adds())
        assert n_files == 1 if threads == 1 else n_files > 1
    assert made[0] == made[1]


def drawn_change(drawn):
    kind = drawn.choices(["+U", "-D"], [4, 1])[0]
    return up(drawn.randrange(20), drawn.randrange(100), kind)
