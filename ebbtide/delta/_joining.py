"""Joins small data files of a table, in commits that change no row.

Each step adds files, and a table of many small steps would have very many. Files are joined by size class: once eight of a class exist
they become one file of the next class, which is eight times as large. So a row is rewritten once per class, O(log(bytes)) times, and a
table has at most a few dozen small files, however many steps wrote it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.delta import _vectors as vectors
from ebbtide.delta._commit import Puts
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._key_index import IndexCache
from ebbtide.delta._log import Action
from ebbtide.delta._snapshot import Snapshot
from ebbtide.delta._table import add_file, commit_after, replacing

WIDTH = 8
"""Number of files of a class that become one of the next class, and the ratio of their sizes."""
LEAST_BYTES = 64 * 2**10
"""Files of the first class are smaller than this."""
SMALL_BYTES = 16 * 2**20
"""A file of this size or more is not joined; see `is_small`."""
MOST_BYTES = 128 * 2**20
"""The most bytes of files that are joined at a time, as far as is known in memory: their rows are held there."""
ROWS_PER_FILE = 1_000_000
"""The most rows of a data file that is written in one go."""
ENGINE = "Ebbtide"
"""The `engineInfo` of commits that join files: no step's facts say whose they are."""
JOINED = {"operation": "OPTIMIZE", "engineInfo": ENGINE}
"""Fields of the `commitInfo` of a commit that joins files."""


def is_small(file: DataFile, rows_per_file: int = ROWS_PER_FILE) -> bool:
    """Return whether a file is to be joined with further files.

    Args:
        file: The file.
        rows_per_file: The most rows of the files that a join writes. A file of half as many or more is as large as a join makes it, whatever
            its bytes: to join such files again would leave as many, and a fold would write the whole table after each step. So is one whose
            rows take half of `MOST_BYTES` in memory.
    """
    is_full = file.rows is not None and 2 * file.rows >= rows_per_file
    fills_memory = 2 * file.unpacked_bytes >= MOST_BYTES
    return file.size < SMALL_BYTES and not is_full and not fills_memory


def small_files(files: Iterable[DataFile], rows_per_file: int = ROWS_PER_FILE) -> list[DataFile]:
    """Return the files to join now; none before a size class is full.

    Args:
        files: Data files of a table.
        rows_per_file: See `is_small`.
    """
    classes: dict[int, list[DataFile]] = {}
    for file in files:
        if is_small(file, rows_per_file):
            number = _class_of(file)
            classes.setdefault(number, []).append(file)
    joined: list[DataFile] = []
    lower: list[DataFile] = []
    # Smallest class first: what it becomes counts as one more file of the next, so that one commit joins as far up as it can.
    for number in sorted(classes):
        own = classes[number]
        n_files = len(own) + bool(joined)  # the lower classes, joined, are one file of this class
        lower += own
        if n_files >= WIDTH:
            joined = list(lower)
    return joined


def _class_of(file: DataFile) -> int:
    number = 0
    limit = LEAST_BYTES
    while file.size >= limit:
        number += 1
        limit *= WIDTH
    return number


