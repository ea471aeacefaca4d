"""The contract of what runs the work of steps and operations: functions over items, batches one after the other."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeVar

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineKind = Literal["auto", "spark", "local"]
"""Where runs make their steps: as `ebbtide.runtime.Automatic` chooses, on Spark, or in their own process."""
Item = TypeVar("Item")
Result = TypeVar("Result")

_work: ContextVar[str] = ContextVar("work", default="ebbtide")


class Executor(ABC):
    """Runs the work of steps and operations.

    A class has `parallelism` and `map`; the rest is for those on Spark. All make the same tables: a run continues where one on another executor
    has stopped.

    Attributes:
        LITTLE_BYTES: Maximum bytes of data files that are read or rewritten where the work is handed out: elsewhere costs more.
        MOST_ROWS: Maximum changes that a task reads and decides: more changes make more tasks, each with less memory. None: any number.
        has_spark: Work runs on Spark: what only Spark can do is possible, and a step has no bound on its size.
        place: Where work runs, for people.
        batch_time: Returns when a batch is planned, epoch ms, by its number; None: the clock of the run does.
    """

    LITTLE_BYTES: ClassVar[int] = 8 * 2**20
    MOST_ROWS: ClassVar[int | None] = 125_000
    has_spark: ClassVar[bool] = False
    place: ClassVar[str] = "in this process"
    batch_time: Callable[[int], int] | None = None

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """Number of items that large work should be divided into. Spark starts to answer, so little work does not ask."""

    @property
    def slices(self) -> int:
        """Number of parts that a step's changes are laid out in, by the first bits of their keys' hashes: a power of two, at most 64.

        The tasks that decide take whole parts: there are more parts than tasks, so that these get about equal shares.
        """
        return 64

    @property
    def n_hosts(self) -> int:
        """Number of places that each keep key indices; `map` divides the keys among them by `at`."""
        return 1

    @abstractmethod
    def map(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        is_little: bool | None = None,
        at: Callable[[Item], int] | None = None,
    ) -> list[Result]:
        """Run a function over several items.

        Args:
            work: The function. Workers import its module, which should not import PySpark.
            items: The items; picklable.
            is_little: There is so little to do that handing it to workers would cost more. None: one item is taken to be little.
            at: Returns a hash in the middle of those of an item's keys. A worker that gets about the same ones each time has the key
                indices of their files already. Default: any worker will do.

        Returns:
            The results, in order.
        """

    def does_itself(self, *, is_little: bool) -> bool:
        """Return whether work is done in this process, and not handed to workers.

        Args:
            is_little: See `map`.
        """
        return True

    @staticmethod
    def describe(text: str) -> None:
        """Describe the following work of this thread, for user interfaces that show it: pipeline, step and phase."""
        _work.set(text)

    @property
    def under_way(self) -> str:
        """The description of this thread's work."""
        return _work.get()

    def spark(self) -> SparkSession:
        """Return Spark's session, for work that only Spark can do; it may start now.

        Raises:
            ConfigError: this executor has none.
            JavaMissingError: Spark is needed, and cannot start.
        """
        raise ConfigError.of(
            "This needs Spark, and no Spark session was started.",
            got=f"an executor {self.place}",
            next_step="Run it with --engine spark.",
        )

    def described(self) -> AbstractContextManager[None]:
        """Have Spark's user interface show what the jobs of this thread do, in the `with` block."""
        return nullcontext()

    def for_pipeline(self, engine: EngineKind, *, runs_user_code: bool) -> Self:
        """Return the executor for the work of one pipeline.

        Args:
            engine: Its spec's: with `spark` the smallest work runs in Spark's jobs.
            runs_user_code: Code of a user or of another package runs in its steps: only one thread of a process runs it.
        """
        return self

    def drive(self, name: str, batches: Iterable[int], stop: threading.Event) -> None:
        """Make batches until nothing is left to read, or the run is stopped.

        Args:
            name: Name of the pipeline.
            batches: Makes a batch each time that it is asked for the next, and returns its number.
            stop: Ends the run after the batch under way.
        """
        for _ in batches:
            pass
