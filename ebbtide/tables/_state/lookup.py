"""Lookup of stored rows: those of some keys, and the keys that a tick has to examine.

Rows are found in the local copies of a table's data files, and read for the wanted keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import Hashes, equals, flags, row_codes
from ebbtide.delta import DataFile, IndexCache, KeyBounds, KeyIndex, LocalCopies, in_hash_order
from ebbtide.entries import Step
from ebbtide.operators import Operator, due_timers
from ebbtide.tables._state.layout import ROW, columns_of_entries, may_hold_expired


@dataclass(frozen=True)
class Stored:
    """Data files of a table, and a selection of their rows.

    Args:
        table: Location of the table.
        files: Its data files; for a lookup, all of the version.
        columns: Columns to read.
        where: (column, value): only rows with this value; None: all.
        table_id: Id of a table whose files another client may write: see `IndexCache`.
        generation: That of the local copies: a worker on another host deletes older ones. Empty: before the first erasure.
    """

    table: str
    files: tuple[DataFile, ...]
    columns: pa.Schema
    where: tuple[str, str] | None = None
    table_id: str = ""
    generation: str = ""

    def copies(self, key: Sequence[str]) -> IndexCache:
        """Return this process's view of the local copies of the files."""
        if self.generation:
            _drop_older(self.table, self.generation)
        return IndexCache.shared(self.table, key, self.columns, where=self.where, table_id=self.table_id)

    def find(self, keys: pa.Table, hashes: Hashes, bounds: KeyBounds | None = None) -> list[FoundRows]:
        """Find the rows of some keys.

        Args:
            keys: Different keys, in the order of their hashes.
            hashes: Their hashes.
            bounds: Skips files by their statistics. Default: none is skipped.

        Returns:
            The rows in each file; files without any are left out.
        """
        copies = self.copies(keys.column_names)
        copies.only(self.files)
        found = []
        for file in self.files:
            if bounds is not None and not bounds.may_hold(file).any():
                continue
            index = copies.index_of(file)
            rows, _ = index.find(keys, hashes)
            if not len(rows):
                continue
            # The index has all rows of the file: a deletion vector that came later hides some of them.
            positions = index.positions[rows]
            counts = file.is_live(self.table, positions)
            live = rows[counts]
            if len(live):
                found.append(FoundRows(index, live))
        return found


@dataclass(frozen=True)
class FoundRows:
    """Some rows of a data file.

    Args:
        index: Index of the file.
        numbers: Numbers of rows of the index; at least one.
    """

    index: KeyIndex
    numbers: NDArray[np.int64]

    @property
    def n_bytes(self) -> int:
        """Their approximate bytes, by the average of the index."""
        return self.index.rows.bytes_a_row * len(self.numbers)

    def read(self) -> pa.Table:
        """Copy the rows."""
        return self.index.rows.take(self.numbers)


@dataclass(frozen=True)
class Found:
    """The rows under some keys.

    Args:
        state: Entries.
        sink: Rows of the sink that replace entries that have expired.
    """

    state: list[FoundRows]
    sink: list[FoundRows]


@cache
def _drop_older(table: str, generation: str) -> None:
    """Delete the older copies of a table in this process's folder, once in a process."""
    LocalCopies().drop_older(table, generation)


def distinct_keys(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, Hashes]:
    """Return the different keys of some rows, in the order of their hashes, and these."""
    names = list(key)
    keys = rows.select(names)
    codes = row_codes(keys, key)
    _, first_of_code = np.unique(codes, return_index=True)
    first = pa.array(first_of_code)
    distinct = keys.take(first)
    in_order, hashes, _ = in_hash_order(distinct, key)
    return in_order, hashes


def due_keys(state: Stored, operator: Operator, step: Step) -> pa.Table:
    """Return the keys that a tick has to examine, once each.

    Args:
        state: The stored entries.
        operator: The operator of the entries.
        step: The tick.
    """
    # A superset: every stored version of an entry counts, and the operator then decides by the newest. Finding the newest
    # here would need all files; this reads only those whose least stamp has expired, and few of their columns.
    found = list(_due(state, operator, step))
    key = list(operator.key)
    if not found:
        return operator.schema.empty_table().select(key)
    keys, _ = distinct_keys(pa.concat_tables(found), key)
    return keys


def _due(state: Stored, operator: Operator, step: Step) -> Iterator[pa.Table]:
    """Yield the due keys of each file that may hold one."""
    names = {
        *operator.key,
        *operator.expiry.columns,
        "_removed",
        "_sub",
        "_position",
    }
    kind = pa.field("_entry", pa.string())
    schema = pa.schema([kind, *columns_of_entries(operator, names)])
    for file in state.files:
        # Timers have no statistics: with named states every file may hold a due one.
        may_be_due = operator.has_named_states or may_hold_expired(file, operator.expiry, step)
        if not may_be_due:
            continue
        rows = file.read(state.table, schema)
        is_entry = equals(rows, "_entry", ROW)
        entries = rows.filter(is_entry)
        is_due = operator.expiry.expired(entries, step)
        if operator.has_named_states:
            is_due |= due_timers(entries, step)
        is_live = ~flags(entries, "_removed")
        is_due &= is_live
        keys = entries.select(list(operator.key))
        yield keys.filter(pa.array(is_due))
