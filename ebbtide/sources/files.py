"""Files as a stream: JSON lines, plain or gzip, in the order of their names whatever their times.

A Python data source for Spark. It streams the names of files, which workers then read (`read_files`): lines do not
cross into the JVM and back. Its offset is `{"last": name, "files": [names of the batch]}`: the batch is read again
from exactly those files after a crash. Nothing is dropped by age. Spark's own file source goes by modification time,
which in a clone is arbitrary, and has no line numbers.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from ebbtide.errors import LateFileError, SourceReadError
from ebbtide.paths import exists, join, list_files, open_stream
from ebbtide.sources.records import RECORDS

BATCH_BYTES = 8 * 2**20
"""Bytes of lines in one Arrow batch: enough to amortise its cost, little beside a worker's memory."""
Offset = dict[str, Any]


class FilePartition(InputPartition):
    """Some of a batch's files with their numbers within the step."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self.files = files


class FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads; one lives on the driver for a run, copies of it on the workers.

    Args:
        path: The folder.
        max_files: Files in one step.
        tasks: How many read them at once.
    """

    def __init__(self, path: str, max_files: int, tasks: int) -> None:
        self.path, self.max_files, self.tasks = path, max_files, tasks
        self.until: str | None = None
        self.listed: list[str] = []

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before the first file."""
        return {"last": "", "files": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit a step to `max_files`."""
        return ReadMaxFiles(self.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the last file of a bounded run."""
        self.until = max(self._list(), default="")

    def latestOffset(self, start: Offset, limit: ReadLimit = ReadAllAvailable()) -> Offset:  # noqa: N802, B008
        """Return the offset after the next files.

        Raises:
            LateFileError: a file has appeared below one already read.
        """
        names = self._list()
        refuse_late(
            [n for n in names if n <= start["last"]], self.listed, start["last"], self.path, known=bool(self.listed)
        )
        self.listed = names
        new = [n for n in names if n > start["last"] and (self.until is None or n <= self.until)]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return {"last": new[-1], "files": new} if new else start

    def partitions(self, start: Offset, end: Offset) -> list[FilePartition]:
        """Deal the batch's files out to tasks."""
        files = [(name, part) for part, name in enumerate(end["files"])] if start != end else []
        return [FilePartition(files[task :: self.tasks]) for task in range(min(self.tasks, len(files)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        """Name a partition's files."""
        yield from cast("FilePartition", partition).files

    def _list(self) -> list[str]:
        return list_source(self.path)


class FileDataSource(DataSource):
    """`spark.readStream.format("ebbtide_files")` with options path, maxFiles, tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ebbtide_files"

    def schema(self) -> str:
        """Return the columns: a file's name and its number within the step."""
        return "file STRING, part BIGINT"

    def streamReader(self, schema: Any) -> FileStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return FileStreamReader(self.options["path"], int(self.options["maxFiles"]), int(self.options["tasks"]))


def list_source(path: str) -> list[str]:
    """List the source's files.

    Raises:
        SourceReadError: there is no such folder.
    """
    if not exists(path):
        raise SourceReadError.of(
            f"The source folder '{path}' does not exist.", next_step="Create it, or correct source.path in the spec."
        )
    return list_files(path)


def refuse_late(names: list[str], read: list[str] | set[str], last: str, path: str, *, known: bool = True) -> None:
    """Refuse files that stand at or below the last one read and were not read.

    Raises:
        LateFileError: there is one.
    """
    late = sorted(set(names) - set(read)) if known else []
    if late:
        raise LateFileError.of(
            f"In '{path}' a file has appeared below '{last}', which is read already.",
            got=", ".join(late[:5]),
            allowed="new files under greater names",
            next_step=f"Rename it above '{last}', or run 'ebbtide refresh' to read everything anew.",
        )


def read_files(path: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns the stream's file names into `RECORDS`."""

    def read(names: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in names:
            for file in batch.to_pylist():
                yield from read_lines(path, file["file"], file["part"])

    return read


def read_lines(path: str, name: str, part: int) -> Iterator[pa.RecordBatch]:
    """Read one file as batches of `RECORDS`; the end of the last line need not be there."""
    lines: list[bytes] = []
    first = size = 0
    try:
        with open_stream(join(path, name)) as stream:
            for line in io.BufferedReader(stream, 1 << 20):
                lines.append(line.rstrip(b"\r\n"))
                size += len(line)
                if size >= BATCH_BYTES:
                    yield _records(name, part, first, lines)
                    first, size, lines = first + len(lines), 0, []
    except OSError as error:
        raise SourceReadError.of(
            f"The source file '{join(path, name)}' cannot be read: {error}.",
            next_step="Restore the whole file under the same name and run again.",
        ) from error
    if lines:
        yield _records(name, part, first, lines)


def _records(name: str, part: int, first: int, lines: list[bytes]) -> pa.RecordBatch:
    n = len(lines)
    return pa.record_batch(
        [
            pa.repeat(name, n),
            pa.repeat(pa.scalar(part, pa.int64()), n),
            pa.array(range(first, first + n), pa.int64()),
            pa.array(lines, pa.binary()),
        ],
        schema=RECORDS,
    )
