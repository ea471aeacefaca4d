"""Queries: Spark reads and executes them, over views of one moment; their rows go to files."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ebbtide.amounts import amount
from ebbtide.sql.changes import (
    OWN_COLUMNS,
    Moment,
    Versions,
    difference,
    key_of,
    parse_position,
    position_text,
    snapshot,
    steps_since,
)
from ebbtide.sql.frames import Names, frame, sink_version
from ebbtide.sql.operations import Batch, Changes, Listed, Output, Whole
from ebbtide.sql.references import Referring, find_references
from ebbtide.sql.results import Result, ResultKind
from ebbtide.sql.rows import WrittenRows, result_columns, write_rows
from ebbtide.sql.settings import Settings
from ebbtide.sql.spark_errors import as_ours
from ebbtide.sql.statements import Select, SparkStatement


@dataclass(frozen=True)
class Queries:
    """Executes the queries of a session.

    Args:
        spark: Its Spark session.
        names: What they stand for.
        settings: The session's.
        folder: For the rows of one query.
        judge: Refuses a text that the session may not have Spark execute.
        analysing: Views are the session's: what one statement has them mean must not be changed by another before Spark has looked.
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
            EbbtideError: a table that it names has no rows yet; or Spark's errors, with their places as they were written.
        """
        referring = find_references(asked.statement, self.names.queryable())
        is_streaming = self.settings["runtime-mode"] == "streaming" and bool(referring.references)
        try:
            self.judge(referring.text)
            if isinstance(asked, Select) and (asked.emits_changes or is_streaming):
                return self._changes(referring, asked.position)
            return self._rows(referring)
        except Exception as error:
            raise as_ours(error, referring.place) from error

    def _rows(self, referring: Referring) -> Output:
        rows = self._analysed(referring, self._newest(referring))
        columns = result_columns(rows)
        if not columns:  # a command: Spark has done it when it read it
            return Whole(Result.done("Done."), Listed([]))
        most = int(self.settings["max-rows"])
        limited = rows.limit(most + 1) if most else rows
        folder = self.folder / "rows"
        write_rows(limited, folder)
        written = WrittenRows.read(folder)
        message = ""
        if most and written.count > most:
            message = f"Cut off at {amount(most, 'row')}; there are more. SET max-rows = 0 returns all."
            written = written.first(most)
        return Whole(
            Result(ResultKind.ROWS, columns, message),
            written,
            self._page_rows,
        )

    def _changes(self, referring: Referring, position: str | None) -> Output:
        names = sorted({reference.table for reference in referring.references})
        versions = self._newest(referring) if position is None else parse_position(position, names)
        start = Moment(versions, self._analysed(referring, versions))
        columns = result_columns(start.rows)
        key = self._key(names, [column.name for column in columns])

        def batches(is_canceled: threading.Event) -> Iterator[Batch]:
            if position is None:
                yield self._batch(0, snapshot(start), start)
            moments = steps_since(
                start,
                lambda: self._newest(referring),
                self._at(referring),
                self._wait(is_canceled),
            )
            for number, (before, after) in enumerate(moments, start=1):
                yield self._batch(number, difference(before, after, key), after)

        result = Result(ResultKind.CHANGES, (*OWN_COLUMNS, *columns))
        return Changes(result, batches, self._page_rows)

    def _batch(self, number: int, rows: DataFrame, moment: Moment) -> Batch:
        folder = self.folder / f"{number}"
        write_rows(rows, folder)
        return Batch(
            WrittenRows.read(folder),
            position_text(moment.versions),
            partial(shutil.rmtree, folder, ignore_errors=True),
        )

    def _at(self, referring: Referring) -> Callable[[Versions], Moment]:
        return lambda versions: Moment(versions, self._analysed(referring, versions))

    def _wait(self, is_canceled: threading.Event) -> Callable[[], bool]:
        seconds = int(self.settings["poll-interval"])
        return lambda: not is_canceled.wait(seconds)

    def _key(self, names: list[str], columns: list[str]) -> list[str]:
        if len(names) != 1:
            return []
        return key_of(columns, self.names.filled(names[0]).spec.sink_key)

    def _newest(self, referring: Referring) -> dict[str, int]:
        """Return the versions of the tables that are read, as they are now."""
        return {reference.table: sink_version(self.names, reference.table) for reference in referring.references}

    def _analysed(self, referring: Referring, versions: Versions) -> DataFrame:
        with self.analysing:
            for reference in referring.references:
                rows = frame(self.spark, self.names, reference, versions)
                rows.createOrReplaceTempView(f"`{reference.view}`")
            return self.spark.sql(referring.text)

    @property
    def _page_rows(self) -> int:
        return int(self.settings["page-rows"])
