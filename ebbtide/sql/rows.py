"""Rows of a result: written to files by Spark's tasks, read page by page from there. They never pass through the JVM's heap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ebbtide.paths import open_parquet
from ebbtide.sql.results import ResultColumn, Row

_AS_TEXT = ("void", "interval", "variant", "time", "geo")
"""How the names of types begin that Parquet does not hold, or Arrow not in a way that we show."""

GROUP_BYTES = 2**20
"""Of a group of rows in a file: each page reads the groups that hold it, whole."""


def result_columns(frame: DataFrame) -> tuple[ResultColumn, ...]:
    """Return the columns of a query."""
    return tuple(ResultColumn(field.name, field.dataType.simpleString()) for field in frame.schema)


def write_rows(frame: DataFrame, folder: Path) -> None:
    """Write a query's rows to files in its order; columns may have one name."""
    n_columns = len(frame.columns)
    names = [f"c{number}" for number in range(n_columns)]
    renamed = frame.toDF(*names)
    storable = [_storable(field.name, field.dataType) for field in renamed.schema]
    rows = renamed.select(*storable)
    rows.write.option("parquet.block.size", GROUP_BYTES).parquet(str(folder))


def _storable(name: str, type_: DataType) -> Column:
    column = F.col(name)
    shown = type_.simpleString()
    if not shown.startswith(_AS_TEXT):
        return column
    text = column.cast("string")
    return text.alias(name)


@dataclass(frozen=True)
class WrittenRows:
    """Rows in files.

    Args:
        files: They, in order, each with its number of rows.
        most: No more of them count; None: all.
    """

    files: tuple[tuple[Path, int], ...]
    most: int | None = None

    @classmethod
    def read(cls, folder: Path) -> WrittenRows:
        """Look at what `write_rows` wrote."""
        paths = sorted(folder.glob("part-*.parquet"))
        return cls(tuple((path, pq.read_metadata(path).num_rows) for path in paths))

    @property
    def count(self) -> int:
        """How many rows there are."""
        n_rows = sum(n_rows for _, n_rows in self.files)
        return n_rows if self.most is None else min(n_rows, self.most)

    def first(self, n_rows: int) -> WrittenRows:
        """Return no more than the first of them."""
        return replace(self, most=n_rows)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows from one number on up to another."""
        first = 0
        stop = min(stop, self.count)
        rows: list[Row] = []
        for path, n_rows in self.files:
            begin, end = max(start - first, 0), min(stop - first, n_rows)
            if begin < end:
                rows += _file_rows(path, begin, end)
            first += n_rows
        return rows


def _file_rows(path: Path, start: int, stop: int) -> Iterator[Row]:
    """Yield some rows of a file; only the row groups are read that hold them."""
    file = open_parquet(path)
    first = 0
    for number in range(file.num_row_groups):
        n_rows = file.metadata.row_group(number).num_rows
        begin, end = max(start - first, 0), min(stop - first, n_rows)
        if begin < end:
            group = file.read_row_group(number).slice(begin, end - begin)
            yield from json_rows(group)
        first += n_rows


def json_rows(table: pa.Table) -> Iterator[Row]:
    """Yield rows as JSON values."""
    columns = [column.to_pylist() for column in table.columns]
    for values in zip(*columns, strict=True):
        yield [json_value(value) for value in values]


def json_value(value: Any) -> Any:
    """Return what JSON holds exactly: decimals, dates, times and what is no number as text, bytes in hexadecimal."""
    if isinstance(value, dict):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    write = _WRITERS.get(type(value))
    return value if write is None else write(value)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _time_text(time: datetime) -> str:
    in_utc = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    return in_utc.isoformat(sep=" ")


_WRITERS: dict[type, Callable[[Any], Any]] = {
    float: _number,
    Decimal: lambda value: format(value, "f"),
    bytes: bytes.hex,
    datetime: _time_text,
    date: date.isoformat,
}
