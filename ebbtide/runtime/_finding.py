"""Finds records of a batch again by their order: the bytes of records that turn out bad after decoding are needed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ebbtide.formats import Decoding, stored_form
from ebbtide.sources import Records

Order = tuple[int, ...]
"""Step, part and position."""
Found = dict[Order, tuple[dict[str, Any], bytes]]
"""The order of a record to its origin and its bytes."""


@dataclass(frozen=True)
class Picking:
    """Picks records of a task; sent to the workers.

    Args:
        places: Part and line of each that is wanted.
    """

    places: frozenset[tuple[int, int]]

    def __call__(self, records: Iterable[pa.RecordBatch]) -> str | None:
        """Return them as an Arrow stream, in base64; None if the task has none."""
        picked = []
        for batch in records:
            numbered = enumerate(_places(batch))
            wanted = [number for number, place in numbered if place in self.places]
            if wanted:
                picked.append(batch.take(wanted))
        if not picked:
            return None
        return _as_text(picked)


@dataclass(frozen=True)
class RecordsOfBatch:
    """The records of a batch, to be found by their orders.

    Args:
        records: All of them; read again.
        decoding: Knows their origins.
        step: The step's number.
    """

    records: Records
    decoding: Decoding
    step: int

    def __call__(self, orders: Sequence[Order]) -> Found:
        """Return the records that are found."""
        places = {(part, position) for step, part, position in orders if step == self.step}
        picking = Picking(frozenset(places))
        found: Found = {}
        for text in self.records.run(picking):
            records = _from_text(text)
            found |= found_records(records, self.decoding, self.step)
        return found


def found_records(records: Sequence[pa.RecordBatch], decoding: Decoding, step: int) -> Found:
    """Return records by their orders, with their origins and the bytes that the quarantine keeps."""
    raw_of: dict[tuple[int, int], bytes] = {}
    for batch in records:
        raw = stored_form(batch).to_pylist()
        pairs = zip(_places(batch), raw, strict=True)
        raw_of.update(pairs)
    found: Found = {}
    # Decoded once more: only the decoder knows the origin of a record, and whether it makes several changes.
    for batch in decoding.decode(records, step=step, wall_ms=None):
        decoded = pa.Table.from_batches([batch])
        places = decoded.select(["_order", "_origin"])
        for row in places.to_pylist():
            order = tuple(row["_order"].values())
            _, part, line = order
            raw_record = raw_of[part, line]
            found[order] = row["_origin"], raw_record
    return found


def _places(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    """Return part and line of each record."""
    parts = batch["part"].to_pylist()
    lines = batch["line"].to_pylist()
    return zip(parts, lines, strict=True)


def _as_text(batches: Sequence[pa.RecordBatch]) -> str:
    stream = pa.BufferOutputStream()
    all_known = batches[-1].schema  # each batch also holds the Avro schemas of earlier ones
    with pa.ipc.new_stream(stream, all_known) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content = stream.getvalue()
    return base64.b64encode(content).decode()


def _from_text(text: str) -> list[pa.RecordBatch]:
    content = base64.b64decode(text)
    with pa.ipc.open_stream(content) as reader:
        return list(reader)


def nothing_found(orders: Sequence[Order]) -> Found:
    """Find nothing: there are no records."""
    return {}
