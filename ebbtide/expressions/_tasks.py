"""Work of Spark's workers before and after a transform's expressions are evaluated."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

ROWS_PER_BATCH = 10_000


@dataclass(frozen=True)
class Reading:
    """Reads the rows of the item that a task is given by number.

    Args:
        items: All items.
        inputs: Reads one's rows.
        columns: Their columns.
    """

    items: Sequence[Any]
    inputs: Callable[[Any], pa.Table]
    columns: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for batch in batches:
            numbers = batch.column(0)
            for number in numbers.to_pylist():
                item = self.items[number]
                rows = self.inputs(item)
                typed = rows.cast(self.columns)
                yield from typed.to_batches(max_chunksize=ROWS_PER_BATCH)


@dataclass(frozen=True)
class Finishing:
    """Takes the results of the rows that the same task has read: partition and item have one number.

    Args:
        items: All items.
        finish: Makes something of one and its results.
    """

    items: Sequence[Any]
    finish: Callable[[Any, pa.ChunkedArray], Any]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result, pickled, with the item's number."""
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        chunks = [batch.column(0) for batch in batches]
        results = pa.chunked_array([[]], pa.null())
        if chunks:
            results = pa.chunked_array(chunks)
        item = self.items[number]
        done = self.finish(item, results)
        text = pickle.dumps((number, done))
        pickled = pa.array([text], pa.binary())
        yield pa.record_batch({"done": pickled})


def unpickled(done: pa.ChunkedArray) -> list[Any]:
    """Return what tasks made, in the order of their items."""
    numbered = [pickle.loads(text) for text in done.to_pylist()]  # noqa: S301 - by our own workers
    by_number = dict(numbered)
    # Spark returns the rows of tasks in no order that it promises.
    return [by_number[number] for number in sorted(by_number)]
