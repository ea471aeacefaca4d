"""Staging: a batch is decoded once, by the workers, into Parquet files of its own.

What must be known before the decision (bad records, TRUNCATE, the range of keys) is summed up on the way, and returned.
A task that Spark ran twice leaves files that no returned sum names; nobody reads those.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from ebbtide.formats.decoding import Decoding
from ebbtide.formats.settings import SKIPPED
from ebbtide.model.changelog import TRUNCATE, RowKind
from ebbtide.model.entries import order_struct
from ebbtide.model.positions import Intervals, places
from ebbtide.paths import ParquetFile, join

Batches = Iterator[pa.RecordBatch]
KINDS = [str(kind) for kind in RowKind]


@dataclass
class Staged:
    """What a step's records are, in sum.

    Args:
        files: Where the rows are.
        records: All records of this pipeline.
        bad: Bad ones.
        changes: Rows with a row kind.
        truncate: The newest TRUNCATE: its sequence, in arrival mode its order.
        max_event_ms: Greatest event time.
        bounds: Least and greatest value of the first key column, where it is an integer or a string.
        key_changes: Changes whose values must be looked for under another key.
        ignored: Columns of the records that the schema has not.
        places: Where records stand in their sources, those that change nothing too, if asked for.
        truncates: The TRUNCATEs' orders by place, (name, position), if asked for; of one delivered twice the first.
    """

    files: list[str] = field(default_factory=list)
    records: int = 0
    bad: int = 0
    changes: int = 0
    truncate: tuple[int, ...] | None = None
    max_event_ms: int | None = None
    bounds: tuple[Any, Any] | None = None
    key_changes: int = 0
    ignored: set[str] = field(default_factory=set)
    places: dict[str, Intervals] = field(default_factory=dict)
    truncates: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)

    def add(self, part: dict[str, Any]) -> None:
        """Add the sum of one decoded batch."""
        self.files += [file for file in part["files"] if file not in self.files]
        for name in ("records", "bad", "changes", "key_changes"):
            setattr(self, name, getattr(self, name) + part[name])
        self.truncate = max([tuple(t) for t in (self.truncate, part["truncate"]) if t], default=None)
        self.max_event_ms = max(
            [ms for ms in (self.max_event_ms, part["max_event_ms"]) if ms is not None], default=None
        )
        ends = [end for bounds in (self.bounds, part["bounds"]) if bounds for end in bounds]
        self.bounds = (min(ends), max(ends)) if ends else None
        self.ignored |= set(part["ignored"])
        for name, intervals in part["places"].items():
            self.places.setdefault(name, []).extend((a, b) for a, b in intervals)
        for name, position, order in part["truncates"]:
            known = self.truncates.get((name, position), tuple(order))
            self.truncates[name, position] = min(known, tuple(order))


def stage(
    frame: DataFrame,
    read: Callable[[Iterable[pa.RecordBatch]], Batches],
    decoding: Decoding,
    folder: str,
    *,
    step: int,
    wall_ms: int,
    with_places: bool,
) -> Staged:
    """Decode a micro-batch into files under `folder`.

    Args:
        frame: Spark's micro-batch.
        read: Turns its rows into raw records.
        decoding: Turns those into staged rows.
        folder: Where the files go.
        step: The step's number.
        wall_ms: Wall time of the step, epoch ms.
        with_places: Tell where the records stand in their sources.
    """

    def work(batches: Batches) -> Batches:
        location = join(folder, f"{uuid.uuid4().hex}.parquet")
        with ParquetFile(location, decoding.schema) as file:
            for batch in decoding.decode(read(batches), step=step, wall_ms=wall_ms):
                file.write(batch)
                part = _sum(pa.Table.from_batches([batch]), decoding, with_places=with_places) | {"files": [location]}
                yield pa.record_batch({"part": [json.dumps(part, default=str)]})

    staged = Staged()
    for row in frame.mapInArrow(work, "part STRING").collect():
        staged.add(json.loads(row["part"]))
    return staged


def _incomplete_key_changes(good: pa.Table) -> int:
    """Count the changes of a key that left values out."""
    incomplete = pc.and_(good["_moved_from"].is_valid(), good["_unavailable"].is_valid())
    return int(pc.sum(incomplete).as_py() or 0)


def _sum(rows: pa.Table, decoding: Decoding, *, with_places: bool) -> dict[str, Any]:
    good = rows.filter(pc.is_in(rows["_kind"], pa.array(KINDS)))
    truncates = rows.filter(pc.equal(rows["_kind"], TRUNCATE).fill_null(False))
    truncated = (
        [tuple(at.values()) for at in truncates["_sequence"].to_pylist()]
        if decoding.sequence
        else order_struct(truncates).tolist()
    )
    first = good[decoding.key[0]]
    bounded = len(good) and (pa.types.is_integer(first.type) or pa.types.is_string(first.type))
    ends = pc.min_max(first).as_py() if bounded else None
    return {
        "records": len(rows) - (pc.sum(pc.equal(rows["_kind"], SKIPPED)).as_py() or 0),
        "bad": len(rows) - rows["_reason"].null_count,
        "changes": len(good),
        "truncate": max(map(tuple, truncated), default=None),
        "max_event_ms": pc.max(good["_event_ms"]).as_py(),
        "bounds": (ends["min"], ends["max"]) if ends else None,
        "key_changes": _incomplete_key_changes(good) if decoding.sequence else 0,
        "places": places(rows.filter(pc.is_valid(rows["_kind"]))) if with_places else {},
        "truncates": [
            (name, a, order)
            for i, order in enumerate(truncated if with_places else [])
            for name, [(a, _)] in places(truncates[i : i + 1]).items()
        ],
        "ignored": sorted(
            {name for names in rows["_ignored"].unique().to_pylist() if names for name in names.split(",")}
        ),
    }
