"""Makes the batches of a run in this process, without a JVM.

A run on Spark continues where a local one has stopped, and vice versa.

A local run is for data that fits one process: a step is decided in groups of keys, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

from ebbtide.storage import Location, Together
from ebbtide.tasks import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.runtime._batches import Query


def local_session(batch_time: Callable[[int], int] | None = None) -> SparkSession:
    """Return the replacement of a session without a JVM; see `ebbtide.tasks.LocalSession`.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number: its step's clock. Default: the run's clock does; with
            a given one a run can be repeated to the millisecond, for tests.
    """
    return cast("SparkSession", LocalSession(batch_time))


def drive(session: SparkSession | LocalSession, query: Query) -> None:
    """Make batches until nothing is left to read, or the run is stopped.

    Args:
        session: The session that the steps are made with.
        query: The batches.
    """
    if not isinstance(session, LocalSession):
        for _ in query.made():
            pass  # batches are made on request
        return
    within = Together.step if Location(query.plan.root).is_in_object_store else nullcontext
    for _ in query.made(session.batch_time, within):
        pass  # batches are made on request
