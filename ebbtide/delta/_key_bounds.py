"""The keys that a data file may hold, by the log's bounds of the key's columns.

Each value becomes a number, once for all files, and so does each bound: the greater of two values never has the smaller
number. A file then costs two comparisons a column. Invariant: a key that is in a file is never left out, though the
bounds of texts may be cut and those of decimals rounded.

Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.columns import Mask
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._values import repeated

EXACT_UNITS = 31
"""UTF-16 units of a text's bound that are relied on: other writers cut at 32 characters or later, some of them within a pair of surrogates."""
ROUNDING = 2.0**-50
"""Relative error that is allowed for in the bound of a decimal: some writers make it a double."""
LEAST_INTEGER = -(2**63)
GREATEST_INTEGER = 2**63 - 1
WIDTH = 8
"""Bytes of a text in its number."""
GREATEST_NUMBER = (1 << 8 * WIDTH) - 1
"""The greatest number of a text."""


class Numbered(Protocol):
    """A column of the keys, as numbers."""

    numbers: NDArray[Any]

    def lower(self, least: Any) -> int | float | None:
        """Return the number of a file's lower bound; None if it is unknown."""

    def upper(self, greatest: Any) -> int | float | None:
        """Return the number of a file's upper bound; None if it is unknown."""


class KeyBounds:
    """Some keys, to be looked for in data files.

    Args:
        keys: (n,) the columns of the keys.
    """

    def __init__(self, keys: pa.Table) -> None:
        self._keys = keys
        self._of_partition: dict[tuple[str, str | None], Mask] = {}
        self._columns: dict[str, Numbered] = {}
        for name in keys.column_names:
            values = keys[name]
            if values.null_count:
                continue  # bounds say nothing of nulls
            type_ = values.type
            if pa.types.is_integer(type_):
                self._columns[name] = _Integers(values)
            elif pa.types.is_decimal(type_):
                self._columns[name] = _Decimals(values)
            elif pa.types.is_string(type_):
                self._columns[name] = _Texts(values)

    def may_hold(self, file: DataFile) -> Mask:
        """Mark the keys that a file may hold."""
        marks: Mask = np.ones(len(self._keys), dtype=bool)
        for name in self._keys.column_names:
            if name in file.partition:
                marks &= self._have(name, file.partition[name])
        for name, column in self._columns.items():
            lower = column.lower(file.least(name))
            upper = column.upper(file.greatest(name))
            if lower is not None:
                marks &= column.numbers >= lower
            if upper is not None:
                marks &= column.numbers <= upper
        return marks

    def _have(self, name: str, text: str | None) -> Mask:
        """Mark the keys that have the value of a partition, given as text; files of one partition share the result."""
        marks = self._of_partition.get((name, text))
        if marks is None:
            values = self._keys[name]
            try:
                value = repeated(text, values.type, 1)[0]
            except pa.ArrowException:  # where the file is read, it is refused
                marks = np.ones(len(values), dtype=bool)
            else:
                is_equal = pc.equal(values, value).fill_null(False) if value.is_valid else pc.is_null(values)
                marks = is_equal.to_numpy()
            self._of_partition[name, text] = marks
        return marks


class _Integers:
    def __init__(self, values: pa.ChunkedArray) -> None:
        self.numbers = values.to_numpy().astype(np.int64)

    def lower(self, least: Any) -> int | None:
        if type(least) is not int:  # a bool is not a bound
            return None
        return max(least, LEAST_INTEGER)

    def upper(self, greatest: Any) -> int | None:
        if type(greatest) is not int:
            return None
        return min(greatest, GREATEST_INTEGER)


class _Decimals:
    def __init__(self, values: pa.ChunkedArray) -> None:
        self.numbers = values.cast(pa.float64()).to_numpy()

    def lower(self, least: Any) -> float | None:
        if type(least) not in (int, float):
            return None
        bound = float(least)
        return bound - abs(bound) * ROUNDING

    def upper(self, greatest: Any) -> float | None:
        if type(greatest) not in (int, float):
            return None
        bound = float(greatest)
        return bound + abs(bound) * ROUNDING


class _Texts:
    """Texts in the order of their UTF-8 bytes, by the first bytes in which any of them differ."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        ends = pc.min_max(values).as_py()
        least = ends["min"] or ""
        greatest = ends["max"] or ""
        # All texts between two that begin alike begin so too.
        self._common = _common_beginning(least.encode(), greatest.encode())
        self.numbers = self._numbers(values)

    def lower(self, least: Any) -> int | None:
        if not isinstance(least, str):
            return None
        return self._number(least.encode(errors="surrogatepass"), b"\0")

    def upper(self, greatest: Any) -> int | None:
        if not isinstance(greatest, str):
            return None
        exact = exact_part(greatest)
        is_cut = exact != greatest
        # A text that begins like a cut bound may be greater than the cut bound.
        filler = b"\xff" if is_cut else b"\0"
        return self._number(exact.encode(errors="surrogatepass"), filler)

    def _number(self, bound: bytes, filler: bytes) -> int:
        """Return the number of a bound; missing bytes are filled."""
        n_common = len(self._common)
        beginning = bound[:n_common].ljust(n_common, filler)
        if beginning < self._common:
            return 0
        if beginning > self._common:
            return GREATEST_NUMBER
        rest = bound[n_common:]
        digits = rest[:WIDTH].ljust(WIDTH, filler)
        return int.from_bytes(digits, "big")

    def _numbers(self, values: pa.ChunkedArray) -> NDArray[np.uint64]:
        """Return the numbers of texts: the first bytes of each after those that all have in common."""
        empty = pa.array([], pa.string())
        in_one = pa.concat_arrays(values.chunks or [empty])
        n_texts = len(in_one)
        _, offset_bytes, content = in_one.buffers()
        digits = np.zeros((n_texts, WIDTH), np.uint8)
        if content is not None:
            all_offsets = np.frombuffer(offset_bytes, np.int32)
            first = in_one.offset
            offsets = all_offsets[first : first + n_texts + 1]
            texts = np.frombuffer(content, np.uint8)
            starts = offsets[:-1] + len(self._common)
            ends = offsets[1:]
            # One byte of all texts at a time; a text that is too short for it keeps a zero.
            for place in range(WIDTH):
                at = starts + place
                is_there = at < ends
                digits[is_there, place] = texts[at[is_there]]
        big_endian = digits.view(">u8").ravel()
        numbers: NDArray[np.uint64] = big_endian.astype(np.uint64)
        return numbers


def _common_beginning(left: bytes, right: bytes) -> bytes:
    n_common = 0
    for own, other in zip(left, right, strict=False):
        if own != other:
            break
        n_common += 1
    return left[:n_common]


def exact_part(bound: str) -> str:
    """Return the beginning of a text's upper bound that is the value's own: all of it, if it is too short to have been cut.

    Example:
        >>> exact_part("short"), len(exact_part("x" * 32 + chr(0x10FFFF)))
        ('short', 31)
    """
    n_units = 0
    for number, character in enumerate(bound):
        is_pair = ord(character) > 0xFFFF
        n_units += 2 if is_pair else 1
        if n_units > EXACT_UNITS:
            return bound[:number]
    return bound
