"""Records as the workers of a step read them, and what decoding stages of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from ebbtide.extend import PLACED_RECORDS
from ebbtide.formats import RECORDS, Decoding
from ebbtide.formats._scan_decoder import ScanDecoder


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


def refuse_unlike_exact(decoding: Decoding, records: pa.RecordBatch, wall_ms: int | None = None) -> None:
    """Refuse staged rows, by whichever paths, that are not those of the exact path alone."""
    mixed = _in_order(staged(decoding, records, step=7, wall_ms=wall_ms))
    exact = _in_order(decoding._decode_exactly(records, 7, wall_ms))
    assert mixed == exact, [row for row in mixed + exact if mixed.count(row) != exact.count(row)]


def _in_order(rows: pa.Table) -> list[str]:
    listed = rows.to_pylist(maps_as_pydicts="strict")
    return list(map(repr, sorted(listed, key=lambda row: tuple(row["_order"].values()))))


def scanned(decoding: Decoding, records: pa.RecordBatch) -> tuple[int, int]:
    """Return how many changes the scan takes, and how many records it leaves."""
    n_taken, left = 0, records
    for each in ScanDecoder.of(decoding, decoding.ignored_columns):
        if left.num_rows:
            rows, left = each.decode(left, 7, None)
            n_taken += len(rows)
    return n_taken, left.num_rows


def placed_batch_of(lines: Sequence[str | bytes]) -> pa.RecordBatch:
    """Make the records that a topic's reader gives, of lines that hold the same records."""
    rows = []
    for number, line in enumerate(lines):
        given = json.loads(line)
        headers = dict(given.get("headers", []))
        texts = {name: given[name] for name in ("key", "value")}
        texts |= {"old_key": headers.get("__debezium.oldkey"), "new_key": headers.get("__debezium.newkey")}
        place = {
            "file": given["topic"],
            "part": 0,
            "line": number,
            "partition": given["partition"],
            "offset": given["offset"],
        }
        rows.append(place | {name: None if text is None else text.encode() for name, text in texts.items()})
    return pa.RecordBatch.from_pylist(rows, PLACED_RECORDS)
