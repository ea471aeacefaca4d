"""Does the same to several things: here, one after the other, or each in a task of a Spark job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_tasks(
    spark: SparkSession,
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
    if in_driver or len(items) <= 1:
        with redirect_stdout(sys.stderr):
            return [work(item) for item in items]
    return list(spark.sparkContext.parallelize(items, len(items)).map(work).collect())
