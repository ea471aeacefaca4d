"""Files as a stream: JSON lines, plain or gzip, in the order of their names whatever their times.

A Python data source for Spark. It streams the names of files, which workers then read (`read_files`): lines do not
cross into the JVM and back. The driver lists the folder once a run (`ebbtide.sources.listing`) and writes what is to be
read to a file, `[[name, size], ...]`; the source takes `maxFiles` of them at a time. Its offset is `{"files": [[name,
size], ...]}`, the files of the batch: a batch that was decided is read again from exactly those after a crash. Before
sizes were noted it was `{"last": name, "files": [name, ...]}`, which is read as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from ebbtide.errors import SourceReadError
from ebbtide.formats.records import MAX_RECORD_BYTES, RECORDS
from ebbtide.paths import is_compressed, join, open_stream, read_bytes, size_of, write_bytes
from ebbtide.sources.lines import ByteOrderError, split_lines
from ebbtide.sources.listing import changed_while_read

BATCH_BYTES = 8 * 2**20
"""Bytes of lines in one Arrow batch: enough to amortise its cost, little beside a worker's memory."""
Offset = dict[str, Any]
SizedFile = tuple[str, int | None]
"""A file's name and its size when it was listed, bytes; None in offsets from before sizes were noted."""


def files_of(offset: Offset) -> list[SizedFile]:
    """Return the files of an offset, in order.

    Example:
        >>> files_of({"files": [["a", 3]]}), files_of({"last": "a", "files": ["a"]})
        ([('a', 3)], [('a', None)])
    """
    return [(file, None) if isinstance(file, str) else (file[0], file[1]) for file in offset["files"]]


def write_plan(location: str, files: Iterable[SizedFile]) -> None:
    """Write which files a run reads, for the source to take them from."""
    write_bytes(location, json.dumps([list(file) for file in files]).encode())


class FilePartition(InputPartition):
    """Some of a batch's files: name, size when listed, number within the step."""

    def __init__(self, files: list[tuple[str, int | None, int]]) -> None:
        self.files = files


class FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans steps; it lives in a process of its own, started by Spark.

    Args:
        plan: Location of what `write_plan` wrote.
        max_files: Files in one step.
        tasks: How many read them at once.
    """

    def __init__(self, plan: str, max_files: int, tasks: int) -> None:
        self.plan, self.max_files, self.tasks = plan, max_files, tasks

    @cached_property
    def planned(self) -> list[list[Any]]:
        """All files of the run, [name, size] each; read when first asked for, as Spark makes readers for other ends too."""
        return list(json.loads(read_bytes(self.plan) or b"[]"))

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before the first file."""
        return {"files": []}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit a step to `max_files`."""
        return ReadMaxFiles(self.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Leave the plan as it is: it was made for this run."""

    def latestOffset(self, start: Offset, limit: ReadLimit = ReadAllAvailable()) -> Offset:  # noqa: N802, B008
        """Return the offset after the next files; `start` if there are none.

        A `start` from an earlier run names files that the plan has not: the plan then begins at its first file.
        """
        last = start["files"][-1] if start["files"] else None
        first = self.planned.index(last) + 1 if last in self.planned else 0
        count = limit.max_files if isinstance(limit, ReadMaxFiles) else len(self.planned)
        files = self.planned[first : first + count]
        return {"files": files} if files else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[FilePartition]:
        """Deal the batch's files out to tasks."""
        files = [(name, size, part) for part, (name, size) in enumerate(files_of(end))] if start != end else []
        return [FilePartition(files[task :: self.tasks]) for task in range(min(self.tasks, len(files)))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int | None, int]]:
        """Name a partition's files."""
        yield from cast("FilePartition", partition).files


class FileDataSource(DataSource):
    """`spark.readStream.format("ebbtide_files")` with options plan, maxFiles, tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ebbtide_files"

    def schema(self) -> str:
        """Return the columns: a file's name, its size when listed and its number within the step."""
        return "file STRING, size BIGINT, part BIGINT"

    def streamReader(self, schema: Any) -> FileStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return FileStreamReader(self.options["plan"], int(self.options["maxFiles"]), int(self.options["tasks"]))


def read_files(
    path: str, max_line_bytes: int = MAX_RECORD_BYTES
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that turns the stream's rows into `RECORDS`; arguments as `read_lines`."""

    def read(names: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in names:
            for file in batch.to_pylist():
                yield from read_lines(path, file["file"], file["part"], max_line_bytes, size=file["size"])

    return read


def read_lines(
    path: str, name: str, part: int, max_line_bytes: int = MAX_RECORD_BYTES, *, size: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Read one file as batches of `RECORDS`.

    Args:
        path: The source's folder.
        name: The file's name below it.
        part: Its number within the step.
        max_line_bytes: Of a longer line one byte more than that is given, by which a decoder knows it.
        size: Its bytes when it was listed; None if that is not known.

    Raises:
        FileChangedError: it has another size, before or after it was read.
        SourceReadError: it is damaged, gone, or not UTF-8 by its byte order mark.
    """
    location = join(path, name)
    lines: list[bytes] = []
    first = held = 0
    try:
        with open_stream(location) as stream:
            for line in split_lines(stream, max_line_bytes):
                lines.append(line)
                held += len(line) + 1
                if held >= BATCH_BYTES:
                    yield _records(name, part, first, lines)
                    first, held, lines = first + len(lines), 0, []
        found = size_of(location)
        if found == 0 and is_compressed(name):
            raise OSError("it has 0 bytes, which no compressed file has")  # noqa: TRY301 - read as a damaged one
    except (OSError, ByteOrderError) as error:
        found = size_of(location)
        if size is not None and found not in (size, None):
            raise changed_while_read(path, name, listed=size, found=found) from error
        raise SourceReadError.of(
            f"The source file '{location}' cannot be read: {error}.",
            allowed="UTF-8 text" if isinstance(error, ByteOrderError) else None,
            next_step="Restore the whole file under the same name and run again.",
        ) from error
    if size is not None and found != size:
        raise changed_while_read(path, name, listed=size, found=found)
    if lines:
        yield _records(name, part, first, lines)


def _records(name: str, part: int, first: int, lines: list[bytes]) -> pa.RecordBatch:
    n = len(lines)
    return pa.record_batch(
        [
            pa.repeat(name, n),
            pa.repeat(pa.scalar(part, pa.int64()), n),
            pa.array(np.arange(first, first + n)),
            pa.array(lines, pa.binary()),
        ],
        schema=RECORDS,
    )
