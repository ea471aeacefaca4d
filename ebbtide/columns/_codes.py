"""Dense integer codes for keys and rows, so that kernels compare integers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.columns._compiled import CompiledLoop
from ebbtide.columns._equality import equality_key

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Codes = Ints


def row_codes(table: pa.Table, columns: Sequence[str]) -> Codes:
    """Number the rows so that two rows have the same number exactly if they are equal in `columns`.

    `ebbtide.columns._equality` says when values are equal. No hash is compared: codes never collide.

    Args:
        table: (n,) rows.
        columns: At least one column.

    Returns:
        (n,) codes from 0, dense, in no particular order.

    Example:
        >>> row_codes(pa.table({"a": [1, 2, 1], "b": [None, "x", None]}), ["a", "b"]).tolist()
        [0, 1, 0]
    """
    codes: Codes | None = None
    for name in columns:
        column = in_one_array(table[name])
        if codes is None:
            codes = _column_codes(column)
            continue
        # Functional dependency: if equal codes imply equal values, the column splits no code and need not be numbered.
        if not _is_determined_by(column, codes):
            column_codes = _column_codes(column)
            codes = _joined(codes, column_codes)
    if codes is None:
        return np.empty(0, np.int64)
    return codes


def in_one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array: its only chunk, which may be part of a longer array, or a copy of all."""
    # `combine_chunks` copies a single chunk too.
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks()


def count_codes(codes: Codes) -> int:
    """Return how many codes there are: one more than the greatest, since they are dense."""
    greatest = int(codes.max(initial=-1))
    return greatest + 1


def _joined(left: Codes, right: Codes) -> Codes:
    """Number the pairs of two codes; dense again, so that the next product cannot overflow."""
    n_right = count_codes(right)
    pairs = left * n_right + right
    return _dense(pairs)


def _is_determined_by(column: pa.Array, codes: Codes) -> bool:
    """Return whether rows with equal codes are also equal in a column, if that is cheaper than numbering the column.

    Often a few columns distinguish the rows. The remaining ones, such as long texts, need no hash: each is compared once with
    the first row of its code, in O(bytes). Columns with nulls, of other types, or with few texts are not compared: False.
    """
    if column.null_count:
        return False
    type_ = column.type
    is_fixed = pa.types.is_integer(type_) or pa.types.is_temporal(type_)
    if is_fixed:
        # O(n) comparisons with the first row of each code, where numbering the column would need a hash table.
        values = column.to_numpy(zero_copy_only=False)
        first_row = _first_of_code(codes)[codes]
        is_equal = values == values[first_row]
        return bool(is_equal.all())
    is_text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    if is_text and CompiledLoop.pays(len(codes)):
        return _equal_texts_by(column, codes)
    return False


def _first_of_code(codes: Codes) -> Codes:
    """Return the first row of each code."""
    rows = np.arange(len(codes))
    first = np.empty(count_codes(codes), np.int64)
    # Written backwards, so that the first row of each code is written last and stays.
    first[codes[::-1]] = rows[::-1]
    return first


def _equal_texts_by(column: pa.Array, codes: Codes) -> bool:
    """Return whether texts of one code are equal, comparing their bytes in Arrow's own buffers."""
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)
    # A slice of a column shares its buffers: its own offsets begin at its first row.
    own_offsets = offsets[column.offset :]
    raw = np.frombuffer(data_buffer or b"", np.uint8)
    loop = CompiledLoop(_equal_texts).code
    is_equal = loop(
        own_offsets,
        raw,
        _words_from_each_byte(raw),
        _first_of_code(codes),
        codes,
    )
    return bool(is_equal)


_WORD = np.dtype([("word", np.uint64)])
"""Eight bytes, which may begin at any byte."""


