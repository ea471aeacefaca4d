"""Batches of a run that a streaming query of Spark makes on a thread of its own: what ends them, and what is raised of it."""

import contextlib
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest
from frame.waiting import PATIENCE_S

from ebbtide.errors import LeaseLostError
from ebbtide.sessions._stream import MicroBatches


class Query:
    """Calls for micro-batches on a thread of its own as Spark's query does, until it is stopped or fails."""

    def __init__(self, batches, failure=None):
        self.batches, self.failure = batches, failure
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, name="Spark's", daemon=True)
        self.thread.start()

    def run(self):
        number = 0
        while not self.stopped.is_set() and self.failure is None:
            self.batches.on_batch("frame", number)
            number += 1

    @property
    def isActive(self):  # noqa: N802 - Spark's name
        return self.thread.is_alive()

    def stop(self):
        self.stopped.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()

    def awaitTermination(self, timeout):  # noqa: N802 - Spark's name
        if self.failure is not None:
            raise self.failure


def drive(made, stop=None, failure=None):
    batches = MicroBatches(iter(made), stop or threading.Event())
    query = Query(batches, failure)
    batches.wait(query, "t")
    assert query.stopped.is_set()
    return batches


def test_batches_are_made_in_turn_on_the_thread_of_the_query_until_none_is_left():
    made = []

    def batches():
        for number in range(3):
            made.append((number, threading.current_thread().name))
            yield number

    drive(batches())
    assert made == [(number, "Spark's") for number in range(3)]


def test_memory_that_arrow_keeps_for_the_thread_of_the_batches_is_given_back_there(monkeypatch):
    class Pool:
        def release_unused(self):
            released.append(threading.current_thread().name)

    released = []
    monkeypatch.setattr("ebbtide.sessions._stream.pa.default_memory_pool", Pool)
    drive([0, 1])
    assert released == ["Spark's"] * 3


class Tables:
    """What a run holds, and its steps use."""


def batch_of(tables, *, fails):
    yield 0
    if fails:
        raise LeaseLostError(f"gone: {tables}")


@pytest.mark.parametrize("fails", [False, True])
def test_batches_of_a_query_that_has_ended_hold_nothing_of_the_run_though_the_jvm_holds_them(fails):
    tables = Tables()
    held = weakref.ref(tables)
    batches = MicroBatches(batch_of(tables, fails=fails), threading.Event())
    query = Query(batches)
    expected = pytest.raises(LeaseLostError) if fails else contextlib.nullcontext()
    with expected:
        batches.wait(query, "t")
    del tables, expected
    gc.collect()
    assert held() is None
    batches.on_batch("frame", 2)


def failing(error):
    yield 0
    raise error


@pytest.mark.parametrize("is_stopped", [False, True])
def test_failure_of_a_batch_is_raised_itself_also_of_a_run_that_is_being_stopped(is_stopped):
    stop = threading.Event()
    if is_stopped:
        stop.set()
    with pytest.raises(ValueError, match="in the step"):
        drive(failing(ValueError("in the step")), stop)


def test_error_of_ours_within_what_spark_raises_is_raised_in_its_place():
    spark_s = RuntimeError("A task failed.\nebbtide.errors.LeaseLostError: another run\n  at a line of Java")
    with pytest.raises(LeaseLostError, match="another run"):
        drive(failing(spark_s))


def test_failure_of_the_query_itself_is_raised():
    stop = threading.Event()
    with pytest.raises(OSError, match="no disk"):
        drive([0], stop, OSError("no disk"))
    assert stop.is_set()


def test_query_that_another_part_of_the_program_stops_ends_the_run():
    stop, begun = threading.Event(), threading.Event()

    def batches():
        yield 0
        begun.set()
        stop.wait(PATIENCE_S)

    made = MicroBatches(batches(), stop)
    query = Query(made)
    assert begun.wait(PATIENCE_S)
    query.thread.is_alive = lambda: False  # as Spark says of a query from the moment that it is being stopped
    made.wait(query, "t")
    assert stop.is_set()


def test_step_under_way_ends_before_a_run_whose_query_failed_is_over():
    stop, begun = threading.Event(), threading.Event()
    made = []

    def batches():
        begun.set()
        stop.wait(PATIENCE_S)
        made.append("step")
        yield 0

    micro_batches = MicroBatches(batches(), stop)
    threading.Thread(target=micro_batches.on_batch, args=("frame", 0), daemon=True).start()
    assert begun.wait(PATIENCE_S)
    jvm_gone = ConnectionError("the JVM is gone")
    query = Query(micro_batches, jvm_gone)
    with pytest.raises(ConnectionError):
        micro_batches.wait(query, "t")
    assert made == ["step"]


def test_interrupt_of_the_run_ends_it_after_the_step_under_way(monkeypatch):
    stop = threading.Event()
    made = MicroBatches(iter([0]), stop)

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    threads = SimpleNamespace(Event=Interrupted, Thread=threading.Thread)
    monkeypatch.setattr("ebbtide.sessions._stream.threading", threads)
    monkeypatch.setattr(made, "_end", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        made.wait(None, "t")
    assert stop.is_set()
