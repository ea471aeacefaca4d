"""Files of JSON lines, plain or gzip, in the order of their names, regardless of their times.

The offset of a batch names its files, `{"files": [(name, size), ...]}`. Tasks read the files directly (`read_files`), so no
line passes through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ebbtide.errors import SourceReadError
from ebbtide.formats import RECORDS
from ebbtide.sources._lines import NoTextError, next_line, split_lines
from ebbtide.sources._listing import changed_while_read, linked_error
from ebbtide.sources._source import MAX_SAMPLED_BYTES, Discovery, ReadRecords, Work
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor

BATCH_BYTES = 8 * 2**20
"""Bytes of lines in one Arrow batch: enough to amortise its cost, little of a worker's memory."""
BATCH_ROWS = 2**16
"""Maximum lines in a batch: a line of two bytes may be a bad record, which takes 4 kB while its reason is written."""
Offset = dict[str, Any]
SizedFile = tuple[str, int | None]
"""A file's name and its size when it was listed, bytes; None if that is not known."""


class FileSlice(NamedTuple):
    """A file of a step, or a part of it that begins with a line.

    Args:
        name: The file's name.
        size: Its size when it was listed, bytes; None if that is not known.
        number: Its number within the step.
        begin: Where it begins in the file, bytes.
        end: Where it ends; None: where the file does.
        first_line: Number of its first line in the file.
        folder: The folder that it is in now; empty: the source's.
    """

    name: str
    size: int | None
    number: int
    begin: int = 0
    end: int | None = None
    first_line: int = 0
    folder: str = ""

    def location(self, path: str) -> Location:
        """Return where the file is.

        Args:
            path: The source's folder.
        """
        return Location(self.folder or path) / self.name


ReadFiles = Callable[[Sequence[FileSlice]], Iterator[pa.RecordBatch]]


def numbered(files: Sequence[SizedFile]) -> list[FileSlice]:
    """Number a step's files, each as a whole."""
    return [FileSlice(name, size, number) for number, (name, size) in enumerate(files)]


def dealt_out(slices: Sequence[FileSlice], n_tasks: int) -> list[list[FileSlice]]:
    """Deal a batch's files out to tasks, round robin: the numbers of files of two tasks differ by at most one.

    Example:
        >>> [[file.name for file in task] for task in dealt_out(numbered([("a", 1), ("b", 2), ("c", 3)]), 2)]
        [['a', 'c'], ['b']]
    """
    n_used = min(n_tasks, len(slices))
    return [list(slices[task::n_tasks]) for task in range(n_used)]


@dataclass(frozen=True)
class FileRecords:
    """The records of some files: `Records` that each of several tasks has about as many bytes of, also where a file is large.

    Args:
        executor: Runs the tasks.
        path: The source's folder.
        files: The files.
        max_line_bytes: See `read_lines`.
        is_little: They are read where the step is planned.
        folders: Folders of the files that have left the source's.
    """

    executor: Executor
    path: str
    files: Sequence[SizedFile]
    max_line_bytes: int
    is_little: bool
    folders: Mapping[str, str] = field(default_factory=dict)

    def run(self, work: Work) -> list[str]:
        """See `Records`."""
        read = read_files(self.path, self.max_line_bytes)
        return ReadRecords(self.executor, self._tasks, read, is_little=self.is_little).run(work)

    @cached_property
    def _tasks(self) -> list[list[FileSlice]]:
        whole = [file._replace(folder=self.folders.get(file.name, "")) for file in numbered(self.files)]
        if self.is_little:
            return dealt_out(whole, 1)
        n_tasks = self.executor.parallelism
        mean_bytes = sum(file.size or 0 for file in whole) // n_tasks
        cutting = CutLines(self.path, self.max_line_bytes)
        slices = []
        for file in whole:
            # As many as it has shares of the mean: a file that is little larger stays whole.
            n_slices = round((file.size or 0) / max(mean_bytes, BATCH_BYTES))
            if n_slices > 1 and not Location(file.name).is_compressed:
                slices += cutting.in_order(self.executor, file, n_slices)
            else:
                slices.append(file)
        return dealt_out(slices, n_tasks)


