"""Queries: Spark executes them over views as of a moment, and writes their rows, or their changes step by step, to files."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.columns import quoted
from ebbtide.errors import SqlError
from ebbtide.sessions import Frames
from ebbtide.sql._names import Names
from ebbtide.sql._operations import Batch, Changes, Listed, Output, Whole, as_ours
from ebbtide.sql._references import Referring, find_references
from ebbtide.sql._results import Result, ResultColumn, ResultKind, cut_off
from ebbtide.sql._rows import WrittenRows, frame, result_columns, sink_version, write_rows
from ebbtide.sql._settings import Settings
from ebbtide.sql._statements import Select, SparkStatement

Versions = Mapping[str, int]
"""Name of a table to a version of its sink."""
OWN_COLUMNS = (ResultColumn("op"), ResultColumn("version", "bigint"))
"""Columns of changes before those of the query: +I -U +U -D, and the version of the table that last changed."""
_OP, _VERSION = "_ebbtide_op", "_ebbtide_version"
_POSITION = re.compile(r"([a-z][a-z0-9_]*)=(\d+)")


@dataclass(frozen=True)
class Moment:
    """A query as of a moment.

    Args:
        versions: Versions of the tables that it reads.
        rows: Rows of the query.
    """

    versions: Versions
    rows: DataFrame


def position_text(versions: Versions) -> str:
    """Return the text of a moment at which changes can be resumed.

    Example:
        >>> position_text({"orders": 3, "items": 12})
        'items=12,orders=3'
    """
    return ",".join(f"{name}={version}" for name, version in sorted(versions.items()))


def parse_position(text: str, names: Sequence[str]) -> dict[str, int]:
    """Read a position.

    Args:
        text: Text of `position_text`.
        names: Names of the tables that the query reads.

    Raises:
        SqlError: the text is not a position of this query.
    """
    parts = [_POSITION.fullmatch(part) for part in text.split(",")]
    found = {part[1]: int(part[2]) for part in parts if part}
    is_of_query = found.keys() == set(names)
    if None in parts or not is_of_query:
        allowed = [f"{name}=VERSION" for name in sorted(names)]
        raise SqlError.of(
            "This is not a position of the query.",
            got=text,
            allowed=", ".join(allowed),
        )
    return found


def next_versions(now: Versions, newest: Versions) -> dict[str, int]:
    """Return the moment after another: the next version of a single table, or the newest versions of several."""
    if len(now) != 1:
        return dict(newest)
    [(name, version)] = now.items()
    following = min(version + 1, newest[name])
    return {name: following}


def snapshot(moment: Moment) -> DataFrame:
    """Return all rows of a moment as insertions."""
    return _with_op(moment.rows, F.lit("+I"), moment)


def difference(before: Moment, after: Moment, key: Sequence[str]) -> DataFrame:
    """Return the changes of rows from one moment to another.

    Args:
        before: The earlier moment.
        after: The later moment.
        key: Columns of the query that pair a new row with the old one; empty: no row is an update.
    """
    # A multiset difference in both directions: rows that stay equal cancel, and duplicates are counted. Each step costs two queries
    # over the whole result, for any change; a key only turns pairs of an old and a new row into updates.
    gone = before.rows.exceptAll(after.rows)
    new = after.rows.exceptAll(before.rows)
    gone_with_sign = _with_op(gone, F.lit("-"), after)
    new_with_sign = _with_op(new, F.lit("+"), after)
    with_sign = gone_with_sign.unionAll(new_with_sign)
    sign = F.col(_OP)
    kind = F.when(sign == "+", "I").otherwise("D")
    if not key:
        op = F.concat(sign, kind)
        return with_sign.withColumn(_OP, op)
    keyed = [F.col(quoted(name)) for name in key]
    of_key = Window.partitionBy(*keyed)
    n_of_key = F.count(F.lit(1)).over(of_key)
    is_update = n_of_key > 1
    kind_of_key = F.when(is_update, "U").otherwise(kind)
    op = F.concat(sign, kind_of_key)
    with_op = with_sign.withColumn(_OP, op)
    deletions_first = F.col(_OP).desc()  # '-' is greater than '+'
    return with_op.orderBy(*keyed, deletions_first)


def key_of(columns: Sequence[str], sink_key: Sequence[str]) -> list[str]:
    """Return the key of a table if a query over that table alone shows each of its columns once; else an empty list."""
    has_key = all(columns.count(name) == 1 for name in sink_key)
    return list(sink_key) if has_key else []


def _with_op(rows: DataFrame, op: Column, moment: Moment) -> DataFrame:
    newest = max(moment.versions.values(), default=0)
    version = F.lit(newest).cast("bigint")
    return rows.select(
        op.alias(_OP),
        version.alias(_VERSION),
        "*",
    )


def steps_since(
    start: Moment,
    newest: Callable[[], Versions],
    at: Callable[[Versions], Moment],
    wait: Callable[[], bool],
) -> Iterator[tuple[Moment, Moment]]:
    """Yield each moment with the one before it, as they come.

    Args:
        start: The first moment.
        newest: Returns the newest versions of the tables.
        at: Returns the query as of a moment.
        wait: Waits a while; returns False to end the iteration.
    """
    # A single table is followed version by version, so that each of its commits is seen. Several tables have no common order of
    # commits: each round compares the newest versions of all, and commits in between are seen as one change.
    before = start
    while True:
        versions = next_versions(before.versions, newest())
        if versions == before.versions:
            if not wait():
                return
            continue
        after = at(versions)
        yield before, after
        before = after


@dataclass(frozen=True)
class Queries:
    """Executes the queries of a session.

    Args:
        spark: Spark session of the SQL session.
        names: Catalog of the statement.
        settings: Settings of the session.
        folder: Folder for the rows of one query.
        judge: Refuses a text that the session may not have Spark execute.
        analysing: Held from the definition of views to the analysis of the query: all statements of a session share its views.
    """

    spark: SparkSession
    names: Names
    settings: Settings
    folder: Path
    judge: Callable[[str], None]
    analysing: threading.Lock

    def execute(self, asked: Select | SparkStatement) -> Output:
        """Execute a query, or a statement that Spark alone reads.

        Raises:
            EbbtideError: a table of the statement does not exist yet, or Spark fails; the message has the place in the script.
        """
        with self._referring(asked) as referring:
            is_streaming = self.settings["runtime-mode"] == "streaming" and bool(referring.references)
            if isinstance(asked, Select) and (asked.emits_changes or is_streaming):
                return self._changes(referring, asked.position)
            return self._rows(referring)

    def analyse(self, asked: Select) -> None:
        """Analyse a query that EXPLAIN shows: Spark answers an error in it with rows.

        Raises:
            EbbtideError: as of `execute`.
        """
        with self._referring(asked) as referring:
            self._analysed(referring, self._newest(referring))

    @contextmanager
    def _referring(self, asked: Select | SparkStatement) -> Iterator[Referring]:
        """Give a statement by its references, once it is judged; errors of the block have the place in the script."""
        referring = find_references(asked.statement, self.names.queryable())
        try:
            self.judge(referring.text)
            yield referring
        except Exception as error:
            raise as_ours(error, referring.place) from error

    def _rows(self, referring: Referring) -> Output:
        rows = self._analysed(referring, self._newest(referring))
        columns = result_columns(rows)
        if not columns:  # Spark executes a command when it analyses it
            return Whole(Result.done("Done."), Listed([]))
        most = int(self.settings["max-rows"])
        limited = rows.limit(most + 1) if most else rows
        folder = self.folder / "rows"
        write_rows(limited, folder)
        written = WrittenRows.read(folder)
        message = ""
        if most and written.count > most:
            message = cut_off(most)
            written = written.first(most)
        return Whole(Result(ResultKind.ROWS, columns, message), written, self._page_rows)

    def _changes(self, referring: Referring, position: str | None) -> Output:
        names = sorted({reference.table for reference in referring.references})
        versions = self._newest(referring) if position is None else parse_position(position, names)
        start = Moment(versions, self._analysed(referring, versions))
        columns = result_columns(start.rows)
        key = self._key(names, [column.name for column in columns])

        def batches(is_canceled: threading.Event) -> Iterator[Batch]:
            if position is None:
                yield self._batch(0, snapshot(start), start)
            poll_s = int(self.settings["poll-interval"])
            moments = steps_since(
                start,
                lambda: self._newest(referring),
                lambda versions: Moment(versions, self._analysed(referring, versions)),
                lambda: not is_canceled.wait(poll_s),
            )
            for number, (before, after) in enumerate(moments, start=1):
                yield self._batch(number, difference(before, after, key), after)

        result = Result(ResultKind.CHANGES, (*OWN_COLUMNS, *columns))
        return Changes(result, batches, self._page_rows)

    def _batch(self, number: int, rows: DataFrame, moment: Moment) -> Batch:
        folder = self.folder / f"{number}"
        write_rows(rows, folder)
        written = WrittenRows.read(folder)
        position = position_text(moment.versions)
        delete = partial(shutil.rmtree, folder, ignore_errors=True)
        return Batch(written, position, delete)

    def _key(self, names: list[str], columns: list[str]) -> list[str]:
        if len(names) != 1:
            return []
        [name] = names
        spec = self.names.filled(name).spec
        return key_of(columns, spec.sink_key)

    def _newest(self, referring: Referring) -> dict[str, int]:
        """Return the newest versions of the tables that are read; a sink that is no Delta table has none."""
        tables = set()
        for reference in referring.references:
            spec = self.names.filled(reference.table).spec
            if reference.part is None or spec.sink.type == "delta":
                tables.add(reference.table)
        return {table: sink_version(self.names, table) for table in tables}

    def _analysed(self, referring: Referring, versions: Versions) -> DataFrame:
        with self.analysing:
            for reference in referring.references:
                rows = frame(Frames(self.spark), self.names, reference, versions)
                rows.createOrReplaceTempView(f"`{reference.view}`")
            return self.spark.sql(referring.text)

    @property
    def _page_rows(self) -> int:
        return int(self.settings["page-rows"])
