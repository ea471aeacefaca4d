"""What the reconcilers share: the clock of a step, the newest versions of entries, columns as integers and flags."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ebbtide.changelog import ORDER, order_struct
from ebbtide.columns import entry_table, equals, flags, ints, only
from ebbtide.entries import Step, last_of_group, live_entries, newest
from ebbtide.keyed_state import StateTtlConfig


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, 7),
        ({"time_characteristic": "EVENT_TIME"}, 3),
        ({"time_characteristic": "EVENT_TIME", "expiry_clock": "PROCESSING_TIME"}, 7),
    ],
)
def test_entries_age_by_the_clock_that_their_ttl_names(fields, want):
    assert Step(1, now_ms=7, watermark_ms=3).clock_ms(StateTtlConfig(ttl="1d", **fields)) == want


@pytest.mark.demand("ttl-event-time")
def test_nothing_expires_by_event_time_before_the_first_event():
    assert Step(1, now_ms=7).clock_ms(StateTtlConfig(ttl="1d", time_characteristic="EVENT_TIME")) == -(2**63)


@pytest.mark.parametrize(("now", "want"), [(109, [False, False]), (110, [True, False]), (111, [True, True])])
@pytest.mark.demand("ttl-unified")
def test_stamps_expire_at_exactly_their_time(now, want):
    assert Step(1, now).has_expired(np.array([10, 11]), StateTtlConfig(ttl="100ms")).tolist() == want


def test_nothing_expires_without_a_ttl():
    expired = Step(1, 2**62).has_expired(np.array([0, -(2**63)]), None)
    assert (expired.tolist(), expired.dtype) == ([False, False], bool)


def test_newest_is_each_code_s_row_with_the_greatest_step_in_order_of_code():
    assert newest(np.array([2, 0, 2, 0, 1]), np.array([9, 3, 4, 8, 1])).tolist() == [3, 4, 0]
    assert newest(np.array([], np.int64), np.array([], np.int64)).tolist() == []


ENTRIES = pa.schema(
    [("id", pa.int64()), ("at", pa.int64()), ("v", pa.string()), ("_step", pa.int64()), ("_removed", pa.bool_())]
)


def test_live_entries_leave_out_older_versions_what_was_removed_and_columns_that_are_none_of_an_entry():
    rows = [
        (1, 0, "old", 1, False),
        (1, 0, "new", 3, None),
        (1, 1, "other", 2, False),
        (2, 0, "there", 1, False),
        (2, 0, "gone", 2, True),
        (3, 0, "gone", 1, True),
        (3, 0, "back", 2, False),
    ]
    for turn in (1, -1):
        table = pa.Table.from_pylist([dict(zip(ENTRIES.names, row, strict=True)) for row in rows[::turn]], ENTRIES)
        more = table.append_column("_entry", pa.array(["row"] * len(rows)))
        found = live_entries(more, ENTRIES, ["id", "at"])
        assert found.column_names == ENTRIES.names
        assert sorted(found["v"].to_pylist()) == ["back", "new", "other"]


@pytest.mark.parametrize(
    ("codes", "want"), [([], []), ([4], [True]), ([4, 4, 7, 9, 9], [False, True, True, False, True])]
)
def test_last_of_group_ends_each_run(codes, want):
    assert last_of_group(np.array(codes, np.int64)).tolist() == want


def test_ints_and_flags_replace_nulls():
    table = pa.table(
        {
            "n": pa.chunked_array([[1, None], [3]], pa.int32()),
            "s": pa.array(
                [{"a": 5, "b": 1}, {"a": None, "b": 2}, None], pa.struct([("a", pa.int64()), ("b", pa.int64())])
            ),
            "f": pa.array([True, None, False]),
        }
    )
    assert ints(table, "n").tolist() == [1, 0, 3]
    assert ints(table, "n", null=-7).tolist() == [1, -7, 3]
    assert (ints(table, "s.a").tolist(), ints(table, "s.b", null=9).tolist()) == ([5, 0, 0], [1, 2, 9])
    assert (flags(table, "f").tolist(), ints(table, "n").dtype, flags(table, "f").dtype) == (
        [True, False, False],
        np.int64,
        bool,
    )


def test_null_equals_no_text():
    assert equals(pa.table({"op": ["c", None, "d", ""]}), "op", "c").tolist() == [True, False, False, False]


def test_order_struct_has_step_part_and_position_side_by_side():
    order = [{"step": 1, "part": 2, "position": 3}, {"step": 4, "part": 5, "position": 6}]
    table = pa.table({"_order": pa.array(order, ORDER), "_changed_by": pa.array(order[::-1], ORDER)})
    assert order_struct(table).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert order_struct(table, "_changed_by").tolist() == [[4, 5, 6], [1, 2, 3]]
    assert (order_struct(table.slice(0, 0)).shape, order_struct(table.slice(0, 0)).dtype) == ((0, 3), np.int64)


def test_entry_table_casts_what_is_given_and_has_null_for_the_rest():
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.int64())])
    given = {"a": pa.array([1, 2], pa.int32()), "c": [True, None], "d": pa.chunked_array([[1], [2]], pa.int8())}
    table = entry_table(schema, given | {"more": [1, 2]}, 2)
    assert table.schema == schema
    assert table.to_pylist() == [{"a": 1, "b": None, "c": True, "d": 1}, {"a": 2, "b": None, "c": None, "d": 2}]
    assert entry_table(schema, {}, 3).num_rows == 3


def test_values_in_a_list_are_of_their_column_s_type():
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    assert entry_table(schema, {"m": [[("k", 1)], None]}, 2).to_pylist() == [{"m": [("k", 1)]}, {"m": None}]


@pytest.mark.parametrize("mask", [[], [True, True], [True, False], [True, None], [None, None]])
def test_only_the_rows_that_a_mask_keeps_are_left_and_null_keeps_none(mask):
    rows = pa.table({"n": pa.array(range(len(mask)), pa.int64())})
    left = only(rows, pa.array(mask, pa.bool_()))
    assert left["n"].to_pylist() == [n for n, keeps in enumerate(mask) if keeps]
    assert (left is rows) == all(mask)
