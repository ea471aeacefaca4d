"""Runs work that calls into the JVM so that Dagster can end it at any time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import dagster as dg

from ebbtide.errors import EbbtideError, LeaseHeldError, Transient
from ebbtide.redaction import redacted

Result = TypeVar("Result")
Report = TypeVar("Report")
GRACE_S = 30
"""Seconds that a terminated run has to finish the step under way. The monitor kills it after `cancel_timeout_seconds`, 60;
the next run finishes or repeats a step that was cut off."""
IS_TRANSIENT = "is_transient"
"""Metadata of a failure: a later run may succeed without anyone acting."""

WAIT_S = 30
MOST_WAITS = 20
"""Seconds between two attempts to take the lease, and the number of attempts after the first."""


@contextmanager
def waiting_for_lease() -> Iterator[None]:
    """Have Dagster repeat the step later while another run holds the pipeline's lease.

    Usually the run queue lets runs of one pipeline take turns. It does not see those of the command line, nor those without tags.
    """
    try:
        yield
    except dg.Failure as failure:
        if isinstance(failure.__cause__, LeaseHeldError):
            raise dg.RetryRequested(MOST_WAITS, WAIT_S) from failure
        raise


def supervised(
    work: Callable[[Callable[[Report], None], threading.Event], Result],
    on_report: Callable[[Report], None] = lambda _: None,
) -> Result:
    """Do work on another thread while this one only waits, so that an interrupt never breaks a call into the JVM.

    Args:
        work: Is given a function to report by, and an event that asks it to stop.
        on_report: Called on this thread with each report.

    Raises:
        dagster.Failure: the work raised one of Ebbtide's errors; one that comes back until a user acts is not retried.
    """
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    stop = threading.Event()
    outcome: list[Result] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work(reports.put, stop))
        except BaseException as error:  # noqa: BLE001 - raised again on the thread that waits
            raised.append(error)

    worker = threading.Thread(target=run, name="work", daemon=True)
    worker.start()
    try:
        # The thread may end between two polls with reports left: continue until both it and the queue are done.
        while worker.is_alive() or not reports.empty():
            try:
                on_report(reports.get(timeout=0.2))
            except queue.Empty:
                continue
    except BaseException:
        stop.set()
        worker.join(GRACE_S)
        raise
    if raised:
        error = raised[0]
        if isinstance(error, EbbtideError):
            kind = type(error).__name__
            is_transient = isinstance(error, Transient)
            raise dg.Failure(
                f"{kind}: {error}", metadata={IS_TRANSIENT: is_transient}, allow_retries=is_transient
            ) from error
        message = str(error)
        if redacted(message) != message:
            raise dg.Failure(f"{type(error).__name__}: {redacted(message)}") from None
        raise error
    return outcome[0]
