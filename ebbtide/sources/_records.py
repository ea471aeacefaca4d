"""Records of a batch that the tasks read directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.sources._source import Work

if TYPE_CHECKING:
    from ebbtide.executors import Executor

ReadItem = Callable[[Any], Iterator[pa.RecordBatch]]
"""Reads a task's items as `ebbtide.formats._records.RECORDS`."""


@dataclass(frozen=True)
class ReadRecords:
    """Records that the tasks read directly: they do not pass through the JVM.

    Args:
        executor: Runs the tasks.
        items: The items that each task reads.
        read: Reads an item; runs in Spark's workers, so it must be picklable.
        is_little: Read in the driver, since there is little.
    """

    executor: Executor
    items: Sequence[Any]
    read: ReadItem
    is_little: bool

    def run(self, work: Work) -> list[str]:
        """See `Records`."""
        read = self.read
        results = self.executor.map(
            lambda item: work(read(item)),
            self.items,
            is_little=self.is_little,
        )
        return [result for result in results if result is not None]
