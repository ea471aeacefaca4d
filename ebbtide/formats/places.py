"""Places of records, other keys in their headers, and whether they are text: what the quick paths need beside the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.format import NEW_KEY, OLD_KEY
from ebbtide.formats.records import are_placed
from ebbtide.model.changelog import ORDER, ORIGIN

Indices = Sequence[int] | np.ndarray[Any, Any]


def orders_of(batch: pa.RecordBatch, rows: Indices, step: int) -> pa.StructArray:
    """Return `_order` of some records of a batch, given their indices in it."""
    indices = pa.array(rows, pa.int64())
    steps = np.full(len(rows), step)
    parts = batch.column("part")
    lines = batch.column("line")
    return pa.StructArray.from_arrays(
        [
            pa.array(steps),
            parts.take(indices),
            lines.take(indices),
        ],
        fields=list(ORDER),
    )


def origins_of(batch: pa.RecordBatch, rows: Indices) -> pa.StructArray:
    """Return `_origin` of some records of a batch that stand in files or in Kafka, given their indices in it."""
    indices = pa.array(rows, pa.int64())
    sources = batch.column("file").take(indices)
    if are_placed(batch):
        partitions = batch.column("partition").take(indices)
        positions = batch.column("offset").take(indices)
    else:
        zero = pa.scalar(0, pa.int64())
        partitions = pa.repeat(zero, len(rows))
        positions = batch.column("line").take(indices)
    return pa.StructArray.from_arrays(
        [sources, partitions, positions],
        fields=list(ORIGIN),
    )


def are_utf8(values: pa.BinaryArray) -> bool:
    """Return whether all values are UTF-8: parsers do not check the texts that they skip."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def moved(batch: pa.RecordBatch) -> frozenset[int]:
    """Return the indices of records with a header that names the row's old or new key: records in envelopes, or placed ones."""
    if are_placed(batch):
        has_old_key = batch.column("old_key").is_valid()
        has_new_key = batch.column("new_key").is_valid()
        is_moved = pc.or_(has_old_key, has_new_key)
        mask = is_moved.to_numpy(zero_copy_only=False)
        indices = np.flatnonzero(mask)
        return frozenset(indices.tolist())
    # One search of all bytes: Arrow's, value by value, takes as long as parsing them.
    values = batch.column("value")
    _, offset_buffer, data = values.buffers()
    raw = data.to_pybytes() if data else b""
    places = []
    for header in (OLD_KEY, NEW_KEY):
        name = header.encode()
        place = raw.find(name)
        while place >= 0:
            places.append(place)
            place = raw.find(name, place + len(name))
    all_offsets = np.frombuffer(offset_buffer, np.int32)
    end = values.offset + len(values)
    starts = all_offsets[values.offset : end]
    # Each is in the last value that begins before it.
    rows = np.searchsorted(starts, places, side="right") - 1
    is_own = rows >= 0
    own = rows[is_own]
    return frozenset(own.tolist())
