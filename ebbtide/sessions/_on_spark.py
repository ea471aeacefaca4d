"""The executor on Spark: work runs in the tasks of its jobs, batches in a streaming query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self, TypeVar, cast

from ebbtide.errors import EbbtideError
from ebbtide.executors import EngineKind, Executor, InProcess
from ebbtide.sessions._settings import names_cluster
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

DESCRIPTION = "spark.job.description"
"""Spark's name for what a job's page shows."""


class OnSpark(Executor):
    """Runs work on Spark, but little work in this process: a job costs more.

    Args:
        session: The session; or returns it, when it is first needed: work begins with what it refuses, or plans, from the logs of tables alone.
        leaves_nothing: The smallest work runs in jobs too.

    Raises:
        ConfigError: the session lacks what a run needs.
    """

    has_spark = True
    place = "on Spark"

    def __init__(self, session: SparkSession | Callable[[], SparkSession], *, leaves_nothing: bool = False) -> None:
        if not callable(session):
            from ebbtide.sessions._needs import refuse_unfit_session  # loads PySpark

            refuse_unfit_session(session)
        self._session = session
        self._leaves_nothing = leaves_nothing
        self._here = InProcess(threads=1)

    @classmethod
    def for_root(cls, session: SparkSession | Callable[[], SparkSession], root: str) -> Self:
        """Return the executor for tables under a root; Spark starts now if its JVM writes their files.

        Args:
            session: See the class.
            root: Folder of all pipelines' tables.
        """
        made = cls(session)
        if Location(root).needs_jvm:
            made.spark()
        return made

    @staticmethod
    def names_cluster(settings: Mapping[str, str]) -> bool:
        """Return whether settings, or those of Spark's files and the environment, name a cluster."""
        return names_cluster(settings)

    @staticmethod
    def has_died(session: SparkSession) -> bool:
        """Return whether the JVM of a session of `build_session` has ended by itself."""
        from ebbtide.sessions._session import has_died  # loads PySpark

        return has_died(session)

    def spark(self) -> SparkSession:
        """Return the session; it starts now if it was not."""
        if callable(self._session):
            return self._session()
        return self._session

    @property
    def _is_installed(self) -> bool:
        return not callable(self._session) or find_spec("pyspark") is not None

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at a time."""
        return self.spark().sparkContext.defaultParallelism

    @property
    def n_hosts(self) -> int:
        """See `Executor`: each of Spark's executors is one."""
        from ebbtide.sessions._placement import executors_of  # loads PySpark

        return max(len(executors_of(self.spark())), 1)

    def for_pipeline(self, engine: EngineKind, *, runs_user_code: bool) -> Self:
        """See `Executor`; each of Spark's workers is a process."""
        return type(self)(self._session, leaves_nothing=engine == "spark")

    def does_itself(self, *, is_little: bool) -> bool:
        """See `Executor`: little work, unless the spec asks for Spark; without PySpark all of it."""
        return (is_little and not self._leaves_nothing) or not self._is_installed

    def map(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        is_little: bool | None = None,
        at: Callable[[Item], int] | None = None,
    ) -> list[Result]:
        """See `Executor`."""
        if is_little is None:
            is_little = len(items) == 1
        if not items or self.does_itself(is_little=is_little):
            return self._here.map(work, items)
        from ebbtide.sessions._placement import spread  # loads PySpark

        with self.described():
            try:
                return list(spread(self.spark(), items, at).map(work).collect())
            except Exception as error:
                raised = EbbtideError.within(error)
                if raised is None:
                    raise
                raise raised from error

    @contextmanager
    def described(self) -> Iterator[None]:
        """See `Executor`."""
        context = self.spark().sparkContext
        before = context.getLocalProperty(DESCRIPTION)
        context.setLocalProperty(DESCRIPTION, self.under_way)
        try:
            yield
        finally:
            context.setLocalProperty(DESCRIPTION, cast("str", before))  # None takes it away

    def drive(self, name: str, batches: Iterable[int], stop: threading.Event) -> None:
        """Make batches in a streaming query; see `Executor`."""
        from ebbtide.sessions._stream import drive  # loads PySpark

        drive(self.spark(), name, batches, stop)


def executor_of(given: Executor | SparkSession) -> Executor:
    """Return an executor; for a session of Spark the one that runs work there."""
    return given if isinstance(given, Executor) else OnSpark(given)
