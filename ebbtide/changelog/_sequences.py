"""Sequences order the changes of a key independently of their arrival.

A sequence is one or more columns, compared in their order: the user's columns, or the position of the change in the source's log.
A position consists of 64-bit integers. They are read from the record's envelope (`ebbtide.formats._positions`) and are
not columns of the user:

| column | meaning |
|---|---|
| `_lsn` | Postgres: `source.lsn`; for a snapshot row without one, `source.ts_ms` - 2^63: below every change, ordered by the time of reading |
| `_file`, `_pos`, `_row` | MySQL, MariaDB: the number after the last dot of `source.file`, `source.pos`, `source.row` |
| `_step`, `_file`, `_pos` | `order: upsert`: the record's place, see `_order` in `ebbtide.changelog._rows` |
| `_ts_ms` | Postgres: `source.ts_ms`: when the change was committed; for a snapshot row when the snapshot began, for an incremental one when it was read |
| `_scn`, `_commit_lsn` and so on | the field of `source` of that name; a field that needs more than 64 bits has a second number, `_scn_2` |
| `_step` | materialized views: the step that computed the row |

If a key has several changes at one sequence, the greater operation wins (`ebbtide.operators._sequence.ops`), then the
content decides (`ebbtide.operators._sequence.ties`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Codes, count_codes

UNKNOWN = -1
"""Rank of a missing sequence; index of a missing event."""


@dataclass(frozen=True)
class SequenceColumns:
    """The columns of a sequence, and the types that hold it.

    Args:
        names: The columns, compared in this order: the user's, or those of a position in the source's log.
        columns: The user's columns.
    """

    STEP: ClassVar[str] = "_step"
    """Sequence column of materialized views."""
    PLACE: ClassVar[tuple[str, ...]] = (STEP, "_file", "_pos")
    """The sequence of `order: upsert`: the record's place, with the components of `_order`."""
    LOG_POSITIONS: ClassVar[tuple[str, ...]] = ("_ts_ms", "_lsn", "_file", "_pos", "_row", STEP)
    """Short names of envelope fields, as older specs write them, and the step. A user's column may not have these names."""

    names: Sequence[str]
    columns: pa.Schema

    @property
    def are_positions(self) -> bool:
        """Return whether they are a position in the source's log, without a column of the user."""
        return set(self.names).isdisjoint(self.columns.names)

    @property
    def type(self) -> pa.StructType:
        """The struct that holds a sequence.

        Example:
            >>> str(SequenceColumns(["at", "_lsn"], pa.schema([("at", pa.date32())])).type)
            'struct<at: date32[day], _lsn: int64>'
        """
        fields = []
        for name in self.names:
            type_ = pa.int64()
            if name in self.columns.names:
                type_ = self.columns.field(name).type
            fields.append(pa.field(name, type_))
        return pa.struct(fields)

    @property
    def stored_type(self) -> pa.StructType:
        """The struct that state and sink hold: a sequence and, behind it, the rank of the operation, `op`."""
        op = pa.field("op", pa.int32())
        return pa.struct([*self.type, op])

    def key_changes_type(self, key: Sequence[str]) -> pa.ListType:
        """Return the list that holds the updates which gave a row its key, the newest first: their sequence and the old key."""
        key_columns = [self.columns.field(name).with_nullable(True) for name in key]
        fields = [
            ("sequence", self.type),
            ("key", pa.struct(key_columns)),
        ]
        return pa.list_(pa.struct(fields))

    @staticmethod
    def without_op(stored: pa.StructArray) -> pa.StructArray:
        """Take the sequences out of stored ones."""
        *fields, _ = stored.type
        components = [pc.struct_field(stored, field.name) for field in fields]
        is_null = stored.is_null()
        return pa.StructArray.from_arrays(components, fields=fields, mask=is_null)


def rank_sequences(arrays: Iterable[pa.StructArray]) -> tuple[list[Codes], pa.StructArray]:
    """Number sequences so that the numbers compare as the sequences do.

    Each component is ranked by itself, and the ranks are joined from the first component on: sorts of integers only,
    O(n log n) for all types.

    Args:
        arrays: Sequences of one type; null for a missing one.

    Returns:
        The (n,) ranks of each array, `UNKNOWN` for null; the sequence of each rank.

    Example:
        >>> days = pa.array([{"day": 9}, {"day": 7}, None, {"day": 9}])
        >>> rank_sequences([days])[0][0].tolist()
        [1, 0, -1, 1]
    """
    given = list(arrays)
    # Ranked together: ranks of two separate rankings would not compare.
    together = pa.concat_arrays(given)
    # Null has no rank: the other rows are ranked without it, and their ranks are put back in their places.
    is_known = together.is_valid().to_numpy(zero_copy_only=False)
    known_rows = np.flatnonzero(is_known)
    known = together
    if len(known_rows) < len(together):
        known = together.take(pa.array(known_rows))
    known_ranks = _struct_ranks(known)
    ranks = np.full(len(together), UNKNOWN)
    ranks[known_rows] = known_ranks
    lengths = [len(array) for array in given]
    starts = np.cumsum(lengths)[:-1]
    ranks_of_arrays = np.split(ranks, starts)
    sequences = _sequence_of_each_rank(known, known_ranks)
    return ranks_of_arrays, sequences


def _sequence_of_each_rank(sequences: pa.StructArray, ranks: Codes) -> pa.StructArray:
    rows = np.arange(len(ranks))
    # Rows with the same rank have equal sequences, so it does not matter which one is written last.
    some_row_of = np.full(count_codes(ranks), UNKNOWN)
    some_row_of[ranks] = rows
    return sequences.take(pa.array(some_row_of))


def _struct_ranks(sequences: pa.StructArray) -> Codes:
    """Rank sequences, none of them null."""
    components = [pc.struct_field(sequences, field.name) for field in sequences.type]
    first, *rest = components
    joined = _component_ranks(first)
    for component in rest:
        ranks = _component_ranks(component)
        n_ranks = count_codes(ranks)
        # Lexicographic order as one integer: the first components decide, then this one.
        pairs = joined * n_ranks + ranks
        joined = _dense_ranks(pairs)  # dense, so that the next product cannot overflow
    return joined


def _dense_ranks(values: Codes) -> Codes:
    _, ranks = np.unique(values, return_inverse=True)
    return np.asarray(ranks, dtype=np.int64)


def _component_ranks(array: pa.Array) -> Codes:
    """Rank the values of one component: integers directly, other types by Arrow's order of the distinct values."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    elif pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if pa.types.is_integer(array.type):
        values = array.to_numpy(zero_copy_only=False)
        return _dense_ranks(values)
    # Texts and decimals: only the distinct values are sorted, then each row takes the rank of its value. O(n + d log d).
    encoded = array.dictionary_encode()
    ascending = pc.array_sort_indices(encoded.dictionary)
    n_values = len(ascending)
    rank_of_value: Codes = np.empty(n_values, np.int64)
    rank_of_value[ascending.to_numpy()] = np.arange(n_values)
    indices: Codes = encoded.indices.to_numpy(zero_copy_only=False)
    return rank_of_value[indices]
