"""Changes of a view's rows: Spark finds them, its tasks stage them.

A row of the difference has first `_copies`, the number of rows that the query has for the key, and then those columns of staged rows
(`ebbtide.formats._settings`) that a view has values for. The kind is `+U` for a new or different row, and `-D` with the old row
for a missing key. A row without a key has no kind: it is bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ebbtide.changelog import SequenceColumns
from ebbtide.columns import quoted
from ebbtide.errors import ViewKeyError
from ebbtide.formats import BadRecordError, Decoding
from ebbtide.model import BatchCounts, BatchSummary
from ebbtide.redaction import MASK
from ebbtide.runtime import Stager

COPIES = "_copies"


def difference(
    new: DataFrame,
    old: DataFrame,
    key: Sequence[str],
    *,
    is_unique: bool,
) -> DataFrame:
    """Return new and different rows (`new`) and missing ones (`old`) as structs, with the number of rows that the query has for the key.

    Args:
        new: Rows after the step.
        old: Rows before the step; each key occurs once and is not null.
        key: Names of the key's columns.
        is_unique: Whether `new` has each key once.
    """
    # A full outer join of both sides by the key. Equal rows are dropped, and what is left is new, different or missing. The rows of a
    # key are counted before the join, unless each key is known to occur once: the count costs a shuffle of all rows.
    keys = [quoted(name) for name in key]
    copies = "1" if is_unique else f"count(*) OVER (PARTITION BY {', '.join(keys)})"
    counted = new.selectExpr(f"{copies} AS {COPIES}", "struct(*) AS new", *keys)
    known = old.selectExpr("struct(*) AS old", *keys)
    # A row without a key equals no other row, so it counts as new.
    has_same_key = [f"{quoted(name, 'n')} = {quoted(name, 'o')}" for name in key]
    condition = F.expr(" AND ".join(has_same_key))
    both = counted.alias("n").join(known.alias("o"), condition, "full_outer")
    return both.where(f"NOT (new <=> old) OR {COPIES} > 1").select(COPIES, "new", "old")


def as_changes(
    rows: DataFrame,
    key: Sequence[str],
    view: str,
    step: int,
    wall_ms: int,
) -> DataFrame:
    """Return a difference as the input of `StageDifference`.

    Args:
        rows: Rows of `difference`.
        key: Names of the key's columns.
        view: Name of the view.
        step: Number of the step.
        wall_ms: Wall time of the step, epoch ms.
    """
    place = "CAST(spark_partition_id() AS BIGINT) AS {}, monotonically_increasing_id() AS position"
    is_null = [f"row.{quoted(name)} IS NULL" for name in key]
    shown = rows.selectExpr(COPIES, "new", "coalesce(new, old) AS row")
    marked = shown.selectExpr("*", f"({' OR '.join(is_null)}) AS is_bad")
    return marked.selectExpr(
        f"CAST(coalesce({COPIES}, 1) AS BIGINT) AS {COPIES}",
        "CASE WHEN is_bad THEN NULL WHEN new IS NULL THEN '-D' ELSE '+U' END AS _kind",
        f"named_struct('{SequenceColumns.STEP}', {step}L) AS _sequence",
        f"struct({step}L AS step, {place.format('part')}) AS _order",
        f"struct('{view}' AS source, {place.format('partition')}) AS _origin",
        f"{wall_ms}L AS _event_ms",
        f"CASE WHEN is_bad THEN '{BadRecordError.NULL_KEY}' END AS _reason",
        "CASE WHEN is_bad THEN 'the query gives a row without a key' END AS _detail",
        "CASE WHEN is_bad THEN CAST(to_json(row, map('ignoreNullFields', 'false')) AS BINARY) END AS _raw",
        "row.*",
    )


@dataclass(frozen=True)
class StageDifference:
    """Stages a task's share of the difference; runs in the workers.

    Args:
        view: Name of the view.
        stager: Writes staged rows.
        wall_ms: Wall time of the step, epoch ms.
        personal: Columns whose values no error shows.
    """

    view: str
    stager: Stager
    wall_ms: int
    personal: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the file and the summary as JSON; nothing if there was no row.

        Raises:
            ViewKeyError: the query has several rows for one key.
        """
        parts: list[BatchSummary] = []
        file = self.stager.stage(self._staged(batches, parts))
        if parts:
            yield pa.record_batch({"result": [file.to_json(parts)]})

    def _staged(
        self,
        batches: Iterable[pa.RecordBatch],
        parts: list[BatchSummary],
    ) -> Iterator[pa.Table]:
        """Yield rows with all columns of staged rows; append the summary of each batch to `parts`."""
        staged = pa.schema([*self.stager.columns, *pa.schema(Decoding.ADDED_COLUMNS)])
        for batch in batches:
            n = len(batch)
            if not n:
                continue
            rows = pa.Table.from_batches([batch])
            self._refuse_repeated(rows)
            n_changes = n - rows["_kind"].null_count
            counts = BatchCounts(records=n, bad=n - n_changes, changes=n_changes)
            parts.append(BatchSummary(counts, max_event_ms=self.wall_ms))
            for field in staged:
                if field.name not in rows.column_names:
                    rows = rows.append_column(field, pa.nulls(n, field.type))
            yield rows.select(staged.names).cast(staged)

    def _refuse_repeated(self, rows: pa.Table) -> None:
        has_copies = rows[COPIES].to_numpy() > 1
        has_key = rows["_kind"].is_valid().to_numpy()
        is_repeated = has_copies & has_key
        if not is_repeated.any():
            return
        position = int(np.argmax(is_repeated))
        repeated = rows.select([COPIES, *self.stager.key])
        [first] = repeated.slice(position, 1).to_pylist()
        shown = []
        for name in self.stager.key:
            value = MASK if name in self.personal else first[name]
            shown.append(f"{name}={value}")
        raise ViewKeyError.of(
            f"The query of the view '{self.view}' gives {first[COPIES]} rows for one key; nothing of the step was committed.",
            got=", ".join(shown),
            allowed="one row per key",
            next_step="Let the query return one row per key (GROUP BY, or row_number() in a subquery), or give the view a longer PRIMARY KEY.",
        )
