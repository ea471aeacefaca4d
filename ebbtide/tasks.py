"""Does the same to several things: here, one after the other, or each in a task of a Spark job; and what stands for a session without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class LocalSession:
    """Stands for a Spark session where there is no JVM: tasks run in this process, and what only Spark can do is refused by name.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number; None: the clock of the run does.

    Attributes:
        conf: Settings that a step asks for. A large step is decided in as many shares as a task of Spark's takes rows.
        sparkContext: How many tasks of a batch are read at a time: one.
    """

    conf: ClassVar[dict[str, str]] = {"spark.sql.shuffle.partitions": "1"}
    sparkContext: ClassVar[SimpleNamespace] = SimpleNamespace(defaultParallelism=1)  # noqa: N815 - Spark's name
    batch_time: Callable[[int], int] | None = None

    def range(self, n: int) -> SimpleNamespace:
        """Return what stands for a frame without rows of use: the tasks read by themselves."""
        return SimpleNamespace(sparkSession=self)

    def __getattr__(self, name: str) -> Any:
        """Refuse what only Spark has.

        Raises:
            ConfigError: always.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        raise ConfigError.of(
            "This needs Spark, and no session was started.",
            got=f"a use of its '{name}' in a local run",
            next_step="Run it with --engine spark.",
        )


def run_tasks(
    spark: SparkSession | LocalSession,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    in_driver: bool,
) -> list[Result]:
    """Do the same to several things; a Spark job costs more than a little work.

    Args:
        spark: The session.
        work: What to do. Workers import its module, so that it had better need no pyspark.
        items: What to do it to; picklable.
        in_driver: Do it here. What it prints goes to standard error: standard output is that of the command.

    Returns:
        The results, in order.
    """
    if in_driver or len(items) <= 1 or isinstance(spark, LocalSession):
        with redirect_stdout(sys.stderr):
            return [work(item) for item in items]
    return list(spark.sparkContext.parallelize(items, len(items)).map(work).collect())
