"""Looks up rows of a data file by key: in hashes that are sorted once, each lookup is a binary search in mapped memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Hashes, Mask, key_hashes, row_codes
from ebbtide.delta._file_rows import FileRows, Positions


@dataclass(frozen=True)
class KeyIndex:
    """Rows of one data file by key.

    Args:
        hashes: (n,) ascending.
        positions: (n,) number of each row in the data file.
        rows: (n,) the rows.
    """

    hashes: Hashes
    positions: Positions
    rows: FileRows

    def find(self, wanted: pa.Table, hashes: Hashes) -> tuple[Positions, Positions]:
        """Find the rows of some keys.

        Args:
            wanted: Different keys, in the order of their hashes.
            hashes: Their hashes.

        Returns:
            Indices into `rows`, and for each the index of its key in `wanted`; a key may have several rows.
        """
        if not len(self.hashes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # A file of a fold has one range of the hashes: only the keys in it are looked up.
        least = self.hashes[0]
        greatest = self.hashes[-1]
        first = int(np.searchsorted(hashes, least, side="left"))
        end = int(np.searchsorted(hashes, greatest, side="right"))
        numbers, numbers_in_range = _matches(self.hashes, hashes[first:end])
        key_numbers = numbers_in_range + first
        if not len(numbers):
            return numbers, key_numbers
        # Two keys may have one hash: their values decide.
        found = self.rows.take(numbers, wanted.column_names)
        asked = wanted.take(pa.array(key_numbers))
        is_same = _same_keys(found, asked)
        return numbers[is_same], key_numbers[is_same]

    @staticmethod
    def in_hash_order(
        rows: pa.Table,
        key: Sequence[str],
    ) -> tuple[pa.Table, Hashes, Positions]:
        """Sort rows by the hashes of their keys, O(n log n).

        Returns:
            The rows, in one chunk; their hashes; the former position of each.
        """
        hashes = key_hashes(rows, key)
        before = hashes[:-1]
        after = hashes[1:]
        is_in_order = bool((before <= after).all())
        if is_in_order:  # as a fold leaves them: nothing has to be copied
            unchanged = np.arange(len(rows))
            return rows.combine_chunks(), hashes, unchanged
        order = np.argsort(hashes, kind="stable")
        in_order = rows.take(pa.array(order))
        return in_order.combine_chunks(), hashes[order], order

    @classmethod
    def distinct_keys(cls, rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, Hashes]:
        """Return the different keys of some rows, in the order of their hashes, and these."""
        keys = rows.select(list(key))
        codes = row_codes(keys, key)
        _, first_of_code = np.unique(codes, return_index=True)
        distinct = keys.take(pa.array(first_of_code))
        in_order, hashes, _ = cls.in_hash_order(distinct, key)
        return in_order, hashes


def _same_keys(found: pa.Table, asked: pa.Table) -> Mask:
    """Mark where rows have the keys that were asked for."""
    is_same = np.ones(len(found), dtype=bool)
    for name in asked.column_names:
        own = found[name]
        other = asked[name].cast(own.type)
        is_same &= _same_values(own, other)
    return is_same


def _same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    """Mark where two columns have the same value; null equals null."""
    is_equal = pc.equal(left, right).fill_null(False)
    both_null = pc.and_(left.is_null(), right.is_null())
    is_same = pc.or_(is_equal, both_null)
    return np.asarray(is_same.to_numpy(), dtype=bool)


def _matches(stored: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
    """Return the pairs of equal hashes of two ascending arrays, as indices into each: those of the shorter one are looked up in the longer one."""
    if len(wanted) < len(stored):
        key_numbers, rows = _pairs(wanted, stored)
    else:
        rows, key_numbers = _pairs(stored, wanted)
    return rows, key_numbers


def _pairs(values: Hashes, ascending: Hashes) -> tuple[Positions, Positions]:
    """Return the indices of each value among ascending ones, as pairs of indices; O(values * log(ascending))."""
    first = np.searchsorted(ascending, values, side="left")
    # Most values have no equal: where the equals end is looked up for the rest alone.
    within = np.flatnonzero(first < len(ascending))
    next_above = ascending[first[within]]
    has_equal = next_above == values[within]
    found = within[has_equal]
    first_equal = first[found]
    n_equal = _n_equal(values[found], ascending, first_equal)
    # A value makes one pair with each of its equals, in a row: the nth pair is with the nth equal.
    place_of_pair = np.repeat(np.arange(len(found)), n_equal)
    first_pair = np.cumsum(n_equal) - n_equal
    pair = np.arange(len(place_of_pair))
    nth = pair - first_pair[place_of_pair]
    equal_of_pair = first_equal[place_of_pair] + nth
    return found[place_of_pair], equal_of_pair


def _n_equal(values: Hashes, ascending: Hashes, first: Positions) -> Positions:
    """Return how many times each value is among ascending ones.

    Args:
        values: The values.
        ascending: The ascending values.
        first: The place of each value's first equal.
    """
    n_equal = np.ones(len(values), np.int64)
    # Few values occur twice: the end is searched only for those, since it costs as much as finding the first.
    is_before_last = first + 1 < len(ascending)
    before_last = np.flatnonzero(is_before_last)
    following = ascending[first[before_last] + 1]
    is_repeated = following == values[before_last]
    repeated = before_last[is_repeated]
    end = np.searchsorted(ascending, values[repeated], side="right")
    n_equal[repeated] = end - first[repeated]
    return n_equal
