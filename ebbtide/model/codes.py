"""Dense integer codes for keys and rows, so that kernels compare integers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.identity import identity

Codes = NDArray[np.int64]


def row_codes(table: pa.Table, columns: Sequence[str]) -> Codes:
    """Number the rows so that two rows have one number exactly if `columns` are equal in them.

    When values are equal is told in `ebbtide.model.identity`. No hash is compared: codes never collide.

    Args:
        table: (n,) rows.
        columns: At least one column.

    Returns:
        (n,) codes from 0, dense.

    Example:
        >>> row_codes(pa.table({"a": [1, 2, 1], "b": [None, "x", None]}), ["a", "b"]).tolist()
        [0, 1, 0]
    """
    codes = _column_codes(table[columns[0]])
    for name in columns[1:]:
        other = _column_codes(table[name])
        codes = _dense(codes * (int(other.max(initial=0)) + 1) + other)
    return codes


def _column_codes(column: pa.ChunkedArray) -> Codes:
    if pa.types.is_nested(column.type):
        values = column.to_pylist(maps_as_pydicts="strict")
        column = pa.chunked_array([pa.array([None if v is None else repr(identity([v])) for v in values], pa.string())])
    elif pa.types.is_floating(column.type):
        bits = (
            np.nan_to_num(column.to_numpy(zero_copy_only=False), nan=np.nan, posinf=np.inf, neginf=-np.inf)
            .astype(np.float64)
            .view(np.int64)
        )
        column = pc.if_else(pc.is_valid(column), pa.chunked_array([bits]), pa.scalar(None, pa.int64()))
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return _dense_indices(encoded)


def _dense_indices(encoded: pa.DictionaryArray | pa.ChunkedArray) -> Codes:
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _dense(values: Codes) -> Codes:
    return _dense_indices(pa.array(values).dictionary_encode())
