"""Facts about records that the scan needs in addition to values: places, other keys in headers, valid text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER, ORIGIN
from ebbtide.columns import Mask, with_column
from ebbtide.formats._format import NEW_KEY, OLD_KEY
from ebbtide.formats._records import are_placed

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


def placed(staged: pa.Table, orders: pa.ChunkedArray) -> pa.Table:
    """Return staged rows with the records' places as sequences, also for key changes.

    Args:
        staged: Staged rows.
        orders: (n,) the place of each row's record, like `_order`.
    """
    sequence_type = staged.schema.field("_sequence").type
    components = orders.combine_chunks().flatten()
    sequences = pa.StructArray.from_arrays(components, fields=list(sequence_type))
    return with_sequences(staged, sequences)


def with_sequences(staged: pa.Table, sequences: pa.StructArray) -> pa.Table:
    """Return staged rows with other sequences, also for key changes.

    Args:
        staged: Staged rows.
        sequences: (n,) the sequences.
    """
    moved_type = staged.schema.field("_moved_from").type
    moved = staged["_moved_from"].combine_chunks()
    is_moved = moved.is_valid()
    # A key change names one key: its list has one item, with the sequence of the change.
    keys = pc.struct_field(pc.list_flatten(moved), "key")
    key_changes = pa.StructArray.from_arrays([sequences.filter(is_moved), keys], fields=list(moved_type.value_type))
    lengths = np.asarray(is_moved.to_numpy(zero_copy_only=False), dtype=np.int32)
    ends = np.cumsum(lengths, dtype=np.int32)
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32(), mask=np.append(lengths == 0, False))
    lists = pa.ListArray.from_arrays(offsets, key_changes, type=moved_type)
    rows = with_column(staged, "_sequence", sequences)
    return with_column(rows, "_moved_from", lists)


def origins_of(batch: pa.RecordBatch, rows: Indices) -> pa.StructArray:
    """Return `_origin` of some records of a batch, from files or Kafka, given their indices."""
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


def moved(batch: pa.RecordBatch) -> Mask:
    """Mark the placed records with a header that names the row's old or new key."""
    is_moved = pc.or_(batch.column("old_key").is_valid(), batch.column("new_key").is_valid())
    mask: Mask = is_moved.to_numpy(zero_copy_only=False)
    return mask


def naming_other_keys(headers: pa.StringArray) -> Mask:
    """Mark the headers, as JSON, that may name the row's old or new key."""
    # One search through all bytes: Arrow's search value by value would take as long as parsing.
    _, offset_buffer, data = headers.buffers()
    raw = data.to_pybytes() if data else b""
    places = []
    names = [OLD_KEY.encode(), NEW_KEY.encode()]
    if b"\\" in raw:  # sought alone, it is found four times sooner
        names.append(rb"\u")  # a name may be written by escapes
    for name in names:
        place = raw.find(name)
        while place >= 0:
            places.append(place)
            place = raw.find(name, place + len(name))
    ends = np.frombuffer(offset_buffer, np.int32)[1 : len(headers) + 1]
    mask = np.zeros(len(headers), bool)
    mask[np.searchsorted(ends, places, side="right")] = True
    return mask
