"""Sums up the staged rows of a batch, for the decision."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import TRUNCATE, Intervals, OffsetRanges, RowKind, order_struct, rank_sequences
from ebbtide.columns import only
from ebbtide.formats._settings import BETWEEN_NAMES, EPOCH_BITS, DecodingSettings, StagedKind
from ebbtide.model import BatchCounts, BatchSummary

SUMMED_COLUMNS = (
    "_kind",
    "_reason",
    "_ignored",
    "_types",
    "_event_ms",
    "_order",
    "_origin",
    "_sequence",
    "_moved_from",
    "_unavailable",
    "_snapshot",
    "_source_log",
)
"""Columns that are summed up, if present."""
_NO_SERVER = ("", "0")
"""Servers of snapshot rows, and of records without a server."""
FIRST_OF_SNAPSHOT = ("first", "first_in_data_collection")
LAST_OF_SNAPSHOT = ("last", "last_in_data_collection")
"""Debezium's `source.snapshot` for the first and last row of a table, or of all tables."""
Floor = tuple[int, ...]
"""The sequence or order of a TRUNCATE: everything below it is deleted."""
PartitionOffset = tuple[str, int]
"""A `source/partition` and an offset in it."""


def summarize(
    rows: pa.Table,
    decoding: DecodingSettings,
    *,
    tracks_offsets: bool,
) -> BatchSummary:
    """Sum up staged rows.

    Args:
        rows: Staged rows, with the columns of `decoding.schema`.
        decoding: Settings of the decoding.
        tracks_offsets: Sum up the records' offsets, to recognize redelivered records.
    """
    kinds = rows["_kind"]
    changing = pa.array(list(RowKind), pa.string())
    is_change = pc.is_in(kinds, changing)
    is_truncate = pc.equal(kinds, TRUNCATE)
    uncounted = pa.array([StagedKind.SKIPPED, StagedKind.NOT_ROW, StagedKind.IN_DOUBT])
    is_uncounted = pc.is_in(kinds, uncounted)
    is_counted = pc.invert(is_uncounted)
    has_offset = pc.not_equal(kinds, StagedKind.IN_DOUBT).fill_null(False)
    # A filter copies rows unless all are kept. The large user columns are not needed, so they are left out.
    names = [name for name in SUMMED_COLUMNS if name in rows.column_names]
    rows = rows.select(names)
    good = only(rows, is_change)
    truncates = rows.filter(is_truncate)
    floors = _floors(truncates, decoding)
    key_changes = 0
    if decoding.sequence:
        key_changes = _open_key_changes(good)
    offsets: dict[str, Intervals] = {}
    truncates_by_offset: dict[PartitionOffset, Floor] = {}
    if tracks_offsets:
        tracked = only(rows, has_offset)
        offsets = OffsetRanges.in_rows(tracked)
        truncates_by_offset = _by_offset(truncates, floors)
    counted_orders = only(rows.select(["_order"]), is_counted)
    reasons = rows["_reason"]
    max_event_ms = pc.max(good["_event_ms"])
    counts = BatchCounts(
        records=_records(counted_orders),
        other_tables=_count(pc.equal(kinds, StagedKind.SKIPPED)),
        not_rows=_count(pc.equal(kinds, StagedKind.NOT_ROW)),
        bad=len(rows) - reasons.null_count,
        changes=len(good),
        key_changes=key_changes,
    )
    return (
        BatchSummary(
            counts,
            max_event_ms=max_event_ms.as_py(),
            truncate=max(floors, default=None),
            ignored=_ignored(rows),
            types=_types(rows),
            offsets=offsets,
            truncates=truncates_by_offset,
        )
        .with_snapshots(_snapshots(good))
        .with_logs(_logs(good))
    )


def _records(rows: pa.Table) -> int:
    """Count records. The changes of one record, such as both rows of an update, are adjacent and have one order."""
    if not len(rows):
        return 0
    orders = order_struct(rows)
    differs = orders[1:] != orders[:-1]
    is_next_record = np.any(differs, axis=1)
    return 1 + int(is_next_record.sum())


def _floors(truncates: pa.Table, decoding: DecodingSettings) -> list[Floor]:
    """Return the floor of each TRUNCATE: its sequence; in arrival mode its order."""
    if decoding.sequence:
        sequences = truncates["_sequence"].to_pylist()
        return [tuple(sequence.values()) for sequence in sequences]
    orders = order_struct(truncates).tolist()
    return [tuple(order) for order in orders]


