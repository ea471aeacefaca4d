"""What a task does with the changes of a view's rows: writes them down as changes of a changelog. Needs no Spark.

A row of the difference has these columns before the view's own:

| column | meaning |
|---|---|
| `_kind` | `+U`: the row is new or another; `-D`: the key is gone, the row is the old one |
| `_copies` | rows that the query gives for its key |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
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
            yield pa.record_batch({"result": [to_json(file, parts)]})

    def _staged(self, batches: Iterable[pa.RecordBatch], parts: list[BatchSummary]) -> Iterator[pa.Table]:
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

    def _changes(self, rows: pa.Table, part: int, n_before: int) -> tuple[pa.Table, BatchSummary]:
        """Return rows as staged ones, and their sum."""
        n = len(rows)
        is_bad = np.zeros(n, bool)
        for name in self.stager.key:
            is_bad |= rows[name].is_null().to_numpy()
        self._refuse_repeated(rows, is_bad)
        positions = np.arange(n_before, n_before + n)
        order = _struct(ORDER, n, (self.step, part, positions))
        origin = _struct(ORIGIN, n, (self.view, part, positions))
        bad = pa.array(is_bad)
        given = {
            KIND: pc.if_else(bad, None, rows[KIND]),
            "_order": order,
            "_origin": origin,
            "_event_ms": np.full(n, self.wall_ms),
            "_sequence": _struct(pa.struct([(STEP, pa.int64())]), n, (self.step,)),
            "_reason": pc.if_else(bad, NULL_KEY, None),
            "_detail": pc.if_else(bad, "the query gives a row without a key", None),
            "_raw": self._raw(rows, is_bad),
        }
        columns = {}
        for field in self._schema:
            if field.name in self.columns.names:
                columns[field.name] = rows[field.name].cast(field.type)
            else:
                value = given.get(field.name)
                columns[field.name] = pa.nulls(n, field.type) if value is None else _typed(value, field.type)
        staged = pa.table(columns, schema=self._schema)
        n_bad = int(is_bad.sum())
        return staged, BatchSummary(records=n, bad=n_bad, changes=n - n_bad, max_event_ms=self.wall_ms)

    @property
    def _schema(self) -> pa.Schema:
        further = [pa.field(name, type_) for name, type_ in STAGED_COLUMNS.items()]
        return pa.schema([*self.stager.columns, *further])

    def _raw(self, rows: pa.Table, is_bad: np.ndarray) -> pa.Array:
        """Return bad rows as JSON."""
        texts: list[bytes | None] = [None] * len(rows)
        for number in np.flatnonzero(is_bad).tolist():
            row = rows.select(self.columns.names).slice(number, 1).to_pylist()[0]
            texts[number] = json.dumps(row, default=str).encode()
        return pa.array(texts, pa.binary())

    def _refuse_repeated(self, rows: pa.Table, is_bad: np.ndarray) -> None:
        copies = rows[COPIES].to_numpy()
        repeated = np.flatnonzero((copies > 1) & ~is_bad)
        if not len(repeated):
            return
        first = rows.slice(int(repeated[0]), 1)
        values = []
        for name in self.stager.key:
            shown = MASK if name in self.personal else first[name][0].as_py()
            values.append(f"{name}={shown}")
        raise ViewKeyError.of(
            f"The query of the view '{self.view}' gives {first[COPIES][0].as_py()} rows for one key; nothing of the step was committed.",
            got=", ".join(values),
            allowed="one row a key",
            next_step="Make its rows one a key (GROUP BY, or row_number() in a subquery), or give the view a longer PRIMARY KEY.",
        )


def _task_number() -> int:
    """Return the number of the task in its stage; 0 outside of one."""
    from pyspark import TaskContext  # in a worker it is there

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _struct(type_: pa.StructType, n: int, values: tuple[object, ...]) -> pa.StructArray:
    arrays = []
    for field, value in zip(type_, values, strict=True):
        is_constant = isinstance(value, (int, str))
        arrays.append(pa.repeat(pa.scalar(value, field.type), n) if is_constant else pa.array(value, field.type))
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


def _typed(value: object, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(value, np.ndarray):
        return pa.array(value, type_)
    return value.cast(type_) if value.type != type_ else value  # type: ignore[attr-defined]
