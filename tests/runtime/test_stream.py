"""A source that does not come up in time is started again; what has begun is not."""

import logging
import threading

import pytest

from ebbtide.errors import SourceStartError
from ebbtide.runtime import stream as runner
from ebbtide.runtime.stream import start_patiently

SLOW = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


PATIENCE_S = runner.START_WAITS_S


class Waits(threading.Event):
    """Notes how long it would have waited."""

    def __init__(self):
        super().__init__()
        self.total_s = 0.0

    def wait(self, timeout=None):
        self.total_s += timeout
        return False


class Attempts:
    """Fails a given number of times, then works."""

    def __init__(self, failures, message=SLOW, begun=None):
        self.failures, self.message, self.begun, self.count = failures, message, begun, 0

    def __call__(self):
        self.count += 1
        if self.begun:
            self.begun.set()
        if self.count <= self.failures:
            raise RuntimeError(self.message)


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(runner, "START_WAITS_S", (0.0, 0.0))


def start(attempts, stop=None):
    start_patiently(attempts, attempts.begun or threading.Event(), stop or threading.Event())
    return attempts.count


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_slow_start_is_tried_again_and_each_time_said(caplog, failures):
    with caplog.at_level(logging.WARNING):
        assert start(Attempts(failures)) == failures + 1
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == failures
    assert all(f"attempt {number} in 0 s. No step was begun." in line for number, line in enumerate(said, 2))


def test_start_that_is_always_slow_ends_with_an_error_that_may_be_retried():
    with pytest.raises(SourceStartError, match=r"within 10 s, 3 times.*Run again when the machine is less busy"):
        start(Attempts(99))


def test_slow_start_of_a_worker_within_a_step_is_not_tried_again():
    attempts = Attempts(99, begun=threading.Event())
    with pytest.raises(RuntimeError, match="failed to connect back"):
        start(attempts)
    assert attempts.count == 1


def test_other_failures_are_not_tried_again():
    attempts = Attempts(99, "Table or view not found")
    with pytest.raises(RuntimeError, match="Table"):
        start(attempts)
    assert attempts.count == 1


def test_stop_ends_the_waiting():
    stop = threading.Event()
    stop.set()
    assert start(Attempts(99), stop) == 1


def test_host_that_is_busy_for_twenty_minutes_is_waited_out(monkeypatch):
    monkeypatch.setattr(runner, "START_WAITS_S", PATIENCE_S)
    waits = Waits()
    with pytest.raises(SourceStartError):
        start(Attempts(99), waits)
    assert waits.total_s >= 20 * 60
