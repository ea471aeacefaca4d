"""Encodings of the columns of a Parquet file: values that repeat by a dictionary, the rest by their differences or lengths.

A dictionary of values that hardly repeat is written for nothing: Arrow writes them plainly once it is full. Times, dates and integers take the
bits of their differences instead, texts and bytes get their lengths first. Zstandard then takes less than half of what Snappy leaves, in the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CODEC = {"compression": "zstd", "compression_level": 1}
"""Level 3 takes a quarter more time, and writes more bytes of columns encoded like this."""
FEWEST_ROWS = 4_096
"""Fewer rows all get a dictionary: looking at them takes as long as it saves."""
SAMPLE = 1_024
"""Values that are looked at of a column, spread over it."""
MOST_DIFFERENT = 0.95
"""Share of different values in the sample from which on the column has no dictionary: it would have some 10,000 values."""
DIFFERENCES = "DELTA_BINARY_PACKED"
LENGTHS = "DELTA_LENGTH_BYTE_ARRAY"


def encoding_options(rows: pa.Table) -> dict[str, Any]:
    """Return the options of Arrow's writer that say how some rows are encoded and compressed."""
    if len(rows) < FEWEST_ROWS:
        return {**CODEC, "use_dictionary": True}
    leaves = [leaf for name in rows.column_names for leaf in _leaves(name, rows[name].type, rows[name])]
    n_of_path = Counter(path for path, _ in leaves)
    encodings = {}
    for path, values in leaves:
        # The option names a path, and two columns have one if a name has a dot in it.
        if values is None or n_of_path[path] > 1:
            continue
        encoding = _encoding(values.type)
        if encoding is not None and _differs(values):
            encodings[path] = encoding
    with_dictionary = [path for path in n_of_path if path not in encodings]
    return {**CODEC, "use_dictionary": with_dictionary, "column_encoding": encodings}


def _leaves(
    path: str, type_: pa.DataType, values: pa.ChunkedArray | None
) -> Iterator[tuple[str, pa.ChunkedArray | None]]:
    """Yield the paths of a column's leaves in the file, each with its values; None: they lie in lists."""
    if pa.types.is_struct(type_):
        for number, field in enumerate(type_.fields):
            inner = None if values is None else pc.struct_field(values, [number])
            yield from _leaves(f"{path}.{field.name}", field.type, inner)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type, None)
        yield from _leaves(f"{path}.key_value.value", type_.item_type, None)
    elif pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type, None)
    else:
        yield path, values


def _encoding(type_: pa.DataType) -> str | None:
    """Return the encoding of values of a type that hardly repeat; None: as Arrow does."""
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
        return DIFFERENCES
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return LENGTHS
    return None


def _differs(values: pa.ChunkedArray) -> bool:
    """Return whether hardly any value of a column comes twice."""
    places = np.linspace(0, len(values) - 1, SAMPLE).astype(np.int64)
    sample = values.take(pa.array(places)).drop_null()
    n_different = len(sample.unique())
    return len(sample) > 0 and n_different >= MOST_DIFFERENT * len(sample)