def _words_from_each_byte(raw: NDArray[np.uint8]) -> tuple[NDArray[np.void], ...]:
    """Return bytes as eight arrays of words of eight bytes, without a copy: the k-th has those that start at byte k, k + 8, ...

    numpy reads words only at multiples of 8 from the start of an array, so each start has its array.
    """
    words = []
    for start in range(8):
        n_left = len(raw) - start
        n_words = n_left // 8
        end = start + n_words * 8
        words_from_start = np.frombuffer(raw[start:end], _WORD)
        words.append(words_from_start)
    return tuple(words)


def _equal_texts(
    ends: Any,
    raw: Any,
    words: Any,
    first: Any,
    codes: Any,
) -> bool:
    """Compare each text with the first of its code, eight bytes at a time.

    Args:
        ends: (n + 1,) the offset in `raw` at which each text begins, and the end of the last.
        raw: The bytes of all texts.
        words: (8,) `words[k]` are the words of eight bytes that start at byte k, k + 8, ...
        first: (codes,) the first row of each code.
        codes: (n,) the rows' codes.
    """
    for row in range(len(codes)):
        other = first[codes[row]]
        if row == other:
            continue
        start = ends[row]
        other_start = ends[other]
        length = ends[row + 1] - start
        if ends[other + 1] - other_start != length:
            return False
        # A text may begin at any byte: it is read from the array of words with the same alignment.
        left = words[start % 8]
        right = words[other_start % 8]
        left_word = start // 8
        right_word = other_start // 8
        n_words = length // 8
        for i in range(n_words):
            if left[left_word + i]["word"] != right[right_word + i]["word"]:
                return False
        for i in range(n_words * 8, length):
            if raw[start + i] != raw[other_start + i]:
                return False
    return True


def _column_codes(column: pa.Array) -> Codes:
    """Number the values of a column: equal values get the same number, and null is a value."""
    type_ = column.type
    if pa.types.is_integer(type_) and not column.null_count:
        values = column.to_numpy()
        return _dense(values.astype(np.int64))
    if pa.types.is_nested(type_):
        column = _equality_texts(column)
    elif pa.types.is_floating(type_):
        column = _float_bits(column)
    # The dictionary gives each distinct value a code, null included.
    encoded = column.dictionary_encode(null_encoding="encode")
    return _indices(encoded)


def _equality_texts(column: pa.Array) -> pa.Array:
    """Write nested values as texts that are equal exactly if the values are."""
    values = column.to_pylist(maps_as_pydicts="strict")
    texts: list[str | None] = []
    for value in values:
        if value is None:
            texts.append(None)
        else:
            key = equality_key([value])
            texts.append(repr(key))
    return pa.array(texts, pa.string())


def _float_bits(column: pa.Array) -> pa.Array:
    """Return the bits of floats, all NaN alike, and -0.0 as 0.0."""
    values = column.to_numpy(zero_copy_only=False)
    with_one_nan = np.nan_to_num(
        values,
        nan=np.nan,
        posinf=np.inf,
        neginf=-np.inf,
    )
    doubles = with_one_nan.astype(np.float64) + 0.0
    bits = doubles.view(np.int64)
    is_valid = column.is_valid()
    return pc.if_else(is_valid, pa.array(bits), None)


def _dense(values: Codes) -> Codes:
    """Number integers: by rank if they lie close together, else in order of appearance; O(n) either way."""
    if not len(values):
        return values
    least = int(values.min())
    greatest = int(values.max())
    span = greatest - least
    # Beyond that span the array of places would cost more than hashing.
    if span > 4 * len(values):
        encoded = pa.array(values).dictionary_encode()
        return _indices(encoded)
    # A counting sort: one place for each possible value, and ranks by a running sum over the places taken.
    places = values - least
    is_taken = np.zeros(span + 1, bool)
    is_taken[places] = True
    rank_of_place = np.cumsum(is_taken) - 1
    return np.asarray(rank_of_place[places])


def _indices(encoded: pa.DictionaryArray) -> Codes:
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return np.asarray(indices, dtype=np.int64)