@dataclass(frozen=True)
class CutLines:
    """Cuts files into slices that begin with a line, and finds the numbers of these lines.

    Args:
        path: The source's folder.
        max_line_bytes: See `read_lines`.
    """

    path: str
    max_line_bytes: int

    def in_order(self, executor: Executor, file: FileSlice, n_slices: int) -> list[FileSlice]:
        """Return the slices of a file; it as a whole if it cannot be read, as the task that reads it then says.

        Args:
            executor: Counts the lines, for which each byte is read once more.
            file: The file.
            n_slices: Number of slices; fewer come of long lines.
        """
        try:
            begins = self._begins(file, n_slices)
        except OSError:
            return [file]
        slices = [file._replace(begin=begin, end=end) for begin, end in pairwise([*begins, None]) if begin is not None]
        counts = executor.map(self.count, slices[:-1])
        if None in counts:
            return [file]
        firsts = accumulate((count or 0 for count in counts), initial=0)
        return [each._replace(first_line=first) for each, first in zip(slices, firsts, strict=True)]

    def _begins(self, file: FileSlice, n_slices: int) -> list[int]:
        """Return where the slices begin: behind the first line feed from where equal ones would."""
        location = file.location(self.path)
        size = file.size or 0
        begins = [0]
        for number in range(1, n_slices):
            wanted = size * number // n_slices
            if wanted > begins[-1]:
                from_byte = wanted - 1  # a line that begins there is behind the line feed before it
                with location.open_range(from_byte, None) as stream:
                    n_before = next_line(stream)
                if n_before is None:
                    break
                begins.append(from_byte + n_before)
        return [begin for begin in begins if begin < size]

    def count(self, part: FileSlice) -> int | None:
        """Count the lines of a slice; None if it cannot be read."""
        location = part.location(self.path)
        try:
            with location.open_range(part.begin, part.end) as stream:
                return sum(map(len, split_lines(stream, self.max_line_bytes, is_head=part.begin == 0)))
        except (OSError, NoTextError):
            return None


class FilePlanner:
    """Plans the batches of a run over files.

    Args:
        files: The files to read, in order.
        max_files: Files in one batch.
        max_bytes: Bytes in one batch; a larger file is a separate batch.
    """

    def __init__(self, files: Iterable[SizedFile], max_files: int, max_bytes: int) -> None:
        self.max_files = max_files
        self.max_bytes = max_bytes
        self._files = list(files)

    def note(self, found: Discovery) -> None:
        """See `BatchPlanner`."""
        self._files = list(found.parts)

    def after(self, last: Offset | None) -> Offset:
        """See `BatchPlanner`."""
        read = last["files"] if last else []
        first = _index_after(self._files, read)
        end = first + self.max_files
        files = self._within_bytes(self._files[first:end])
        if last is not None and not files:
            return last
        return {"files": files}

    def _within_bytes(self, files: list[SizedFile]) -> list[SizedFile]:
        """Return the leading files whose total size is at most `max_bytes`; always at least one."""
        sizes = [size or 0 for _, size in files]
        n_within = 0
        for total in accumulate(sizes):
            is_within = total <= self.max_bytes
            n_within += is_within
        n_taken = max(n_within, 1)
        return files[:n_taken]


def _index_after(planned: list[SizedFile], files: list[SizedFile]) -> int:
    """Return the index of the file after some files in a plan."""
    last = files[-1] if files else None
    if last not in planned:
        return 0
    index = planned.index(last)
    return index + 1


