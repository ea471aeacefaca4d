"""Tables as frames of Spark as of a moment, and the rows of results: Spark's tasks write them to files, and pages are read from these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ebbtide import state_frame
from ebbtide.columns import quoted
from ebbtide.delta import Log
from ebbtide.errors import SqlError
from ebbtide.runtime import Plan
from ebbtide.sessions import Frames, spark_schema
from ebbtide.sql._catalog import Filled, Part
from ebbtide.sql._json import json_rows
from ebbtide.sql._listing import steps
from ebbtide.sql._names import Names
from ebbtide.sql._references import Pin, PinKind, Reference
from ebbtide.sql._results import ResultColumn, Row

FEED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def frame(
    frames: Frames,
    names: Names,
    reference: Reference,
    versions: Mapping[str, int],
) -> DataFrame:
    """Read a table, or a part of one, as of a moment.

    Args:
        frames: Makes frames in the session of the query.
        names: Catalog of the statement.
        reference: Table to be read.
        versions: Name of a table to the version of its sink as of now.

    Raises:
        SqlError: the table does not exist (yet).
    """
    entry = names.filled(reference.table)
    plan = names.plan(reference.table)
    match reference.part:
        case None:
            pin = reference.pin
            version = versions[reference.table] if pin is None else _version(plan, reference, pin)
            return _shown(entry, frames.of_delta(plan.at("sink"), version))
        case Part.STATE:
            return state_frame(frames.session, entry.spec, names.root, as_of_step=_step(plan, reference))
        case Part.STEPS:
            columns, listed = steps(plan)
            schema = ", ".join(f"`{column.name}` {column.type}" for column in columns)
            rows = [tuple(row) for row in listed]
            return frames.session.createDataFrame(rows, schema=schema)
        case Part.CHANGES:
            return _shown(entry, _feed(frames, _existing(plan, reference), reference), *FEED_COLUMNS)
        case Part.QUARANTINE if not Log(plan.quarantine.path).is_there():
            no_rows = plan.quarantine.schema.empty_table()
            return frames.of_arrow(no_rows, spark_schema(no_rows.schema))  # the first bad record creates the table
        case _:
            location = _existing(plan, reference)
            return frames.of_delta(location, _newest(location))


def sink_version(names: Names, name: str) -> int:
    """Return the newest version of a pipeline's sink.

    Raises:
        SqlError: there is none yet.
    """
    location = _existing(names.plan(name), Reference(name))
    return _newest(location)


def _existing(plan: Plan, reference: Reference) -> str:
    is_sink = reference.part is None or reference.part is Part.CHANGES
    if is_sink and plan.sink_log is None:
        raise SqlError.of(
            f"SQL cannot read the sink of '{reference.table}', which is no Delta table.",
            got=f"sink.type: {plan.spec.sink.type}",
            allowed="delta",
            next_step=f"Query {reference.table}$state or {reference.table}$steps, or read the sink by its own means.",
        )
    location = plan.at("sink" if is_sink else str(reference.part))
    if not Log(location).is_there():
        raise SqlError.of(
            f"There is no table '{reference.view}' yet.",
            got=location,
            next_step=f"SHOW JOBS lists the jobs that fill '{reference.table}'. Without one, run it: INSERT INTO, or 'ebbtide run'.",
        )
    return location


def _newest(location: str) -> int:
    return Log(location).versions()[-1]


def _shown(entry: Filled, rows: DataFrame, *further: str) -> DataFrame:
    """Return rows without the reserved columns."""
    own = [quoted(name) for name in entry.spec.sink_table.columns.names]
    return rows.select(*own, *further)


def _version(plan: Plan, reference: Reference, pin: Pin) -> int:
    """Return the version of the sink that a pin names; for a step the newest version made by it or a step before."""
    location = _existing(plan, reference)
    if pin.kind is PinKind.VERSION:
        return pin.number
    return _version_at_step(location, pin.number) or 0


def _version_at_step(table: str, step: int) -> int | None:
    """Return the newest version of a table that a step, or one before it, has made; None if no kept commit is of these."""
    for version, facts in Log(table).own_commits():
        if int(facts["step"]) <= step:
            return version
    return None


def _step(plan: Plan, reference: Reference) -> int | None:
    pin = reference.pin
    if pin is None:
        return None
    if pin.kind is PinKind.STEP:
        return pin.number
    step = _step_of_version(plan.at("state"), pin.number)
    if step is None:
        raise SqlError.of(f"No step made version {pin.number} of the state of '{reference.table}'.")
    return step


def _step_of_version(table: str, version: int) -> int | None:
    """Return the step that made a version of a table; None if no step did."""
    facts = Log(table).commit(version).facts()
    return None if facts is None else int(facts["step"])


def _feed(frames: Frames, location: str, reference: Reference) -> DataFrame:
    """Read the change feed from the oldest commit that is still there."""
    if reference.pin is not None:
        raise SqlError.of(
            f"'{reference.view}' cannot be read as of a version or step: it has the changes of all versions.",
            next_step="Filter by _commit_version.",
        )
    return frames.of_changes(location, Log(location).versions()[0])


_AS_TEXT = ("void", "interval", "variant", "time", "geo")
"""Prefixes of the types that are written as text: Parquet cannot hold them, or Arrow has no value that is shown as in Spark."""

GROUP_BYTES = 2**20
"""Size of a group of rows in a file: a page reads whole groups."""


def result_columns(frame: DataFrame) -> tuple[ResultColumn, ...]:
    """Return the columns of a query."""
    return tuple(ResultColumn(field.name, field.dataType.simpleString()) for field in frame.schema)


def write_rows(frame: DataFrame, folder: Path) -> None:
    """Write a query's rows to files in its order; several columns may have the same name."""
    names = [f"c{number}" for number, _ in enumerate(frame.columns)]
    renamed = frame.toDF(*names)
    storable = []
    for field in renamed.schema:
        column = _storable(field.name, field.dataType)
        storable.append(column)
    rows = renamed.select(*storable)
    writer = rows.write.option("parquet.block.size", GROUP_BYTES)
    writer.parquet(str(folder))


