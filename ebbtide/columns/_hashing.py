"""64-bit hashes of keys, the same on every machine and in every version: they decide the layout of stored files.

Equal keys have equal hashes. Collisions are rare: a billion keys have one with a
chance of about one in thirty. They are harmless, since a lookup by hash also compares the key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns._codes import in_one_array
from ebbtide.columns._equality import equality_key

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_SHIFTS = np.array([30, 27, 31], np.uint64)
"""The constants of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014)."""
_NULL = np.uint64(0xA0761D6478BD642F)
_WORD = 8
"""Bytes of a word."""
_ALL_BITS = np.uint64(2**64 - 1)


def key_hashes(rows: pa.Table, key: Sequence[str]) -> Hashes:
    """Hash the key of each row.

    Args:
        rows: With the columns of the key.
        key: Their names, in order.

    Returns:
        (n,) hashes.

    Example:
        >>> table = pa.table({"a": [1, 1, 2], "b": ["x", "x", "x"]})
        >>> first, same, other = key_hashes(table, ["a", "b"]).tolist()
        >>> first == same, first == other
        (True, False)
    """
    # Sums and products wrap around at 64 bits on purpose; numpy's unsigned arrays do so without a warning.
    hashes = np.zeros(len(rows), np.uint64)
    for name in key:
        values = _column_hashes(in_one_array(rows[name]))
        # Mixing between two columns makes their order matter.
        hashes = _mixed(hashes + _STEP) ^ values
    return _mixed(hashes)


def _mixed(words: Hashes) -> Hashes:
    """Spread each bit of a word over all 64 (splitmix64's last step)."""
    words = words ^ (words >> _SHIFTS[0])
    words = words * _FACTORS[0]
    words = words ^ (words >> _SHIFTS[1])
    words = words * _FACTORS[1]
    mixed: Hashes = words ^ (words >> _SHIFTS[2])
    return mixed


def _column_hashes(column: pa.Array) -> Hashes:
    type_ = column.type
    if pa.types.is_nested(type_):
        values = column.to_pylist(maps_as_pydicts="strict")
        texts = [None if value is None else repr(equality_key([value])) for value in values]
        column = pa.array(texts, pa.string())
    is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    if is_text:
        hashes = _text_hashes(column)
    elif pa.types.is_decimal(type_):
        hashes = _decimal_hashes(column)
    else:
        hashes = _mixed(_words(column) + _STEP)
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        hashes[is_null] = _NULL
    return hashes


def _words(column: pa.Array) -> Hashes:
    """Return the values of a column of up to 64 bits as words; the words of nulls are arbitrary."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type):
        filled = column.cast(pa.float64()).fill_null(0)
        doubles = filled.to_numpy(zero_copy_only=False)
        # Every NaN gets the same bits: all NaN are equal.
        one_nan = np.where(np.isnan(doubles), np.nan, doubles)
        bits: Hashes = one_nan.view(np.uint64)
        return bits
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    integers = column.cast(pa.int64()).fill_null(0)
    values = integers.to_numpy(zero_copy_only=False)
    words: Hashes = values.astype(np.int64).view(np.uint64)
    return words


def _decimal_hashes(column: pa.Array) -> Hashes:
    """Hash the two words of a 128-bit decimal; the values of a column have one scale."""
    widest = pa.decimal128(38, column.type.scale)
    values = column.cast(widest)
    _, words_buffer = values.buffers()
    words = np.frombuffer(words_buffer, np.uint64).reshape(-1, 2)
    # A decimal of 128 bits is two words, the low one first; a slice of a column begins at its offset.
    start = values.offset
    end = start + len(values)
    low, high = words[start:end].T
    mixed_low = _mixed(low + _STEP)
    return _mixed(mixed_low ^ high)


def _text_hashes(column: pa.Array) -> Hashes:
    """Hash texts, or bytes, word by word: the k-th words of all texts together. O(bytes)."""
    if len(column) == 0:
        return np.zeros(0, np.uint64)
    starts, lengths, words = _texts(column)
    hashes = _mixed(lengths.view(np.uint64) + _STEP)
    longest = int(lengths.max())
    # One pass per word position over all texts that are long enough, so that no loop runs per text.
    for position in range(0, longest, _WORD):
        has_word = np.flatnonzero(lengths > position)
        word_starts = starts[has_word] + position
        word = words[word_starts]
        # The last word of a text may run into the next text: those bits are masked.
        n_left = lengths[has_word] - position
        n_bytes = np.minimum(n_left, _WORD)
        other_bits = (_WORD - n_bytes) * 8
        own_bits = _ALL_BITS >> other_bits.view(np.uint64)
        own_word = word & own_bits
        mixed = _mixed(hashes[has_word] ^ own_word)
        hashes[has_word] = mixed + _STEP
    return _mixed(hashes)


def _texts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Hashes]:
    """Return the start of each text, its bytes, and the words that start at each byte of all texts."""
    _, offsets_buffer, data_buffer = column.buffers()
    all_offsets = np.frombuffer(offsets_buffer, np.int32)
    start = column.offset
    end = start + len(column)
    offsets = all_offsets[start : end + 1].astype(np.int64)
    first = offsets[0]
    n_bytes = offsets[-1] - first
    data = np.zeros(n_bytes + _WORD, np.uint8)  # so that a word can be read at the last byte
    if data_buffer is not None:
        all_bytes = np.frombuffer(data_buffer, np.uint8)
        data[:n_bytes] = all_bytes[first : first + n_bytes]
    # Strides of one byte: a view that reads eight bytes from every byte on, without a copy.
    words: Hashes = np.ndarray(
        shape=n_bytes + 1,
        dtype="<u8",
        buffer=data,
        strides=(1,),
    )
    starts = offsets[:-1] - first
    lengths = np.diff(offsets)
    return starts, lengths, words
