"""Sums up the staged rows of a batch: what must be known of them before the decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.settings import SKIPPED, DecodingSettings
from ebbtide.model.changelog import TRUNCATE, RowKind
from ebbtide.model.entries import order_struct
from ebbtide.model.offsets import origin_offsets
from ebbtide.model.step import BatchSummary

KINDS = [str(kind) for kind in RowKind]


def summarize(rows: pa.Table, decoding: DecodingSettings, *, tracks_offsets: bool) -> BatchSummary:
    """Sum up staged rows.

    Args:
        rows: With the columns of `decoding.schema`.
        decoding: What staged them.
        tracks_offsets: Tell the records' offsets, by which redelivered ones are known.
    """
    good = rows.filter(pc.is_in(rows["_kind"], pa.array(KINDS)))
    skipped = pc.sum(pc.equal(rows["_kind"], SKIPPED)).as_py() or 0
    truncates = rows.filter(pc.equal(rows["_kind"], TRUNCATE).fill_null(False))
    floors = _floors(truncates, decoding)
    return BatchSummary(
        records=len(rows) - skipped,
        bad=len(rows) - rows["_reason"].null_count,
        changes=len(good),
        key_changes=_incomplete_key_changes(good) if decoding.sequence else 0,
        max_event_ms=pc.max(good["_event_ms"]).as_py(),
        truncate=max(floors, default=None),
        bounds=_bounds(good, decoding.key[0]),
        ignored=_ignored(rows),
        offsets=origin_offsets(rows.filter(pc.is_valid(rows["_kind"]))) if tracks_offsets else {},
        truncates=_by_offset(truncates, floors) if tracks_offsets else {},
    )


def to_json(summary: BatchSummary) -> str:
    """Write a summary as text, for the way from a worker to the driver."""
    truncates = [[name, offset, list(order)] for (name, offset), order in summary.truncates.items()]
    return json.dumps(vars(summary) | {"ignored": sorted(summary.ignored), "truncates": truncates})


def from_json(text: str) -> BatchSummary:
    """Read what `to_json` wrote."""
    fields = json.loads(text)
    return BatchSummary(
        **fields
        | {
            "truncate": fields["truncate"] and tuple(fields["truncate"]),
            "bounds": fields["bounds"] and tuple(fields["bounds"]),
            "ignored": frozenset(fields["ignored"]),
            "offsets": {name: [(a, b) for a, b in each] for name, each in fields["offsets"].items()},
            "truncates": {(name, offset): tuple(order) for name, offset, order in fields["truncates"]},
        }
    )


def _floors(truncates: pa.Table, decoding: DecodingSettings) -> list[tuple[int, ...]]:
    if decoding.sequence:
        return [tuple(sequence.values()) for sequence in truncates["_sequence"].to_pylist()]
    return [tuple(order) for order in order_struct(truncates).tolist()]


def _by_offset(truncates: pa.Table, floors: list[tuple[int, ...]]) -> Mapping[tuple[str, int], tuple[int, ...]]:
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for row, floor in enumerate(floors):
        [(name, [(offset, _)])] = origin_offsets(truncates[row : row + 1]).items()
        found[name, offset] = min(floor, found.get((name, offset), floor))
    return found


def _bounds(good: pa.Table, column: str) -> tuple[Any, Any] | None:
    values = good[column]
    is_bounded = pa.types.is_integer(values.type) or pa.types.is_string(values.type)
    if not len(good) or not is_bounded:
        return None
    ends = pc.min_max(values).as_py()
    return ends["min"], ends["max"]


def _ignored(rows: pa.Table) -> frozenset[str]:
    lists = [names for names in rows["_ignored"].unique().to_pylist() if names]
    return frozenset(name for names in lists for name in names.split(","))


def _incomplete_key_changes(good: pa.Table) -> int:
    """Count the changes of a key that left values out."""
    incomplete = pc.and_(good["_moved_from"].is_valid(), good["_unavailable"].is_valid())
    return int(pc.sum(incomplete).as_py() or 0)
