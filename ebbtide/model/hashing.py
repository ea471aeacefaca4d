"""64-bit hashes of keys, the same on every machine and in every version: stored files are laid out by them.

Equal keys have equal hashes. Two keys with one hash are rare (2 in a billion keys, about one chance in thirty) and do no harm: whoever
looks a key up by its hash compares the key too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.model.equality import equality_key

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
"""The constants of splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014)."""
_NULL = np.uint64(0xA0761D6478BD642F)
_WORD = 8
"""Bytes of a word."""


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
    hashes = np.zeros(len(rows), np.uint64)
    for name in key:
        values = _column_hashes(rows[name].combine_chunks())
        # The mix between two columns makes their order count.
        hashes = _mixed(hashes + _STEP) ^ values
    return _mixed(hashes)


def _mixed(words: Hashes) -> Hashes:
    """Spread each bit of a word over all 64 (splitmix64's last step)."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


def _column_hashes(column: pa.Array) -> Hashes:
    type_ = column.type
    if pa.types.is_nested(type_):
        values = column.to_pylist(maps_as_pydicts="strict")
        texts = [None if value is None else repr(equality_key([value])) for value in values]
        column = pa.array(texts, pa.string())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
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
    """Return the values of a column of up to 64 bits as words; whatever for nulls."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type):
        doubles = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        one_nan = np.where(np.isnan(doubles), np.nan, doubles)
        bits: Hashes = one_nan.view(np.uint64)
        return bits
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    integers = column.cast(pa.int64()).fill_null(0)
    words: Hashes = integers.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return words


def _decimal_hashes(column: pa.Array) -> Hashes:
    """Hash the two words of a 128-bit decimal; the values of a column have one scale."""
    values = column.cast(pa.decimal128(38, column.type.scale))
    words = np.frombuffer(values.buffers()[1], np.uint64).reshape(-1, 2)
    own = words[values.offset : values.offset + len(values)]
    low = _mixed(own[:, 0] + _STEP)
    return _mixed(low ^ own[:, 1])


def _text_hashes(column: pa.Array) -> Hashes:
    """Hash texts, or bytes, word by word: the k-th words of all that are long enough together. O(bytes)."""
    if len(column) == 0:
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data_buffer = column.buffers()
    all_offsets = np.frombuffer(offsets_buffer, np.int32)
    offsets = all_offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = offsets[0], offsets[-1]
    data = np.zeros(last - first + _WORD, np.uint8)  # so that a word can be read at the last byte
    if data_buffer is not None:
        data[: last - first] = np.frombuffer(data_buffer, np.uint8)[first:last]
    words = np.ndarray(len(data) - _WORD + 1, "<u8", buffer=data, strides=(1,))  # one at each byte
    starts = offsets[:-1] - first
    lengths = np.diff(offsets)
    hashes = _mixed(lengths.view(np.uint64) + _STEP)
    longest = int(lengths.max())
    for at in range(0, longest, _WORD):
        has_word = np.flatnonzero(lengths > at)
        word = words[starts[has_word] + at]
        n_bytes = np.minimum(lengths[has_word] - at, _WORD)
        unused_bits = ((_WORD - n_bytes) * 8).view(np.uint64)
        own = word & (np.uint64(2**64 - 1) >> unused_bits)  # the bytes behind the end are the next text's
        hashes[has_word] = _mixed(hashes[has_word] ^ own) + _STEP
    return _mixed(hashes)