def emptied_files(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the large files of which at least half the rows are deleted; small ones are rewritten when they are joined."""
    large = [file for file in files if not is_small(file)]
    return [file for file in large if _is_half_empty(file)]


def _is_half_empty(file: DataFile) -> bool:
    n_rows = file.rows
    n_live = file.live_rows
    if n_rows is None or n_live is None:
        return False
    return 2 * n_live <= n_rows


def in_batches(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Yield files in groups of at most `MOST_BYTES` in memory, or of one larger file."""
    group: list[DataFile] = []
    n_bytes = 0
    # Smallest first: the many small files share a group.
    smallest_first = sorted(files, key=lambda file: file.unpacked_bytes)
    for file in smallest_first:
        is_full = n_bytes + file.unpacked_bytes > MOST_BYTES
        if group and is_full:
            yield group
            group = []
            n_bytes = 0
        group.append(file)
        n_bytes += file.unpacked_bytes
    if group:
        yield group


def write_files(
    table: str,
    rows: pa.Table,
    bounded: Sequence[str],
    *,
    rows_per_file: int | None = None,
    data_change: bool,
    copies: IndexCache | None = None,
    tags: Mapping[str, str] | None = None,
) -> list[Action]:
    """Write rows as data files of a table, in their order; return the actions that add the files.

    Args:
        table: Its location.
        rows: All columns.
        bounded: Columns to keep statistics of.
        rows_per_file: The most of them in one file; None: all are in one.
        data_change: The rows are new to the table.
        copies: The files are indexed, and copied for the lookups of this process. Default: they are not.
        tags: Tags of the files in the log.
    """
    actions = []
    n_rows = rows_per_file or max(len(rows), 1)
    for start in range(0, len(rows), n_rows):
        part = rows.slice(start, n_rows).combine_chunks()
        name = f"part-{uuid.uuid4()}.parquet"
        indexed = None if copies is None else copies.indexed(part)
        attached = None if indexed is None else indexed.attached
        action = add_file(table, name, part, bounded=bounded, data_change=data_change, attached=attached)
        add = action["add"]
        if tags:
            add["tags"] = {**tags, **add["tags"]}
        if copies is not None and indexed is not None:
            copies.keep(DataFile(add), indexed)
        actions.append(action)
    return actions


def without(
    table: str,
    file: DataFile,
    goes: BitMap64,
    columns: pa.Schema,
    bounded: Sequence[str],
    *,
    cleaned: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> list[Action]:
    """Write a data file again without some of its rows; return the actions that add those left, none if none is.

    In a partitioned table they keep the file's values of the partition columns, which stand in the log alone.

    Args:
        table: Location of the table.
        file: The file.
        goes: Positions of the rows that go, beside those that its vector hides.
        columns: Columns of the table.
        bounded: Columns to keep statistics of.
        cleaned: Returns the rows that are left as they are to be written.
    """
    # The file is read with the rows that its vector hides: positions count from the beginning of the file.
    if file.vector is not None:
        goes |= file.deleted_rows(table)
    rows = file.read(table, columns, live=False)
    remaining = vectors.without(rows, goes)
    left = cleaned(remaining)
    of_partition = {name.lower() for name in file.partition}
    stored = [name for name in left.column_names if name.lower() not in of_partition]
    bounded_and_stored = [name for name in bounded if name in stored]
    adds = write_files(
        table,
        left.select(stored),
        bounded_and_stored,
        data_change=True,
        tags=file.tags,
    )
    for action in adds:
        action["add"]["partitionValues"] = dict(file.partition)
    return adds


def commit_joined(
    puts: Puts,
    snapshot: Snapshot,
    files: Sequence[DataFile],
    adds: Sequence[Action],
    info: Mapping[str, Any],
) -> Snapshot:
    """Commit files that replace older ones, unless another writer has changed one of those, or the table, in between.

    Args:
        puts: The table's store.
        snapshot: The version that was read.
        files: Its data files that are replaced.
        adds: The actions that add the new files.
        info: Further fields of the commit's `commitInfo`.

    Returns:
        The version that it made; else the newest one, without the new files.

    Raises:
        DeltaFeatureError: the table has got a feature that Ebbtide does not write.
    """
    actions = replacing(files, adds, data_change=False)
    commit_info = {**JOINED, **info}
    metadata = snapshot.metadata  # the columns and properties for which the files were written
    # A file that another writer has removed, or given a new vector, has lost rows: its copy would bring them back.
    while snapshot.metadata == metadata and all(file.id in snapshot.files for file in files):
        made = commit_after(puts, snapshot, actions, commit_info)
        if made is not None:
            return made
        snapshot = snapshot.advanced()
    return snapshot
