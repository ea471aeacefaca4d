"""Dense integer codes for keys and rows, so that kernels compare integers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model import compiled
from ebbtide.model.equality import equality_key

Codes = NDArray[np.int64]


def row_codes(table: pa.Table, columns: Sequence[str]) -> Codes:
    """Number the rows so that two rows have one number exactly if `columns` are equal in them.

    When values are equal is told in `ebbtide.model.equality`. No hash is compared: codes never collide.

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
        column = table[name].combine_chunks()
        if codes is None:
            codes = _column_codes(column)
        elif not _is_determined_by(column, codes):
            other = _column_codes(column)
            codes = _dense(codes * (int(other.max(initial=0)) + 1) + other)
    return np.empty(0, np.int64) if codes is None else codes


def _is_determined_by(column: pa.Array, codes: Codes) -> bool:
    """Tell whether rows with equal codes are equal in a column too, where that is quicker to see than to number the column.

    Often a few columns tell one row from another; the others, long texts among them, are then compared once, not hashed.
    """
    text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    fixed = pa.types.is_integer(column.type) or pa.types.is_temporal(column.type)
    if column.null_count or not (fixed or (text and compiled.worth_compiling(len(codes)))):
        return False
    places = np.arange(len(codes))
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = places[::-1]
    if fixed:
        values = column.to_numpy(zero_copy_only=False)
        return bool((values == values[first[codes]]).all())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    raw = np.frombuffer(data or b"", np.uint8)
    words = [np.frombuffer(raw[at : at + (len(raw) - at) // 8 * 8], np.uint64) for at in range(8)]
    return bool(compiled.compiled(_equal_texts)(ends, raw, *words, first, codes))


def _equal_texts(
    ends: Any, raw: Any, w0: Any, w1: Any, w2: Any, w3: Any, w4: Any, w5: Any, w6: Any, w7: Any, first: Any, codes: Any
) -> bool:
    """Compare each text with the first of its code, eight bytes at a time: `w3` are the words that start at byte 3, 11, ..."""
    words = (w0, w1, w2, w3, w4, w5, w6, w7)
    for i in range(len(codes)):
        j = first[codes[i]]
        if i == j:
            continue
        a, b, length = ends[i], ends[j], ends[i + 1] - ends[i]
        if ends[j + 1] - b != length:
            return False
        left, right, x, y = words[a % 8], words[b % 8], a // 8, b // 8
        for w in range(length // 8):
            if left[x + w] != right[y + w]:
                return False
        for at in range(length // 8 * 8, length):
            if raw[a + at] != raw[b + at]:
                return False
    return True


def _column_codes(column: pa.Array) -> Codes:
    if pa.types.is_nested(column.type):
        values = column.to_pylist(maps_as_pydicts="strict")
        column = pa.array([None if v is None else repr(equality_key([v])) for v in values], pa.string())
    elif pa.types.is_floating(column.type):
        bits = (
            np.nan_to_num(column.to_numpy(zero_copy_only=False), nan=np.nan, posinf=np.inf, neginf=-np.inf)
            .astype(np.float64)
            .view(np.int64)
        )
        column = pc.if_else(pc.is_valid(column), pa.array(bits), pa.scalar(None, pa.int64()))
    elif pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type) and not column.null_count:
        return _dense(column.to_numpy().astype(np.int64))
    return _indices(column.dictionary_encode(null_encoding="encode"))


def _dense(values: Codes) -> Codes:
    """Number integers: by their rank where they lie close together, else as they come."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if most - least > 4 * len(values):
        return _indices(pa.array(values).dictionary_encode())
    there = np.zeros(most - least + 1, bool)
    there[values - least] = True
    return np.asarray((np.cumsum(there) - 1)[values - least])


def _indices(encoded: pa.DictionaryArray) -> Codes:
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
