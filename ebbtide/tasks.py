"""Runs a function over several items, in this process or in the tasks of a Spark job; and a session for runs without Spark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO, TypeVar, cast

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BYTES_IN_DRIVER = 8 * 2**20
"""Maximum bytes of data files that the driver reads or rewrites itself: a Spark job costs more."""
DESCRIPTION = "spark.job.description"
"""Spark's name for what a job's page shows."""
EngineKind = Literal["auto", "spark", "local"]
"""Where runs make their steps: as `ebbtide.runtime._engines` chooses, on Spark, or in their own process."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class LazySession:
    """Stands for a Spark session that starts when a member of it is first used.

    What takes a session begins with what it refuses, or plans, from the logs of tables alone; no JVM starts for that.

    Args:
        start: Starts the session, or returns the one that runs.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        """Return a member of the session."""
        if name.startswith("__"):  # a probe for a protocol, as by copy or pickle, does not use Spark
            raise AttributeError(name)
        return getattr(self._start(), name)


def lazy_session(start: Callable[[], SparkSession], root: str) -> SparkSession:
    """Return a session that starts when it is used first; at once where Spark's JVM writes the files of a root.

    Args:
        start: Starts the session, or returns the one that runs.
        root: Folder of all pipelines' tables.
    """
    from ebbtide.storage import Location

    return start() if Location(root).needs_jvm else cast("SparkSession", LazySession(start))


@dataclass(frozen=True)
class LocalSession:
    """Replaces a Spark session in runs without a JVM: tasks run in this process; other uses are refused by name.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number; None: the clock of the run does.

    Attributes:
        conf: Settings that a step reads.
        sparkContext: The parallelism that a step reads: one task at a time.
    """

    conf: ClassVar[dict[str, str]] = {"spark.sql.shuffle.partitions": "1"}
    sparkContext: ClassVar[SimpleNamespace] = SimpleNamespace(defaultParallelism=1)  # noqa: N815 - Spark's name
    batch_time: Callable[[int], int] | None = None

    def __getattr__(self, name: str) -> Any:
        """Refuse every other member of a session.

        Raises:
            ConfigError: always.
        """
        # Dunder names are looked up by Python itself, for instance by `copy`: they must just be absent.
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigError.of(
            "This needs Spark, and no Spark session was started.",
            got=f"a use of its '{name}' in a local run",
            next_step="Run it with --engine spark.",
        )


def is_without_spark(spark: SparkSession | LocalSession) -> bool:
    """Return whether this process makes the steps, without Spark."""
    return isinstance(spark, LocalSession)


_redirected: list[TextIO] = []
"""Standard output as it was, once for each thread under way that has redirected it."""
_redirecting = threading.Lock()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect prints of the whole process: from the first thread that requests it to the last."""
    with _redirecting:
        _redirected.append(_redirected[0] if _redirected else sys.stdout)
        sys.stdout = sys.stderr
    try:
        yield
    finally:
        with _redirecting:
            before = _redirected.pop()
            if not _redirected:
                sys.stdout = before


_engine: ContextVar[EngineKind] = ContextVar("engine", default="auto")
"""The engine that the spec of the work under way names."""
_work: ContextVar[str] = ContextVar("work", default="ebbtide")
"""The work under way, in words for Spark's UI."""


@contextmanager
def on_engine(engine: EngineKind) -> Iterator[None]:
    """Run the tasks of some work on a spec's engine: with `spark`, in Spark jobs of any size."""
    token = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(token)


def describe_work(text: str) -> None:
    """Set the description of the following Spark jobs: pipeline, step and phase."""
    _work.set(text)


def is_for_driver(*, is_little: bool) -> bool:
    """Return whether this process does some work itself: a Spark job costs more than little work, but a spec may ask for it.

    Args:
        is_little: It is too small for a job to cost less.
    """
    return is_little and _engine.get() != "spark"


@contextmanager
def described_jobs(spark: SparkSession) -> Iterator[None]:
    """Have Spark's UI show what the jobs of this thread do."""
    context = spark.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, _work.get())
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, cast("str", before))  # None takes it away


def run_tasks(
    spark: SparkSession | LocalSession,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    in_driver: bool,
) -> list[Result]:
    """Run a function over several items. A Spark job costs more than little work: that is done in the driver, but by `engine: spark`.

    Args:
        work: The function. Workers import its module, which should not import pyspark.
        items: The items; picklable.
        in_driver: There is so little to do that it is done in this process, its output redirected to stderr: stdout belongs to the command.

    Returns:
        The results, in order.
    """
    is_here = is_for_driver(is_little=in_driver or len(items) == 1)
    if is_here or not items or isinstance(spark, LocalSession):
        with _stdout_to_stderr():
            return [work(item) for item in items]
    with described_jobs(spark):
        return list(spark.sparkContext.parallelize(items, len(items)).map(work).collect())
