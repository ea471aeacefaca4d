"""The pace of a run: no more than so many records a second, over all steps; a process that asks for the lease gets it while a step is held back."""

import threading

import pytest

from ebbtide.errors import LeaseAskedError
from ebbtide.runtime._timing import LOOK_S, Pace, no_pace


class Time:
    """A clock that goes on by what is waited, and an event that is never set."""

    def __init__(self):
        self.now_s = 0.0
        self.waits = []

    def wait(self, seconds):
        self.waits.append(seconds)
        self.now_s += seconds
        return False

    def is_set(self):
        return False


def test_steps_wait_for_as_long_as_their_records_take():
    time = Time()
    pace = Pace(100, time, lambda: time.now_s)
    pace.wait(lambda: None)
    assert time.now_s == 0, "the first one does not"
    time.now_s = 1.0
    pace.passed(250)
    time.now_s = 2.0
    pace.wait(lambda: None)
    assert time.now_s == 2.5, "of what they take the step's own time is a part"
    pace.passed(50)
    pace.wait(lambda: None)
    assert time.now_s == 3.0
    assert max(time.waits) <= LOOK_S


def test_step_that_took_longer_is_not_waited_with():
    time = Time()
    pace = Pace(100, time, lambda: time.now_s)
    pace.passed(100)
    time.now_s = 5.0
    pace.wait(lambda: None)
    assert time.waits == []


def test_whoever_asks_is_heard_and_a_stop_ends_the_waiting():
    time = Time()
    pace = Pace(1, time, lambda: time.now_s)
    pace.passed(3600)

    def asked():
        raise LeaseAskedError("a process asks")

    with pytest.raises(LeaseAskedError):
        pace.wait(asked)
    assert time.now_s == LOOK_S
    stop = threading.Event()
    stop.set()
    stopped = Pace(1, stop)
    stopped.passed(3600)
    stopped.wait(asked)


def test_without_a_rate_nothing_waits():
    pace = no_pace()
    pace.passed(10**9)
    pace.wait(lambda: pytest.fail("nothing is waited for"))
