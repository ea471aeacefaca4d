"""What becomes of a view's rows, as changes of a changelog: found by Spark, written down by its tasks.

A row of the difference has the columns of staged rows (`ebbtide.formats.settings`) that a view has values for, and before them
`_copies`: the rows that the query gives for its key. Its kind is `+U` where the row is new or another, and `-D` where the key is
gone and the row is the old one. A row without a key has no kind: it is bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ebbtide.errors import ViewKeyError
from ebbtide.formats.settings import STAGED_COLUMNS
from ebbtide.model.sequences import STEP
from ebbtide.model.step import BatchSummary
from ebbtide.redaction import MASK
from ebbtide.tables.spark_columns import quoted
from ebbtide.tables.state.staging import Stager, to_json

COPIES = "_copies"


def difference(
    new: DataFrame,
    old: DataFrame,
    key: Sequence[str],
    *,
    is_unique: bool,
) -> DataFrame:
    """Return rows that are new or others (`new`), and those that are gone (`old`), as structs, with their copies.

    Args:
        new: The rows that there are to be.
        old: Those that there are; each key once, none of them null.
        key: Names of the key's columns.
        is_unique: `new` has each key once.
    """
    keys = [quoted(name) for name in key]
    copies = "1" if is_unique else f"count(*) OVER (PARTITION BY {', '.join(keys)})"
    counted = new.selectExpr(f"{copies} AS {COPIES}", "struct(*) AS new", *keys)
    known = old.selectExpr("struct(*) AS old", *keys)
    # A row without a key equals none: it is new.
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
    """Return a difference as `StageDifference` takes it.

    Args:
        rows: Of `difference`.
        key: Names of the key's columns.
        view: The view's name.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
    """
    place = "CAST(spark_partition_id() AS BIGINT) AS {}, monotonically_increasing_id() AS position"
    is_null = [f"row.{quoted(name)} IS NULL" for name in key]
    shown = rows.selectExpr(COPIES, "new", "coalesce(new, old) AS row")
    marked = shown.selectExpr("*", f"({' OR '.join(is_null)}) AS is_bad")
    return marked.selectExpr(
        f"CAST(coalesce({COPIES}, 1) AS BIGINT) AS {COPIES}",
        "CASE WHEN is_bad THEN NULL WHEN new IS NULL THEN '-D' ELSE '+U' END AS _kind",
        f"named_struct('{STEP}', {step}L) AS _sequence",
        f"struct({step}L AS step, {place.format('part')}) AS _order",
        f"struct('{view}' AS source, {place.format('partition')}) AS _origin",
        f"{wall_ms}L AS _event_ms",
        "CASE WHEN is_bad THEN 'null_key' END AS _reason",
        "CASE WHEN is_bad THEN 'the query gives a row without a key' END AS _detail",
        "CASE WHEN is_bad THEN CAST(to_json(row, map('ignoreNullFields', 'false')) AS BINARY) END AS _raw",
        "row.*",
    )


@dataclass(frozen=True)
class StageDifference:
    """Writes a task's share of the difference; goes to the workers.

    Args:
        view: The view's name.
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
            ViewKeyError: the query gives several rows for one key.
        """
        parts: list[BatchSummary] = []
        file = self.stager.stage(self._staged(batches, parts))
        if parts:
            yield pa.record_batch({"result": [to_json(file, parts)]})

    def _staged(
        self,
        batches: Iterable[pa.RecordBatch],
        parts: list[BatchSummary],
    ) -> Iterator[pa.Table]:
        """Yield rows with all columns of staged ones; add the summary of each batch of them to `parts`."""
        staged = pa.schema([*self.stager.columns, *pa.schema(STAGED_COLUMNS)])
        for batch in batches:
            n = len(batch)
            if not n:
                continue
            rows = pa.Table.from_batches([batch])
            self._refuse_repeated(rows)
            n_changes = n - rows["_kind"].null_count
            summary = BatchSummary(
                n,
                bad=n - n_changes,
                changes=n_changes,
                max_event_ms=self.wall_ms,
            )
            parts.append(summary)
            for field in staged:
                if field.name not in rows.column_names:
                    rows = rows.append_column(field, pa.nulls(n, field.type))
            yield rows.select(staged.names).cast(staged)

    def _refuse_repeated(self, rows: pa.Table) -> None:
        is_repeated = (rows[COPIES].to_numpy() > 1) & rows["_kind"].is_valid().to_numpy()
        if not is_repeated.any():
            return
        place = int(np.argmax(is_repeated))
        [first] = rows.select([COPIES, *self.stager.key]).slice(place, 1).to_pylist()
        shown = [f"{name}={MASK if name in self.personal else first[name]}" for name in self.stager.key]
        raise ViewKeyError.of(
            f"The query of the view '{self.view}' gives {first[COPIES]} rows for one key; nothing of the step was committed.",
            got=", ".join(shown),
            allowed="one row a key",
            next_step="Make its rows one a key (GROUP BY, or row_number() in a subquery), or give the view a longer PRIMARY KEY.",
        )
