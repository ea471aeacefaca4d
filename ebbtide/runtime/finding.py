"""Finds records of a batch again, by their order: of those that turn out bad after they were decoded the bytes are wanted."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ebbtide.formats.decoding import Decoding
from ebbtide.formats.records import RECORDS
from ebbtide.sources.source import Records

Order = tuple[int, ...]
"""Step, part and position."""
Found = dict[Order, tuple[dict[str, Any], bytes]]
"""The order of a record to its origin and its bytes."""


@dataclass(frozen=True)
class Picking:
    """Picks records of a task; goes to the workers.

    Args:
        places: Part and line of each that is wanted.
    """

    places: frozenset[tuple[int, int]]

    def __call__(self, records: Iterable[pa.RecordBatch]) -> str | None:
        """Return them as JSON; None if the task has none."""
        picked = []
        for batch in records:
            places = zip(batch["part"].to_pylist(), batch["line"].to_pylist(), strict=True)
            wanted = [number for number, place in enumerate(places) if place in self.places]
            for record in batch.take(pa.array(wanted, pa.int64())).to_pylist():
                value = base64.b64encode(record["value"]).decode()
                picked.append({**record, "value": value})
        return json.dumps(picked) if picked else None


@dataclass(frozen=True)
class RecordsOfBatch:
    """The records of a batch, to be found by their orders.

    Args:
        records: All of them; read again.
        decoding: Tells their origins.
        step: The step's number.
    """

    records: Records
    decoding: Decoding
    step: int

    def __call__(self, orders: Sequence[Order]) -> Found:
        """Return the records that are found."""
        places = frozenset((part, position) for step, part, position in orders if step == self.step)
        rows = []
        for text in self.records.run(Picking(places)):
            picked = json.loads(text)
            rows += [{**record, "value": base64.b64decode(record["value"])} for record in picked]
        return found_records(pa.Table.from_pylist(rows, RECORDS), self.decoding, self.step)


def found_records(records: pa.Table, decoding: Decoding, step: int) -> Found:
    """Return records by their orders, with their origins."""
    raw_of = {(row["part"], row["line"]): row["value"] for row in records.to_pylist()}
    found: Found = {}
    for batch in decoding.decode(records.combine_chunks().to_batches(), step=step, wall_ms=None):
        for row in pa.Table.from_batches([batch]).select(["_order", "_origin"]).to_pylist():
            order = tuple(row["_order"].values())
            found[order] = row["_origin"], raw_of[order[1:]]
    return found


def nothing_found(orders: Sequence[Order]) -> Found:
    """Find nothing: there are no records."""
    return {}
