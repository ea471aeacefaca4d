"""Records of a batch that the tasks read directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.sources._source import Work
from ebbtide.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReadItem = Callable[[Any], Iterator[pa.RecordBatch]]
"""Reads a task's items as `ebbtide.formats._records.RECORDS`."""


@dataclass(frozen=True)
class ReadRecords:
    """Records that the tasks read directly: they do not pass through the JVM.

    Args:
        spark: The session.
        items: The items that each task reads.
        read: Reads an item; runs in Spark's workers, so it must be picklable.
        in_driver: Read in the driver, since there is little.
    """

    spark: SparkSession
    items: Sequence[Any]
    read: ReadItem
    in_driver: bool

    def run(self, work: Work) -> list[str]:
        """See `Records`."""
        read = self.read
        results = run_tasks(
            self.spark,
            lambda item: work(read(item)),
            self.items,
            in_driver=self.in_driver,
        )
        return [result for result in results if result is not None]
