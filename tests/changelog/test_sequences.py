"""Sequences as types and as ranks."""

import pyarrow as pa
import pytest

from ebbtide.changelog import SequenceColumns, rank_sequences

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.date32()), ("n", pa.int16())])
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])


def test_stored_sequence_is_a_sequence_with_its_operation_last():
    assert SequenceColumns(["at", "n"], COLUMNS).type == pa.struct([("at", pa.date32()), ("n", pa.int16())])
    stored = SequenceColumns(["_lsn"], COLUMNS).stored_type
    assert stored == pa.struct([("_lsn", pa.int64()), ("op", pa.int32())])
    given = pa.array([{"_lsn": 3, "op": 1}, None, {"_lsn": None, "op": 2}], stored)
    assert SequenceColumns.without_op(given).to_pylist() == [{"_lsn": 3}, None, {"_lsn": None}]


def test_old_keys_may_be_null_as_every_nested_column():
    changes = SequenceColumns(["n"], COLUMNS).key_changes_type(["id"])
    key = changes.value_type.field("key").type
    assert (changes.value_type.field("sequence").type, key.field("id").type) == (
        pa.struct([("n", pa.int16())]),
        pa.int64(),
    )
    assert key.field("id").nullable


def ranks_of(*arrays):
    ranks, sequences = rank_sequences([pa.array(array, PAIR) for array in arrays])
    return [each.tolist() for each in ranks], sequences.to_pylist()


def test_sequences_of_several_arrays_are_ranked_together_column_by_column():
    low, mid, high = {"a": 1, "b": "z"}, {"a": 2, "b": "a"}, {"a": 2, "b": "b"}
    assert ranks_of([high, None], [low], [], [mid, high, None]) == ([[2, -1], [0], [], [1, 2, -1]], [low, mid, high])
    assert ranks_of([], [None]) == ([[], [-1]], [])


@pytest.mark.parametrize(
    ("type_", "ascending"),
    [
        (pa.bool_(), [False, True]),
        (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
        (pa.uint64(), [0, 2**63, 2**64 - 1]),
        (pa.date32(), [-1, 0, 7]),
        (pa.timestamp("us"), [-1, 0, 7]),
        (pa.string(), ["", "Z", "a", "\u00e9", "\U0001f600"]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
    ],
    ids=["boolean", "long", "unsigned", "date", "timestamp", "text", "bytes"],
)
def test_values_of_every_type_are_ranked_in_their_order(type_, ascending):
    values = pa.array(ascending, type_)
    given = pa.StructArray.from_arrays([pa.concat_arrays([values[::-1], values])], names=["v"])
    [ranks], _ = rank_sequences([given])
    n = len(ascending)
    assert ranks.tolist() == [*reversed(range(n)), *range(n)]
