"""Raw records, as sources give them and decoders take them."""

from __future__ import annotations

import pyarrow as pa

RECORDS = pa.schema(
    [
        ("file", pa.string()),
        ("part", pa.int64()),
        ("line", pa.int64()),
        ("value", pa.binary()),
    ]
)
"""Records of a file source: file name, its number within the step, line from 0, the line's bytes."""
MAX_RECORD_BYTES = 16 * 2**20
"""Bytes above which a record is bad, where the spec does not say; 16 times what Kafka takes."""
