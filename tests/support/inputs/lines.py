"""Records as the workers of a step read them, and what decoding stages of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from ebbtide.formats import RECORDS, Decoding


def batch_of(lines: Sequence[str | bytes], *, part: int = 0, first: int = 0) -> pa.RecordBatch:
    """Make the records of a file's lines.

    Args:
        lines: What stands in them.
        part: The file's number in its step.
        first: The first line's number in its file.
    """
    n = len(lines)
    values = [line.encode() if isinstance(line, str) else line for line in lines]
    return pa.record_batch([["f"] * n, [part] * n, range(first, first + n), values], schema=RECORDS)


def staged(
    decoding: Decoding, records: pa.RecordBatch | Sequence[str | bytes], *, step: int = 1, wall_ms: int | None = None
) -> pa.Table:
    """Return the staged rows, as they come: good ones, bad ones, those that change nothing."""
    batch = records if isinstance(records, pa.RecordBatch) else batch_of(records)
    return pa.Table.from_batches(decoding.decode([batch], step=step, wall_ms=wall_ms), decoding.schema)


def both_ways(decoding: Decoding, records: pa.RecordBatch, wall_ms: int | None = None) -> tuple[list[str], list[str]]:
    """Return the staged rows of all paths, and of the exact one alone, in one order."""
    mixed = staged(decoding, records, step=7, wall_ms=wall_ms)
    return _in_order(mixed), _in_order(decoding._decode_exactly(records, 7, wall_ms))


def _in_order(rows: pa.Table | Iterable[pa.RecordBatch]) -> list[str]:
    return sorted(map(repr, rows.to_pylist(maps_as_pydicts="strict")))
