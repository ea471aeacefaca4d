"""Ranges of keys by their hashes: what a task reads of a table whose rows of a key must meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ebbtide.columns import key_hashes
from ebbtide.delta import KeyIndex

ROWS_IN_PART = 500_000
"""Rows that one task holds: by rows, since compressed bytes say little of the memory that they take."""


class HashRange(NamedTuple):
    """Some of the entries: those whose keys' hashes are in one of several equal ranges.

    Args:
        number: Number of the range, from 0.
        of: Number of ranges.
    """

    number: int
    of: int

    @classmethod
    def covering(cls, n_rows: int) -> list[HashRange]:
        """Return ranges that have all keys, each at most about `ROWS_IN_PART` of some stored rows: a power of two, so that they are those of tasks.

        Example:
            >>> HashRange.covering(1_000_000)
            [HashRange(number=0, of=2), HashRange(number=1, of=2)]
        """
        n_ranges = quotient(n_rows, ROWS_IN_PART)
        return HashRange(0, 1).pieces(1 << (n_ranges - 1).bit_length())

    def only(self, rows: pa.Table, key: Sequence[str]) -> pa.Table:
        """Return the rows whose keys are in the range.

        Args:
            rows: With the columns of the key.
            key: Their names, in the order of the hash.
        """
        if self.of == 1:
            return rows
        hashes = key_hashes(rows, key)
        counts = hashes >= np.uint64(self._least(self.number))
        if self.number + 1 < self.of:  # the end of the last range, 2**64, does not fit into 64 bits
            counts &= hashes < np.uint64(self._least(self.number + 1))
        return rows.filter(pa.array(counts))

    def rows_of(self, index: KeyIndex) -> slice:
        """Return the rows of an index that are in the range."""
        first = self._first_of(self.number, index)
        end = self._first_of(self.number + 1, index)
        return slice(first, end)

    def middle(self) -> int:
        """Return the hash in the middle of the range."""
        return (2 * self.number + 1) * 2**64 // (2 * self.of)

    def meets(self, least: int, greatest: int) -> bool:
        """Return whether the range has hashes of another one, given by its ends."""
        return self._least(self.number) <= greatest and least < self._least(self.number + 1)

    def pieces(self, n_pieces: int) -> list[HashRange]:
        """Divide the range into equal ones.

        Example:
            >>> HashRange(1, 3).pieces(2)
            [HashRange(number=2, of=6), HashRange(number=3, of=6)]
        """
        first = self.number * n_pieces
        numbers = range(first, first + n_pieces)
        n_all = self.of * n_pieces
        return [HashRange(number, n_all) for number in numbers]

    def _first_of(self, number: int, index: KeyIndex) -> int:
        """Return the first row of an index that is in a range, or in a later one."""
        if number == self.of:  # the end of the last range, 2**64, does not fit into 64 bits
            return len(index.hashes)
        row = np.searchsorted(index.hashes, np.uint64(self._least(number)))
        return int(row)

    def _least(self, number: int) -> int:
        """Return the least hash of a range."""
        return number * 2**64 // self.of


def quotient(n_rows: int, at_most: int) -> int:
    """Return how many pieces of at most so many rows there are, at least one."""
    rounded_up = -(-n_rows // at_most)
    return max(rounded_up, 1)