def _snapshots(good: pa.Table) -> list[dict[str, Any]]:
    """Return the snapshots of the whole table that rows belong to: one part for each sequence, which the next may continue."""
    if "_snapshot" not in good.column_names or "_sequence" not in good.column_names:
        return []
    rows = only(good.select(["_sequence", "_snapshot"]), good["_snapshot"].is_valid())
    if not len(rows):
        return []
    [ranks], sequences = rank_sequences([rows["_sequence"].combine_chunks()])
    begins = np.isin(rows["_snapshot"], FIRST_OF_SNAPSHOT)
    ends = np.isin(rows["_snapshot"], LAST_OF_SNAPSHOT)
    # Most logs give a snapshot one position: there are few ranks.
    n_ranks = len(sequences)
    has_begun = np.bincount(ranks, begins, n_ranks) > 0
    has_ended = np.bincount(ranks, ends, n_ranks) > 0
    positions = [tuple(sequence.values()) for sequence in sequences.to_pylist()]
    each = zip(positions, has_begun.tolist(), has_ended.tolist(), strict=True)
    return [
        {"lowest": position, "highest": position, "has_begun": begun, "has_ended": ended}
        for position, begun, ended in each
    ]


def _logs(good: pa.Table) -> list[dict[str, Any]]:
    """Return the staged changes' facts about their logs; empty if they name none.

    Args:
        good: Staged changes, with the epochs of their log in their sequences.
    """
    if "_source_log" not in good.column_names or "_sequence" not in good.column_names:
        return []
    rows = only(good.select(["_sequence", "_event_ms", "_source_log"]), good["_source_log"].is_valid())
    if not len(rows):
        return []
    names = rows["_source_log"].combine_chunks().dictionary_encode()
    files, *further = rows["_sequence"].combine_chunks().flatten()
    file_numbers = files.fill_null(0).to_numpy()
    epochs = np.maximum(file_numbers, 0) >> EPOCH_BITS
    numbers = file_numbers - (epochs << EPOCH_BITS)
    places = further[0].fill_null(0).to_numpy() if further else np.zeros(len(rows), np.int64)
    event_ms = rows["_event_ms"].combine_chunks()
    codes = names.indices.to_numpy()
    parts = []
    for code, name in enumerate(names.dictionary.to_pylist()):
        is_of_name = codes == code
        for epoch in np.unique(epochs[is_of_name]).tolist():
            own = np.flatnonzero(is_of_name & (epochs == epoch))
            number = int(numbers[own[0]])  # the name has one file
            times = pc.min_max(event_ms.take(pa.array(own))).as_py()
            connector, file, server = name.rsplit(BETWEEN_NAMES, 2)
            parts.append(
                {
                    "connector": connector,
                    "epoch": epoch,
                    "base": file.rpartition(".")[0],
                    "server": "" if server in _NO_SERVER else server,
                    "lowest": (number, int(places[own].min())),
                    "highest": (number, int(places[own].max())),
                    "oldest_ms": times["min"],
                    "newest_ms": times["max"],
                }
            )
    return parts


def _by_offset(truncates: pa.Table, floors: list[Floor]) -> dict[PartitionOffset, Floor]:
    """Return the TRUNCATEs' floors by their offsets; the first delivery of each counts."""
    lowest: dict[PartitionOffset, Floor] = {}
    for row, floor in enumerate(floors):
        # There are few TRUNCATEs: each is looked up separately, as a range of one offset in one partition.
        own_row = truncates.slice(row, 1)
        own_offset = OffsetRanges.in_rows(own_row)
        [(name, ranges)] = own_offset.items()
        [(offset, _)] = ranges
        partition_offset = name, offset
        known = lowest.get(partition_offset, floor)
        lowest[partition_offset] = min(floor, known)
    return lowest


def _ignored(rows: pa.Table) -> frozenset[str]:
    distinct = rows["_ignored"].unique()
    ignored: set[str] = set()
    for names in distinct.to_pylist():
        if names:
            ignored.update(names.split(","))
    return frozenset(ignored)


def _types(rows: pa.Table) -> dict[str, frozenset[str]]:
    """Return the types of unknown columns in the records."""
    types: dict[str, set[str]] = {}
    distinct = rows["_types"].unique().drop_null()
    for text in distinct.to_pylist():
        types_of_record = json.loads(text)
        for column, type_ in types_of_record.items():
            own = types.setdefault(column, set())
            if type_ is not None:
                own.add(type_)
    return {column: frozenset(own) for column, own in types.items()}


def _open_key_changes(good: pa.Table) -> int:
    """Count key changes that left values out, or were sent as a delete and a create, which may arrive in either order."""
    changes_key = good["_moved_from"].is_valid()
    left_values_out = good["_unavailable"].is_valid()
    is_of_two = pc.not_equal(good["_kind"], RowKind.UPDATE_AFTER)
    may_lack_values = pc.or_(left_values_out, is_of_two)
    is_open = pc.and_(changes_key, may_lack_values)
    return _count(is_open)


def _count(mask: pa.ChunkedArray) -> int:
    """Count the true values of a mask; null is not true."""
    n_true = pc.sum(mask).as_py()
    return int(n_true or 0)
