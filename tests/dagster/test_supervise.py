"""Work on a thread of its own: results, reports, errors, and an end at any time."""

import threading

import dagster as dg
import pytest

from ebbtide.dagster.supervise import supervised
from ebbtide.errors import ConfigError, LeaseHeldError


def test_result_and_all_reports_reach_the_thread_that_waits():
    heard = []

    def work(report, stop):
        for n in range(100):
            report((n, threading.current_thread().name))
        return "done"

    assert supervised(work, lambda each: heard.append((each, threading.current_thread().name))) == "done"
    assert [n for (n, _), _ in heard] == list(range(100))
    assert {names for (_, *names), names in [((n, w), (w, m)) for (n, w), m in heard]} == {("work", "MainThread")}


@pytest.mark.parametrize(("error", "retried"), [(ConfigError, False), (LeaseHeldError, True)])
def test_error_of_ours_is_a_failure_that_says_whether_a_retry_may_help(error, retried):
    def work(report, stop):
        raise error.of("It is so.", next_step="Do this.")

    with pytest.raises(dg.Failure) as caught:
        supervised(work, print)
    assert caught.value.description == f"{error.__name__}: It is so. Do this."
    assert caught.value.allow_retries is retried


def test_any_other_error_comes_as_it_is():
    def work(report, stop):
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        supervised(work, print)


def test_interrupt_asks_the_work_to_stop_and_waits_for_it():
    ended = threading.Event()

    def work(report, stop):
        report("step 1")
        stop.wait(10)
        ended.set()

    def interrupted(report):
        raise (
            dg.DagsterExecutionInterruptedError
            if hasattr(dg, "DagsterExecutionInterruptedError")
            else KeyboardInterrupt
        )

    with pytest.raises(BaseException):  # noqa: B017, PT011 - either kind of interrupt
        supervised(work, interrupted)
    assert ended.is_set()