def _storable(name: str, type_: DataType) -> Column:
    column = F.col(name)
    is_text = type_.simpleString().startswith(_AS_TEXT)
    return column.cast("string").alias(name) if is_text else column


@dataclass(frozen=True)
class WrittenRows:
    """Rows in files.

    Args:
        files: Files in order, each with its number of rows.
        most: Maximum number of rows to be shown; None: all.
    """

    files: tuple[tuple[Path, int], ...]
    most: int | None = None

    @classmethod
    def read(cls, folder: Path) -> WrittenRows:
        """Read the number of rows in each file of `write_rows`."""
        files = []
        for path in sorted(folder.glob("part-*.parquet")):
            n_rows = pq.read_metadata(path).num_rows
            files.append((path, n_rows))
        return cls(tuple(files))

    @property
    def count(self) -> int:
        """Number of rows."""
        n_rows = sum(n_rows for _, n_rows in self.files)
        return n_rows if self.most is None else min(n_rows, self.most)

    def first(self, n_rows: int) -> WrittenRows:
        """Return the first rows only."""
        return replace(self, most=n_rows)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows with numbers from `start` to below `stop`."""
        rows: list[Row] = []
        paths = [path for path, _ in self.files]
        sizes = [n_rows for _, n_rows in self.files]
        last = min(stop, self.count)
        for number, begin, end in _windows(sizes, start, last):
            rows += _file_rows(paths[number], begin, end)
        return rows


def _windows(
    sizes: Iterable[int],
    start: int,
    stop: int,
) -> Iterator[tuple[int, int, int]]:
    """Yield the parts that hold the rows from `start` to below `stop`.

    Args:
        sizes: Number of rows in each part, in order.
        start: Number of the first row.
        stop: Number after the last row.

    Yields:
        Number of a part, and the window of rows in it.
    """
    # `first` is the number of a part's first row; the window is the overlap of the part with the rows asked for.
    first = 0
    for number, size in enumerate(sizes):
        begin = max(start - first, 0)
        end = min(stop - first, size)
        if begin < end:
            yield number, begin, end
        first += size


def _file_rows(path: Path, start: int, stop: int) -> Iterator[Row]:
    """Yield some rows of a file; reads only the row groups that hold them."""
    # Spark writes times as INT96; as nanoseconds, Arrow's default, they end in the year 2262.
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    sizes = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        sizes.append(group.num_rows)
    for number, begin, end in _windows(sizes, start, stop):
        rows = file.read_row_group(number)
        window = rows.slice(begin, end - begin)
        yield from json_rows(window)
