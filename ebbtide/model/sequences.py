"""Sequences: what orders the changes of a key, whatever the order of their arrival.

A sequence is one or more columns, compared in their order: the user's own, or where the source's log says that the change
stands:

| column | meaning |
|---|---|
| `_lsn` | Postgres: `source.lsn`; of a snapshot row without one its `source.ts_ms` - 2^63, so that it stands below every change and snapshot rows are ordered by the time of reading |
| `_file`, `_pos`, `_row` | MySQL, MariaDB: the number after the last dot of `source.file`, `source.pos`, `source.row` |
| `_ts_ms` | Postgres: `source.ts_ms`: when the change was committed; of a snapshot row when the snapshot began, of an incremental one when it was read |

Among changes of one key at one sequence the operation decides (`OP_*`, the greater wins), then the content (see
`ebbtide.operators.ties`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Codes

LOG_POSITIONS = ("_ts_ms", "_lsn", "_file", "_pos", "_row")
"""Sequence columns that a source gives."""
LOG_SEQUENCES = (("_lsn",), ("_ts_ms", "_lsn"), ("_file", "_pos", "_row"))
"""The sequences that they make: each distinguishes every two changes of a key. MySQL's times are whole seconds, and its snapshot
rows have the time of their own reading: they order nothing."""

OP_TRUNCATE, OP_DELETE, OP_SNAPSHOT, OP_UPSERT, OP_FINAL_DELETE = 0, 1, 2, 3, 4
"""Ranks of operations at one sequence. In a log a delete comes before a create, since a changed key is both at one position,
and a snapshot row before a change. By the user's own columns a delete carries the sequence of the row that it deletes: it
comes last."""
UNKNOWN = -1
"""Rank of no sequence; index of no event."""


def is_log_position(sequence: Sequence[str]) -> bool:
    """Whether a sequence is a position in the source's log, not a column of the user's."""
    return set(sequence) <= set(LOG_POSITIONS)


def sequence_type(columns: pa.Schema, sequence: Sequence[str]) -> pa.StructType:
    """Return the struct that holds a sequence.

    Example:
        >>> str(sequence_type(pa.schema([("at", pa.date32())]), ["at", "_lsn"]))
        'struct<at: date32[day], _lsn: int64>'
    """
    types = [pa.int64() if name in LOG_POSITIONS else columns.field(name).type for name in sequence]
    return pa.struct([pa.field(name, type_) for name, type_ in zip(sequence, types, strict=True)])


def stored_sequence_type(columns: pa.Schema, sequence: Sequence[str]) -> pa.StructType:
    """Return the struct that state and sink hold: a sequence and the rank of the operation, `op`."""
    return pa.struct([*sequence_type(columns, sequence), pa.field("op", pa.int32())])


def key_changes_type(columns: pa.Schema, key: Sequence[str], sequence: Sequence[str]) -> pa.ListType:
    """Return the list that holds the updates which gave a row its key, the newest first: their sequence and the old key."""
    old_key = pa.struct([columns.field(name).with_nullable(True) for name in key])
    return pa.list_(pa.struct([("sequence", sequence_type(columns, sequence)), ("key", old_key)]))


def without_op(stored: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    """Take the sequence out of a stored one."""
    parts = [pc.struct_field(stored, f.name) for f in type_]
    return pa.StructArray.from_arrays(parts, fields=list(type_), mask=stored.is_null())


def rank_sequences(arrays: Iterable[pa.StructArray]) -> tuple[list[Codes], pa.StructArray]:
    """Number sequences so that the numbers compare as the sequences do.

    Each component is ranked by itself, and the ranks are joined from the first component on: sorts of integers only,
    O(n log n) whatever the types.

    Args:
        arrays: Sequences of one type; null where there is none.

    Returns:
        For each array its (n,) ranks, `UNKNOWN` for null; the sequence of each rank.

    Example:
        >>> days = pa.array([{"day": 9}, {"day": 7}, None, {"day": 9}])
        >>> rank_sequences([days])[0][0].tolist()
        [1, 0, -1, 1]
    """
    given = list(arrays)
    together = pa.concat_arrays(given)
    is_known = together.is_valid().to_numpy(zero_copy_only=False)
    known_rows = np.flatnonzero(is_known)
    known = together
    if len(known_rows) < len(together):
        known = together.take(pa.array(known_rows))
    known_ranks = _struct_ranks(known)
    ranks = np.full(len(together), UNKNOWN)
    ranks[known_rows] = known_ranks
    ends = np.cumsum([len(array) for array in given])
    # Any row with a rank has the rank's sequence.
    n_ranks = int(known_ranks.max(initial=-1)) + 1
    some_row_of = np.full(n_ranks, UNKNOWN)
    some_row_of[known_ranks] = np.arange(len(known_ranks))
    return np.split(ranks, ends[:-1]), known.take(pa.array(some_row_of))


def _struct_ranks(sequences: pa.StructArray) -> Codes:
    """Rank sequences, none of them null."""
    first, *others = [pc.struct_field(sequences, field.name) for field in sequences.type]
    joined = _component_ranks(first)
    for component in others:
        ranks = _component_ranks(component)
        n_ranks = int(ranks.max(initial=0)) + 1
        joined = _dense_ranks(joined * n_ranks + ranks)  # dense, so that the next product cannot overflow
    return joined


def _dense_ranks(values: Codes) -> Codes:
    _, ranks = np.unique(values, return_inverse=True)
    return np.asarray(ranks, dtype=np.int64)


def _component_ranks(array: pa.Array) -> Codes:
    """Rank the values of one component: integers by themselves, all else by Arrow's own order of the distinct values."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_integer(array.type):
        return _dense_ranks(array.to_numpy(zero_copy_only=False))
    # Texts, decimals: only the distinct values are sorted.
    encoded = array.dictionary_encode()
    sorted_values = pc.array_sort_indices(encoded.dictionary).to_numpy()
    rank_of_value: Codes = np.empty(len(sorted_values), np.int64)
    rank_of_value[sorted_values] = np.arange(len(sorted_values))
    indices: Codes = encoded.indices.to_numpy(zero_copy_only=False)
    return rank_of_value[indices]
