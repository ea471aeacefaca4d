"""Batches that Spark makes one after the other, on a thread of its own: what stops them, and what is reported of it."""

import contextlib
import gc
import threading
import weakref

import pytest

from ebbtide.errors import LeaseLostError
from ebbtide.runtime.batches import Batches

AT_ONCE_S = 30


class Query:
    """Calls for batches as Spark's query does, from the moment that it is waited for; a failure ends it."""

    def __init__(self, n_batches, between_batches=lambda: None):
        self.n_batches, self.between_batches = n_batches, between_batches
        self.batches = None
        self.n_stops = 0
        self.stopped = threading.Event()

    def awaitTermination(self):  # noqa: N802 - Spark's name
        for batch in range(self.n_batches):
            if self.stopped.is_set():
                return
            try:
                self.batches.on_batch(f"frame {batch}", batch)
            except Exception as error:
                raise RuntimeError("the query failed") from error
            self.between_batches()

    def stop(self):
        self.n_stops += 1
        self.stopped.set()


def drive(query, step=lambda frame, batch: None, between=lambda: None, stop=None):
    begun = threading.Event()
    query.batches = Batches(step, between, stop or threading.Event(), begun)
    try:
        query.batches.drive(query, "t")
    finally:
        assert begun.is_set() == (query.n_batches > 0)


def test_batches_are_made_in_turn_until_the_query_ends():
    made = []
    query = Query(3)
    drive(query, lambda *batch: made.append(batch))
    assert made == [("frame 0", 0), ("frame 1", 1), ("frame 2", 2)]
    assert query.n_stops == 0


def test_memory_that_arrow_keeps_for_the_thread_of_the_batches_is_given_back_there(monkeypatch):
    class Pool:
        def release_unused(self):
            released.append(threading.current_thread().name)

    released = []
    monkeypatch.setattr("ebbtide.runtime.batches.pa.default_memory_pool", Pool)
    drive(Query(2))
    assert released == ["query-t", "query-t"]


class Tables:
    """What a run holds, and its steps use."""

    def step(self, frame, batch):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_batches_of_a_query_that_has_ended_hold_nothing_of_the_run_though_the_jvm_holds_them(fails):
    tables = Tables()
    held = weakref.ref(tables)

    def step(frame, batch, tables=tables):
        tables.step(frame, batch)
        if fails:
            raise LeaseLostError("gone")

    query = Query(1)
    expected = pytest.raises(LeaseLostError) if fails else contextlib.nullcontext()
    with expected:
        drive(query, step, lambda tables=tables: None)
    del tables, step, expected
    gc.collect()
    assert held() is None
    with pytest.raises(InterruptedError):
        query.batches.on_batch("frame", 2)


def test_query_is_waited_for_on_a_thread_that_keeps_no_process_alive():
    threads = []
    drive(Query(1), lambda *_: threads.append(threading.current_thread()))
    assert [(thread.name, thread.daemon) for thread in threads] == [("query-t", True)]


def test_failure_of_a_run_that_is_being_stopped_is_raised():
    stop = threading.Event()

    def step(*_):
        stop.set()
        raise ValueError("in the step")

    with pytest.raises(ValueError, match="in the step"):
        drive(Query(1), step, stop=stop)


def test_interrupt_of_a_run_that_nobody_stops_is_raised():
    def step(*_):
        raise InterruptedError("by a signal")

    with pytest.raises(InterruptedError, match="by a signal"):
        drive(Query(1), step)


def test_query_without_a_batch_has_not_begun():
    drive(Query(0))


def test_stop_lets_the_batch_under_way_end_and_is_no_failure():
    stop, made = threading.Event(), []
    query = Query(3)

    def step(_, batch):
        stop.set()
        assert not query.stopped.wait(0.5), "it is not stopped within a batch"
        made.append(batch)

    drive(query, step, stop=stop)
    assert made == [0]


def test_stop_between_two_batches_stops_the_query():
    stop = threading.Event()
    query = Query(2)
    query.between_batches = lambda: (stop.set(), query.stopped.wait(AT_ONCE_S))
    drive(query, stop=stop)
    assert query.n_stops > 0


def test_what_failed_in_a_batch_is_raised_itself():
    query = Query(2)

    def step(*_):
        raise ValueError("in the step")

    with pytest.raises(ValueError, match="in the step"):
        drive(query, step)


def test_error_of_ours_within_what_spark_raises_is_raised_in_its_place():
    def step(*_):
        raise RuntimeError("A task failed.\nebbtide.errors.LeaseLostError: another run\n  at a line of Java")

    with pytest.raises(LeaseLostError, match="another run"):
        drive(Query(1), step)


def test_failure_of_the_query_itself_is_raised():
    def fails():
        raise OSError("no checkpoint")

    with pytest.raises(OSError, match="no checkpoint"):
        drive(Query(1, fails))


def test_run_looks_around_between_batches_and_never_within_one():
    query = Query(2)
    looked, within, overlaps = threading.Event(), threading.Event(), []

    def step(*_):
        within.set()
        looked.clear()
        looked.wait(0.5)  # five looks' time
        overlaps.append(looked.is_set())
        within.clear()

    def between():
        overlaps.append(within.is_set())
        looked.set()

    query.between_batches = lambda: overlaps.append(not looked.wait(AT_ONCE_S))
    drive(query, step, between)
    assert not any(overlaps)
    assert len(overlaps) >= 6


def test_what_fails_between_two_batches_stops_the_query_and_is_raised():
    query = Query(2)
    query.between_batches = lambda: query.stopped.wait(AT_ONCE_S)
    made = []

    def between():
        raise LeaseLostError("another run")

    with pytest.raises(LeaseLostError, match="another run"):
        drive(query, lambda *batch: made.append(batch), between)
    assert query.n_stops > 0
    assert len(made) <= 1
