"""Selects rows of tables by a condition of a user. Ranges of keys are read in tasks; no row passes through the JVM unless only Spark can judge it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ebbtide.columns import quoted
from ebbtide.errors import ConfigError, JavaMissingError, MissingExtraError
from ebbtide.executors import Executor
from ebbtide.redaction import MASK
from ebbtide.sqltext import Condition, UnfitExpressionError
from ebbtide.tables._state.ranges import HashRange


class PartRows(Protocol):
    """Rows by ranges of keys; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""

    @property
    def n_rows(self) -> int:
        """Stored rows to read for them."""

    def __call__(self, part: HashRange) -> Iterator[pa.Table]:
        """Yield the rows of a range, in pieces."""


@dataclass(frozen=True)
class RowSelection:
    """The part of some rows to return.

    Args:
        names: Names of the columns.
        most: Maximum number of rows; None: all.
        is_distinct: Equal rows are returned once.
    """

    names: tuple[str, ...]
    most: int | None = None
    is_distinct: bool = False

    def of(self, executor: Executor, rows: PartRows, where: str | None) -> pa.Table:
        """Return it of the rows that fulfil a condition.

        Args:
            rows: The rows.
            where: The condition, Spark's SQL over their columns; None: all fulfil it.

        Raises:
            UnfitExpressionError: it is not a condition on their columns.
            ConfigError: only Spark can judge it, and there is none; or it fails on a row.
        """
        parts = HashRange.covering(rows.n_rows)
        condition = None if where is None else Condition.of(where, rows.schema)
        if where is not None and condition is None:
            return _by_spark(executor, rows, parts, where, self)
        select = _SelectRows(rows, condition, self)
        # A few rows are nearly always in the first range: further ones are read only where they are needed.
        first, *further = parts
        found = executor.map(select, [first])
        if not self.is_full(len(found[0])):
            found += executor.map(select, further)
        return self.joined(found)

    def of_pieces(self, pieces: Iterator[pa.Table], columns: pa.Schema) -> pa.Table:
        """Return it of the rows in some pieces; no piece is read that is not needed."""
        names = list(self.names)
        found = [columns.empty_table().select(names)]
        n_found = 0
        for piece in pieces:
            rows = piece.select(names)
            found.append(self._distinct(rows) if self.is_distinct else rows)
            n_found += len(found[-1])
            if self.is_full(n_found):
                break
        return self.joined(found)

    def joined(self, found: Sequence[pa.Table]) -> pa.Table:
        """Join what was found of several parts."""
        rows = pa.concat_tables(found)
        return (self._distinct(rows) if self.is_distinct else rows).slice(0, self.most)

    def is_full(self, n_rows: int) -> bool:
        """Return whether no more rows are needed."""
        return self.most is not None and n_rows >= self.most

    @staticmethod
    def _distinct(rows: pa.Table) -> pa.Table:
        groups = rows.group_by(rows.column_names).aggregate([])
        return groups.select(rows.column_names).cast(rows.schema)


@dataclass(frozen=True)
class _SelectRows:
    """Selects rows of a range of keys; runs in workers.

    Args:
        rows: The rows.
        condition: Their condition; None: all fulfil it.
        selection: What to return of them.
    """

    rows: PartRows
    condition: Condition | None
    selection: RowSelection

    def __call__(self, part: HashRange) -> pa.Table:
        """Select those of a part."""
        return self.selection.of_pieces(self._fit(part), self.rows.schema)

    def _fit(self, part: HashRange) -> Iterator[pa.Table]:
        for piece in self.rows(part):
            yield piece if self.condition is None else piece.filter(pa.array(self.condition.marks(piece)))


def _by_spark(
    executor: Executor, rows: PartRows, parts: Sequence[HashRange], where: str, selection: RowSelection
) -> pa.Table:
    """Return the rows that fulfil a condition that only Spark can judge."""
    try:
        spark = executor.spark()
    except (ConfigError, JavaMissingError, MissingExtraError, ModuleNotFoundError) as error:
        raise ConfigError.of(
            "Only Spark can judge this condition, and there is none.",
            got=where,
            allowed=Condition.ALLOWED,
            next_step="Write it so, or install Spark: pip install 'ebbtide[spark]', and Java 17 or newer.",
        ) from error
    from pyspark.errors import AnalysisException, PySparkException

    from ebbtide.sessions import Frames, SparkVersion, arrow_table

    try:
        found = Frames(spark).of_items(rows, parts, rows.schema).where(where).select(*map(quoted, selection.names))
        found = found.distinct() if selection.is_distinct else found
        kept = found if selection.most is None else found.limit(selection.most)
        wanted = pa.schema([rows.schema.field(name) for name in selection.names])
        return arrow_table(kept).cast(wanted)
    except AnalysisException as error:  # a ParseException is one
        raise UnfitExpressionError(str(error)) from error
    except PySparkException as error:
        # Spark's text quotes the value, which may be personal.
        raise ConfigError.of(
            "The condition fails on a row.", got=f"[{SparkVersion.of_pyspark().condition_of(error)}] {MASK}"
        ) from None
