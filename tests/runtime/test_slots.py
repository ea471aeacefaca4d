"""Turns of many runs in few threads: in the order in which they asked, and beside a piece that takes long."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from frame.waiting import PATIENCE_S, until

from ebbtide.fleet._slots import Slots


def waiting(slots, n):
    """Wait until so many pieces wait."""
    until(lambda: len(slots._waiting) >= n)


def test_pieces_are_made_in_the_order_in_which_they_were_asked_for():
    slots = Slots(1)
    made = []
    begun, go_on = threading.Event(), threading.Event()

    def first():
        begun.set()
        go_on.wait(PATIENCE_S)

    with ThreadPoolExecutor(10) as runs:
        runs.submit(slots.in_turn, first)
        assert begun.wait(PATIENCE_S)
        for number in range(8):
            runs.submit(slots.in_turn, lambda number=number: made.append(number))
            waiting(slots, number + 1)
        assert made == []
        go_on.set()
    assert made == list(range(8))
    assert slots.n_threads == 1


def test_piece_that_takes_long_holds_no_other_one_up():
    slots = Slots(1, long_s=0.01)
    done = threading.Event()
    with ThreadPoolExecutor(1) as runs:
        stuck = runs.submit(slots.in_turn, lambda: done.wait(PATIENCE_S))
        assert [slots.in_turn(lambda number=number: number) for number in range(3)] == [0, 1, 2]
        assert not stuck.done()
        assert slots.n_threads == 2
        done.set()
        assert stuck.result(PATIENCE_S)
    slots.in_turn(lambda: None)
    assert slots.n_threads == 1, "the further thread has ended"


def test_no_more_threads_are_begun_than_are_allowed():
    slots = Slots(1, most=2, long_s=0.01)
    done = threading.Event()
    with ThreadPoolExecutor(4) as runs:
        for _ in range(3):
            runs.submit(slots.in_turn, lambda: done.wait(PATIENCE_S))
        waiting(slots, 1)
        last = runs.submit(slots.in_turn, lambda: "last")
        waiting(slots, 2)
        assert slots.n_threads <= 2
        done.set()
        assert last.result(PATIENCE_S) == "last"


class Table:
    """Stands for what a step holds."""


def test_error_is_raised_where_it_was_asked_for_and_is_held_by_nothing():
    held = []

    def fail():
        table = Table()
        held.append(weakref.ref(table))
        raise ValueError("bad")

    gc.disable()
    try:
        with pytest.raises(ValueError, match="bad") as caught:
            Slots(1).in_turn(fail)
        del caught
        until(lambda: held[0]() is None)  # the thread of the slot may be about to let go
    finally:
        gc.enable()


def test_timeout_of_a_piece_is_its_own_error():
    def fail():
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError, match="no answer"):
        Slots(1).in_turn(fail)


def test_piece_is_made_in_the_context_of_its_run():
    slots = Slots(1)
    at_work = ContextVar("at_work", default=None)

    def run(name):
        at_work.set(name)
        return [slots.in_turn(at_work.get) for _ in range(2)]

    with ThreadPoolExecutor(2) as runs:
        assert list(runs.map(run, ["a", "b"])) == [["a", "a"], ["b", "b"]]
    assert at_work.get() is None
