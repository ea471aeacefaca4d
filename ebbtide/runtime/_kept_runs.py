"""Keeps the ends of maintenance, and of runs that died; those of runs: `ebbtide.runtime._keeps_end`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ebbtide.errors import StoreUnavailableError
from ebbtide.ledger import KeptRun, Lease, NoStep, StepFacts
from ebbtide.processes import Process
from ebbtide.runtime._timing import system_clock

_log = logging.getLogger(__name__)


@contextmanager
def keeping(pipeline: str, home: str, lease: Lease, last: Callable[[], StepFacts | NoStep]) -> Iterator[None]:
    """Keep the end of maintenance that holds the lease, once the block ends.

    Args:
        pipeline: Its name.
        home: Folder of its tables.
        lease: The lease.
        last: Returns the facts of the last step.
    """
    note_left(home, lease)
    kept = begun(pipeline, "maintenance").model_copy(update={"epoch": lease.facts.epoch})
    before = last().step
    cpu_s = time.process_time()

    def made() -> KeptRun:
        facts = last()
        done: dict[str, object] = {"cpu_seconds": round(time.process_time() - cpu_s, 3)}
        if isinstance(facts, StepFacts) and facts.step > before:
            done |= {"job": facts.cause.what, "first_step": before + 1, "last_step": facts.step}
        return kept.model_copy(update=done)

    try:
        yield
    except BaseException as error:
        note(made().failed_with(error), home, error)
        raise
    note(made(), home, None)


def note_left(home: str, lease: Lease) -> None:
    """Keep the end of a run that died with the lease which this one has taken over.

    Args:
        home: Folder of the pipeline's tables.
        lease: The lease.
    """
    left = KeptRun.left_by(lease.before)
    if left is not None:
        note(left, home, None)


def begun(pipeline: str, job: str) -> KeptRun:
    """Return the end of a run that begins, as if it had succeeded.

    Args:
        pipeline: Its name.
        job: `run`, `refresh`, or the maintenance.
    """
    host = Process.this().host
    return KeptRun(pipeline=pipeline, job=job, outcome="succeeded", exit_code=0, host=host, started_ms=system_clock())


def note(kept: KeptRun, home: str, error: BaseException | None) -> None:
    """Store an end; nothing that only watches a run ends it.

    Args:
        kept: The end.
        home: Folder of the pipeline's tables.
        error: Why it ended.
    """
    if isinstance(error, StoreUnavailableError):
        return  # the store was retried for long enough
    try:
        kept.model_copy(update={"ended_ms": None if kept.outcome == "died" else system_clock()}).note(home)
    except Exception as failure:  # noqa: BLE001 - the run ends as it does
        _log.warning("The end of a run was not kept: %s: %s", type(failure).__name__, failure)