def read_files(path: str, max_line_bytes: int = MAX_SAMPLED_BYTES) -> ReadFiles:
    """Return the function that reads a task's files as `RECORDS`; arguments as `read_lines`."""

    def read(files: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
        batches = (batch for file in files for batch in _read_slice(path, FileSlice(*file), max_line_bytes))
        yield from joined(batches)

    return read


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches into ones of about `BATCH_BYTES` and at most `BATCH_ROWS`, in order. A batch of that size is not copied.

    Decoding a batch costs some 2 ms, even for few records. Small files in one batch share that cost. At most two batches
    are in memory.
    """
    held: list[pa.RecordBatch] = []
    n_bytes = n_rows = 0
    for batch in batches:
        is_full = n_bytes + batch.nbytes > BATCH_BYTES or n_rows + len(batch) > BATCH_ROWS
        if held and is_full:
            yield _one_batch(held)
            held = []
            n_bytes = n_rows = 0
        held.append(batch)
        n_bytes += batch.nbytes
        n_rows += len(batch)
    if held:
        yield _one_batch(held)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def read_lines(
    path: str,
    name: str,
    part: int,
    max_line_bytes: int = MAX_SAMPLED_BYTES,
    *,
    size: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read one file as batches of `RECORDS`.

    Args:
        path: The source's folder.
        name: The file's name below it.
        part: Its number within the step.
        max_line_bytes: A longer line is cut to one byte more than this, so that a decoder sees that it was too long.
        size: Its bytes when it was listed; None if unknown.

    Raises:
        FileChangedError: it has another size, before or after it was read.
        SourceReadError: it is damaged, gone, a link, or by its first bytes not UTF-8 text.
    """
    return _read_slice(path, FileSlice(name, size, part), max_line_bytes)


def _read_slice(path: str, part: FileSlice, max_line_bytes: int) -> Iterator[pa.RecordBatch]:
    """Read a slice of a file; see `read_lines`."""
    name, size = part.name, part.size
    folder = part.folder or path
    if Location(folder).is_linked(name):
        raise linked_error(folder, [name])
    location = part.location(path)
    try:
        yield from _read_batches(location, part, max_line_bytes)
        size_after = location.size()
        if size_after == 0 and Location(name).is_compressed:
            raise OSError("it has 0 bytes, which no compressed file has")  # noqa: TRY301 - read as a damaged one
    except (OSError, NoTextError) as error:
        # A file that is still being written may look damaged; its size distinguishes the two.
        size_after = location.size()
        if size is not None and size_after not in (size, None):
            raise changed_while_read(path, name, listed=size, found=size_after) from error
        restore = "Restore the whole file under the same name and run again."
        raise SourceReadError.of(
            f"The source file '{location}' cannot be read: {error}.",
            allowed="UTF-8 text" if isinstance(error, NoTextError) else None,
            next_step=error.next_step if isinstance(error, NoTextError) else restore,
        ) from error
    if size is not None and size_after != size:
        raise changed_while_read(path, name, listed=size, found=size_after)


def _read_batches(location: Location, part: FileSlice, max_line_bytes: int) -> Iterator[pa.RecordBatch]:
    """Read a slice of a file in batches of about `BATCH_BYTES` and at most `BATCH_ROWS`; at most one is in memory."""
    held: list[pa.BinaryArray] = []
    n_yielded = part.first_line
    is_whole = part.begin == 0 and part.end is None
    opened = location.open_stream() if is_whole else location.open_range(part.begin, part.end)
    with opened as stream:
        for lines in _in_slices(split_lines(stream, max_line_bytes, is_head=part.begin == 0)):
            held.append(lines)
            is_full = sum(each.nbytes for each in held) >= BATCH_BYTES or sum(map(len, held)) >= BATCH_ROWS
            if is_full:
                batch = _records(part, n_yielded, pa.concat_arrays(held))
                n_yielded += len(batch)
                held = []
                yield batch
    if held:
        yield _records(part, n_yielded, pa.concat_arrays(held))


def _in_slices(arrays: Iterable[pa.BinaryArray]) -> Iterator[pa.BinaryArray]:
    """Yield lines in arrays of at most half of `BATCH_ROWS`, so that two of them fit into one batch."""
    most = BATCH_ROWS // 2
    for lines in arrays:
        for first in range(0, len(lines), most):
            yield lines.slice(first, most)


def _records(part: FileSlice, first: int, lines: pa.BinaryArray) -> pa.RecordBatch:
    """Return lines as records; `first` is the number of the first one in its file."""
    n_lines = len(lines)
    part_number = pa.scalar(part.number, pa.int64())
    line_numbers = np.arange(first, first + n_lines)
    columns = [
        pa.repeat(part.name, n_lines),
        pa.repeat(part_number, n_lines),
        pa.array(line_numbers),
        lines,
    ]
    return pa.record_batch(columns, schema=RECORDS)
