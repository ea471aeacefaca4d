"""What a task does with the changes of a view's rows: writes them down as changes of a changelog. Needs no Spark.

A row of the difference has these columns before the view's own:

| column | meaning |
|---|---|
| `_kind` | `+U`: the row is new or another; `-D`: the key is gone, the row is the old one |
| `_copies` | rows that the query gives for its key |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.errors import ViewKeyError
from ebbtide.formats.settings import STAGED_COLUMNS
from ebbtide.model.changelog import ORDER, ORIGIN
from ebbtide.model.sequences import STEP
from ebbtide.model.step import BatchSummary
from ebbtide.redaction import MASK
from ebbtide.state_table.staged import Stager
from ebbtide.state_table.staging import to_json

KIND = "_kind"
COPIES = "_copies"
NULL_KEY = "null_key"
SEQUENCE = pa.struct([(STEP, pa.int64())])


@dataclass(frozen=True)
class StageDifference:
    """Writes a task's share of the difference; goes to the workers.

    Args:
        view: The view's name.
        stager: Writes staged rows.
        columns: The view's.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
        personal: Columns whose values no error shows.
    """

    view: str
    stager: Stager
    columns: pa.Schema
    step: int
    wall_ms: int
    personal: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the file and the summary as JSON; nothing if there was no row.

        Raises:
            ViewKeyError: the query gives several rows for one key.
        """
        parts: list[BatchSummary] = []
        file = self.stager.stage(self._staged(batches, parts))
        if parts:
            result = to_json(file, parts)
            yield pa.record_batch({"result": [result]})

    def _staged(
        self,
        batches: Iterable[pa.RecordBatch],
        parts: list[BatchSummary],
    ) -> Iterator[pa.Table]:
        part = _task_number()
        n_before = 0
        for batch in batches:
            if not len(batch):
                continue
            rows = pa.Table.from_batches([batch])
            staged, summary = self._changes(rows, part, n_before)
            n_before += len(rows)
            parts.append(summary)
            yield staged

    def _changes(
        self,
        rows: pa.Table,
        part: int,
        n_before: int,
    ) -> tuple[pa.Table, BatchSummary]:
        """Return rows as staged ones, and their sum."""
        n = len(rows)
        is_bad = self._has_no_key(rows)
        self._refuse_repeated(rows, is_bad)
        positions = np.arange(n_before, n_before + n)
        bad = pa.array(is_bad)
        given = {
            KIND: pc.if_else(bad, None, rows[KIND]),
            "_order": _struct(ORDER, n, (self.step, part, positions)),
            "_origin": _struct(ORIGIN, n, (self.view, part, positions)),
            "_event_ms": pa.repeat(self.wall_ms, n),
            "_sequence": _struct(SEQUENCE, n, (self.step,)),
            "_reason": pc.if_else(bad, NULL_KEY, None),
            "_detail": pc.if_else(bad, "the query gives a row without a key", None),
            "_raw": self._raw(rows, is_bad),
        }
        own = {name: rows[name] for name in self.columns.names}
        staged = _as_schema({**given, **own}, self._schema, n)
        n_bad = int(is_bad.sum())
        summary = BatchSummary(
            records=n,
            bad=n_bad,
            changes=n - n_bad,
            max_event_ms=self.wall_ms,
        )
        return staged, summary

    def _has_no_key(self, rows: pa.Table) -> np.ndarray:
        """Mark the rows that have null in a column of the key."""
        found = np.zeros(len(rows), bool)
        for name in self.stager.key:
            is_null = rows[name].is_null()
            found |= is_null.to_numpy()
        return found

    @property
    def _schema(self) -> pa.Schema:
        further = pa.schema(STAGED_COLUMNS)
        return pa.schema([*self.stager.columns, *further])

    def _raw(self, rows: pa.Table, is_bad: np.ndarray) -> pa.Array:
        """Return bad rows as JSON."""
        texts: list[bytes | None] = [None] * len(rows)
        own = rows.select(self.columns.names)
        for number in np.flatnonzero(is_bad).tolist():
            [row] = own.slice(number, 1).to_pylist()
            text = json.dumps(row, default=str)
            texts[number] = text.encode()
        return pa.array(texts, pa.binary())

    def _refuse_repeated(self, rows: pa.Table, is_bad: np.ndarray) -> None:
        n_copies = rows[COPIES].to_numpy()
        is_repeated = (n_copies > 1) & ~is_bad
        if not is_repeated.any():
            return
        counted = rows.select([COPIES, *self.stager.key])
        [first] = counted.filter(pa.array(is_repeated)).slice(0, 1).to_pylist()
        values = []
        for name in self.stager.key:
            shown = MASK if name in self.personal else first[name]
            values.append(f"{name}={shown}")
        raise ViewKeyError.of(
            f"The query of the view '{self.view}' gives {first[COPIES]} rows for one key; nothing of the step was committed.",
            got=", ".join(values),
            allowed="one row a key",
            next_step="Make its rows one a key (GROUP BY, or row_number() in a subquery), or give the view a longer PRIMARY KEY.",
        )


def _task_number() -> int:
    """Return the number of the task in its stage; 0 outside of one."""
    from pyspark import TaskContext  # in a worker it is there

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _struct(
    type_: pa.StructType,
    n: int,
    values: Sequence[int | str | np.ndarray],
) -> pa.StructArray:
    """Return structs; a value that is no array is that of all of them."""
    arrays = []
    for field, value in zip(type_, values, strict=True):
        if isinstance(value, np.ndarray):
            array = pa.array(value, field.type)
        else:
            array = pa.repeat(pa.scalar(value, field.type), n)
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _as_schema(
    values: Mapping[str, pa.Array | pa.ChunkedArray],
    schema: pa.Schema,
    n: int,
) -> pa.Table:
    """Return values as a table of n rows; columns that have none are null."""
    columns = []
    for field in schema:
        given = values.get(field.name)
        column = pa.nulls(n, field.type) if given is None else given.cast(field.type)
        columns.append(column)
    return pa.table(columns, schema=schema)
