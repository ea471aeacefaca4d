"""The keys that a data file may hold, by the log's bounds of the key's columns.

Each value becomes a number, once for all files, and so does each bound: of two values the greater never has the smaller number. A file then costs two
comparisons a column. Invariant: a key that is in a file is never left out, though the bounds of texts may be cut and those of decimals rounded.

Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.delta.snapshot import DataFile
from ebbtide.model.codes import Mask

EXACT_UNITS = 31
"""UTF-16 units of a text's bound that are relied on: other writers cut at 32 characters or later, some of them within a pair of surrogates."""
ROUNDING = 2.0**-50
"""Relative error that is allowed for in the bound of a decimal: some writers make it a double."""
LEAST_INTEGER = -(2**63)
GREATEST_INTEGER = 2**63 - 1
WIDTH = 8
"""Bytes of a text in its number."""


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
        self._n_keys = len(keys)
        self._columns: dict[str, Numbered] = {}
        for name in keys.column_names:
            values = keys[name]
            if values.null_count:
                continue  # bounds say nothing of nulls
            if pa.types.is_integer(values.type):
                self._columns[name] = _Integers(values)
            elif pa.types.is_decimal(values.type):
                self._columns[name] = _Decimals(values)
            elif pa.types.is_string(values.type):
                self._columns[name] = _Texts(values)

    def may_hold(self, file: DataFile) -> Mask:
        """Mark the keys that a file may hold."""
        marks: Mask = np.ones(self._n_keys, dtype=bool)
        for name, column in self._columns.items():
            lower = column.lower(file.least(name))
            upper = column.upper(file.greatest(name))
            if lower is not None:
                marks &= column.numbers >= lower
            if upper is not None:
                marks &= column.numbers <= upper
        return marks


class _Integers:
    def __init__(self, values: pa.ChunkedArray) -> None:
        self.numbers = values.to_numpy().astype(np.int64)

    def lower(self, least: Any) -> int | None:
        is_known = type(least) is int  # a bool is not
        return max(least, LEAST_INTEGER) if is_known else None

    def upper(self, greatest: Any) -> int | None:
        is_known = type(greatest) is int
        return min(greatest, GREATEST_INTEGER) if is_known else None


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
        least = (ends["min"] or "").encode()
        greatest = (ends["max"] or "").encode()
        # All texts between two that begin alike begin so too.
        n_common = 0
        while least[: n_common + 1] == greatest[: n_common + 1] and n_common < len(least):
            n_common += 1
        self._common = least[:n_common]
        self.numbers = self._numbers(values)

    def lower(self, least: Any) -> int | None:
        if not isinstance(least, str):
            return None
        return self._number(least.encode(errors="surrogatepass"), b"\0")

    def upper(self, greatest: Any) -> int | None:
        if not isinstance(greatest, str):
            return None
        exact = exact_part(greatest)
        if exact == greatest:
            return self._number(exact.encode(errors="surrogatepass"), b"\0")
        # A text that begins like this may be greater than what is left of the bound.
        return self._number(exact.encode(errors="surrogatepass"), b"\xff")

    def _number(self, bound: bytes, filler: bytes) -> int:
        """Return the number of a bound; what it lacks is filled."""
        n_common = len(self._common)
        beginning = bound[:n_common].ljust(n_common, filler)
        if beginning != self._common:
            is_below = beginning < self._common
            return 0 if is_below else 2**64 - 1
        digits = bound[n_common : n_common + WIDTH].ljust(WIDTH, filler)
        return int.from_bytes(digits, "big")

    def _numbers(self, values: pa.ChunkedArray) -> NDArray[np.uint64]:
        in_one = pa.concat_arrays(values.chunks or [pa.array([], pa.string())])
        _, offset_bytes, content = in_one.buffers()
        digits = np.zeros((len(in_one), WIDTH), np.uint8)
        if content is not None:
            offsets = np.frombuffer(offset_bytes, np.int32)[in_one.offset :][: len(in_one) + 1]
            texts = np.frombuffer(content, np.uint8)
            starts = offsets[:-1] + len(self._common)
            for place in range(WIDTH):
                at = starts + place
                is_there = at < offsets[1:]
                digits[is_there, place] = texts[at[is_there]]
        numbers: NDArray[np.uint64] = digits.view(">u8").ravel().astype(np.uint64)
        return numbers


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
