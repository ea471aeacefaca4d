"""The data files of a table that are joined, in commits that change no row.

Each step adds files, and a table of many small steps would have very many. Files are joined by size class: once eight of a class exist
they become one file of the next class, which is eight times as large. So a row is rewritten once per class, O(log(bytes)) times, and a
table has at most a few dozen small files for each range of keys that tasks own, however many steps wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from ebbtide.delta import DataFile

Item = TypeVar("Item")
WIDTH = 8
"""Number of files of a class that become one of the next class, and the ratio of their sizes."""
LEAST_BYTES = 64 * 2**10
"""Files of the first class are smaller than this."""
SMALL_BYTES = 16 * 2**20
"""A file of this size or more is not joined; see `is_small`."""
MOST_BYTES = 128 * 2**20
"""The most bytes of files that are joined at a time, as far as is known in memory: their rows are held there."""
MOST_RANGES = 64
"""Maximum ranges of keys whose files are joined apart."""
LEAST_ROWS = 1024
"""A file of fewer rows is joined with any further ones."""
ROWS_PER_FILE = 1_000_000
"""The most rows of a data file that is written in one go."""


def joinable(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Divide files into those that may become one: of one range of keys, and of one partition."""
    return _grouped(files, lambda file: (range_of(file), frozenset(file.partition.items())))


def by_range(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Divide files by the ranges of their keys' hashes. Files of different tasks stay apart, so that each task still opens its own alone."""
    return _grouped(files, range_of)


def _grouped(files: Iterable[DataFile], key: Callable[[DataFile], Hashable]) -> list[list[DataFile]]:
    groups: dict[Hashable, list[DataFile]] = {}
    for file in files:
        groups.setdefault(key(file), []).append(file)
    return list(groups.values())


def range_of(file: DataFile) -> tuple[int, int]:
    """Return the part of all hashes that has a file's keys, about: its number, and the number of such parts, a power of two up to `MOST_RANGES`."""
    # The range of a few keys is by chance, not by a task.
    if (file.rows or 0) < LEAST_ROWS:
        return 0, 1
    keys = file.key_range()
    width = keys.greatest + 1 - keys.least
    n_parts = min(2 ** round(math.log2(2**64 / width)), MOST_RANGES)  # the ranges of tasks are about equal
    middle = keys.least + width // 2
    return middle * n_parts // 2**64, n_parts


def n_ranges_for(n_hosts: int) -> int:
    """Return how many ranges a file of keys of several hosts is cut into: a host then opens files of few keys that are not its own.

    Example:
        >>> [n_ranges_for(n_hosts) for n_hosts in (2, 3, 8, 100)]
        [4, 8, 16, 64]
    """
    return min(1 << (2 * n_hosts - 1).bit_length(), MOST_RANGES)


def wide_files(files: Iterable[DataFile], n_hosts: int) -> list[DataFile]:
    """Return the large files whose keys are those of several hosts, as one process writes them: each host would open all of them.

    Files that have too few rows for ranges are left, and those larger than a fold makes them, which memory may not take.

    Args:
        files: Large files of a table: small ones are joined, and large then.
        n_hosts: Hosts that each keep key indices.
    """
    least_rows = LEAST_ROWS * n_ranges_for(n_hosts)
    wide = []
    for file in files:
        has_rows = (file.live_rows or 0) >= least_rows
        # As the range of a task is rounded to a power of two, it may seem wider than that of a host: by less than twice.
        is_wide = 2 * range_of(file)[1] <= min(n_hosts, MOST_RANGES)
        if is_wide and has_rows and file.unpacked_bytes <= 2 * MOST_BYTES:
            wide.append(file)
    return wide


def is_small(file: DataFile, rows_per_file: int = ROWS_PER_FILE) -> bool:
    """Return whether to join a file with further files.

    Args:
        file: The file.
        rows_per_file: The most rows of the files that a join writes. A file with at least half as many is as large as a
            join makes it, regardless of its bytes. Joining such files again would leave as many, and a fold would write
            the whole table after each step. The same holds for one whose
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
    # Smallest class first: its result counts as a file of the next class, so that one commit joins as many classes as possible.
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
    """Return the large files with at least half of their rows deleted; small ones are rewritten when they are joined."""
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
    # Smallest first: the many small files share a group.
    smallest_first = sorted(files, key=lambda file: file.unpacked_bytes)
    return in_groups(smallest_first, lambda file: file.unpacked_bytes, MOST_BYTES)


def in_groups(items: Iterable[Item], n_bytes_of: Callable[[Item], int], most_bytes: int) -> Iterator[list[Item]]:
    """Yield items in groups, in their order: of at most so many bytes, or of one larger item."""
    group: list[Item] = []
    n_bytes = 0
    for item in items:
        size = n_bytes_of(item)
        if group and n_bytes + size > most_bytes:
            yield group
            group = []
            n_bytes = 0
        group.append(item)
        n_bytes += size
    if group:
        yield group
