"""Goes over all stored entries, and rewrites them: what folds, compaction, cleanup and migration have in common.

Entries are dealt out to tasks by their keys' hashes, so that all versions of an entry meet in one task, which finds the newest.
Rows come from the local copies that steps look keys up in, where those of a range of hashes lie side by side. No row passes
through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.joining import write_files
from ebbtide.delta.key_index import KeyIndex
from ebbtide.delta.snapshot import Action, DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.codes import Mask, row_codes
from ebbtide.model.entries import flags, ints, newest, newest_versions
from ebbtide.operators.operator import Operator
from ebbtide.state_table.deciding import Stored
from ebbtide.state_table.layout import ROW

PART_BYTES = 64 * 2**20
"""Bytes of data files that one task goes over."""
BYTES_IN_DRIVER = 8 * 2**20
"""Bytes of data files up to which there is no task but the driver."""
ROWS_PER_FILE = 1_000_000
BASE = {"ebbtide": "base"}
"""The tag of files from a fold of the whole state: among them no entry has two versions."""


class Part(NamedTuple):
    """Some of the entries: those whose keys' hashes are in one of so many equal ranges.

    Args:
        number: Which, from 0.
        of: How many.
    """

    number: int
    of: int

    def rows_of(self, index: KeyIndex) -> slice:
        """Return which rows of an index are in it."""
        ends = [number * 2**64 // self.of for number in (self.number, self.number + 1)]
        first = np.searchsorted(index.hashes, np.uint64(ends[0]))
        last = len(index.hashes) if self.number + 1 == self.of else np.searchsorted(index.hashes, np.uint64(ends[1]))
        return slice(int(first), int(last))


@dataclass(frozen=True)
class StoredEntries:
    """The entries of a state table.

    Args:
        state: Its data files.
        operator: Gives the operator whose entries they are.
    """

    state: Stored
    operator: Callable[[], Operator]

    @property
    def n_bytes(self) -> int:
        """Bytes of the data files."""
        return sum(file.size for file in self.state.files)

    @property
    def is_small(self) -> bool:
        """Whether the driver had better go over them by itself."""
        return self.n_bytes <= BYTES_IN_DRIVER

    def parts(self) -> list[Part]:
        """Deal them out."""
        n_parts = max(1, -(-self.n_bytes // PART_BYTES))  # rounded up
        return [Part(number, n_parts) for number in range(n_parts)]

    def newest(self, part: Part) -> pa.Table:
        """Read the newest version of each entry of a part; those dropped are among them."""
        operator = self.operator()
        tables = [rows for _, _, rows in self._versions(part, operator)]
        versions = pa.concat_tables([operator.schema.empty_table(), *tables])
        return newest_versions(versions, operator.entry_key)

    def positions(self, part: Part, is_doomed: Pick) -> list[tuple[int, BitMap64]]:
        """Find all versions of the entries of a part whose newest version is picked.

        Args:
            part: The part.
            is_doomed: Picks them.

        Returns:
            The number of each data file that holds some, and the numbers of its rows.
        """
        operator = self.operator()
        found = list(self._versions(part, operator))
        versions = pa.concat_tables([operator.schema.empty_table(), *(rows for _, _, rows in found)])
        codes = row_codes(versions, operator.entry_key)
        latest = newest(codes, ints(versions, "_step"))
        doomed = np.flatnonzero(is_doomed(versions.take(pa.array(latest)), operator))
        goes = np.isin(codes, codes[latest[doomed]])
        positions = []
        start = 0
        for number, rows_at, rows in found:
            own = rows_at[goes[start : start + len(rows)]]
            start += len(rows)
            if len(own):
                positions.append((number, BitMap64(own.tolist())))
        return positions

    def _versions(self, part: Part, operator: Operator) -> list[tuple[int, NDArray[np.int64], pa.Table]]:
        """Return the number of each data file, the numbers of its rows that are of a part, and these."""
        copies = self.state.copies(operator.key)
        found = []
        for number, file in enumerate(self.state.files):
            index = copies.index_of(file)
            own = part.rows_of(index)
            positions = index.positions[own]
            rows = index.rows.slice(own.start, own.stop - own.start)
            if file.vector is not None:
                counts = vectors.counts(self.state.table, file.vector, positions)
                positions = positions[counts]
                rows = rows.filter(pa.array(counts))
            found.append((number, positions, rows.cast(operator.schema)))
        return found


class Pick(Protocol):
    """Picks some of the newest versions of entries; sent to workers, so that it must be picklable."""

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """Mark them."""


class Rewritten(NamedTuple):
    """What a task wrote.

    Args:
        adds: The actions that add its files.
        n_entries: Entries in them that are not dropped.
    """

    adds: list[Action]
    n_entries: int


@dataclass(frozen=True)
class Rewrite:
    """Writes the newest versions of entries as new data files; runs in workers.

    Args:
        entries: What there is.
        schema: Columns of the state table.
        bounded: Columns to keep statistics of.
        keep: Which entries stay, and as what.
        is_whole: All data files of the state are gone over.
        data_change: Entries go, or change; else only versions of them that do not count.
    """

    entries: StoredEntries
    schema: pa.Schema
    bounded: tuple[str, ...]
    keep: Callable[[pa.Table, Operator], pa.Table]
    is_whole: bool
    data_change: bool

    def __call__(self, part: Part) -> Rewritten:
        """Rewrite a part."""
        operator = self.entries.operator()
        kept = self.keep(self.entries.newest(part), operator)
        in_order = KeyIndex.of(kept, operator.key).rows  # as lookups go over them
        rows = with_kind(in_order, self.schema)
        state = self.entries.state
        adds = write_files(
            state.table,
            rows,
            self.bounded,
            rows_per_file=ROWS_PER_FILE,
            data_change=self.data_change,
            on_written=state.copies(operator.key).keep,
            tags=BASE if self.is_whole else None,
        )
        n_entries = int((~flags(kept, "_removed")).sum())
        return Rewritten(adds, n_entries)


def with_kind(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return entries as rows of the state table.

    Args:
        entries: All columns of an entry.
        schema: The table's.
    """
    arrays = []
    for column in schema:
        if column.name == "_entry":
            arrays.append(pa.repeat(ROW, len(entries)))
        elif column.name in entries.column_names:
            arrays.append(entries[column.name].cast(column.type))
        else:
            arrays.append(pa.nulls(len(entries), column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class Deletion:
    """Finds what goes: all versions of the entries that are picked; runs in workers.

    Args:
        entries: What there is.
        is_doomed: Picks them.
    """

    entries: StoredEntries
    is_doomed: Pick

    def __call__(self, part: Part) -> list[tuple[int, bytes]]:
        """Return the number of each data file that loses rows of a part, and which, as a bitmap."""
        found = self.entries.positions(part, self.is_doomed)
        return [(number, rows.serialize()) for number, rows in found]


@dataclass(frozen=True)
class WithoutRows:
    """Writes data files again without some of their rows; runs in workers.

    Args:
        state: The state table's data files.
        schema: Its columns.
        bounded: Columns to keep statistics of.
    """

    state: Stored
    schema: pa.Schema
    bounded: tuple[str, ...]

    def __call__(self, loss: tuple[DataFile, bytes]) -> list[Action]:
        """Return the actions that add what is left of a file; none if nothing is.

        Args:
            loss: The file, and the numbers of the rows that go, as a bitmap.
        """
        file, serialized = loss
        goes = BitMap64.deserialize(serialized)
        if file.vector is not None:
            goes |= vectors.read(self.state.table, file.vector)
        rows = read_file(self.state.table, file, self.schema, live=False)
        stays = np.ones(len(rows), dtype=bool)
        stays[np.fromiter(goes, np.int64, len(goes))] = False
        return write_files(
            self.state.table,
            rows.filter(pa.array(stays)),
            self.bounded,
            rows_per_file=max(len(rows), 1),
            data_change=True,
            tags=file.tags,
        )


@dataclass(frozen=True)
class Census:
    """Counts entries; runs in workers."""

    entries: StoredEntries

    def __call__(self, part: Part) -> tuple[int, int | None]:
        """Return how many entries of a part are not dropped, and the least stamp among these."""
        newest = self.entries.newest(part)
        live = newest.filter(pa.array(~flags(newest, "_removed")))
        stamps = live["_stamp_ms"].drop_null()
        oldest_ms = min(ints(live.filter(live["_stamp_ms"].is_valid()), "_stamp_ms").tolist(), default=None)
        return len(live), oldest_ms if len(stamps) else None


def merged(parts: Sequence[Sequence[tuple[int, bytes]]]) -> dict[int, BitMap64]:
    """Return which rows each data file loses, by its number."""
    losses: dict[int, BitMap64] = {}
    for part in parts:
        for number, serialized in part:
            losses[number] = losses.get(number, BitMap64()) | BitMap64.deserialize(serialized)
    return losses
