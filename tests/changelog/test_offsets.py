import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.changelog import ORDER, ORIGIN, OffsetRanges

PLACES = st.lists(st.tuples(st.sampled_from(["a/0", "b/0"]), st.integers(0, 12)))


def rows(*records: tuple[str, int], step: int = 1) -> pa.Table:
    """One changelog row a record; a repeated (source, position) gets its own order."""
    origin = [{"source": s.split("/")[0], "partition": int(s.split("/")[1]), "position": p} for s, p in records]
    order = [{"step": step, "part": 0, "position": at} for at in range(len(records))]
    return pa.table({"_origin": pa.array(origin, ORIGIN), "_order": pa.array(order, ORDER)})


@pytest.mark.parametrize(
    ("read", "more", "want"),
    [
        ([], [(3, 3)], [(3, 3)]),
        ([(0, 4)], [(5, 6)], [(0, 6)]),
        ([(0, 4)], [(6, 7)], [(0, 4), (6, 7)]),
        ([(0, 4), (6, 7)], [(5, 5)], [(0, 7)]),
        ([(5, 9)], [(0, 2), (1, 6)], [(0, 9)]),
        ([(0, 9)], [(3, 4)], [(0, 9)]),
        ([(0, 1)], [], [(0, 1)]),
        ([], [(2**63 - 2, 2**63 - 1)], [(2**63 - 2, 2**63 - 1)]),
    ],
)
def test_with_ranges_joins_what_touches(read, more, want):
    assert OffsetRanges({"a/0": read, "b/0": [(1, 1)]}).with_ranges({"a/0": more}).read == {
        "a/0": want,
        "b/0": [(1, 1)],
    }


def test_with_ranges_leaves_the_given_ranges_alone():
    read = OffsetRanges({"a/0": [(0, 1)]})
    read.with_ranges({"a/0": [(2, 2)], "b/0": [(0, 0)]})
    assert read.read == {"a/0": [(0, 1)]}


def test_repeats_knows_a_place_by_source_and_partition():
    read = OffsetRanges({"a/0": [(0, 2), (5, 5)], "a/1": [(7, 7)]})
    records = [("a/0", 0), ("a/0", 2), ("a/0", 3), ("a/0", 5), ("a/1", 5), ("a/1", 7), ("b/0", 0)]
    assert read.repeats(rows(*records)).tolist() == [True, True, False, True, False, True, False]


def test_repeats_in_one_table_keeps_the_first_by_order():
    table = rows(("a/0", 1), ("a/0", 2), ("a/0", 1))
    assert OffsetRanges().repeats(table).tolist() == [False, False, True]
    assert OffsetRanges().repeats(table.take([2, 1, 0])).tolist() == [True, False, False]


def test_repeats_takes_rows_of_one_record_together():
    twice = pa.concat_tables([rows(("a/0", 1)), rows(("a/0", 1)), rows(("a/0", 1), step=2)])
    assert OffsetRanges().repeats(twice).tolist() == [False, False, True]


def test_repeats_and_with_rows_of_nothing_are_nothing():
    empty = rows()
    assert OffsetRanges().repeats(empty).tolist() == []
    assert OffsetRanges({"a/0": [(0, 1)]}).with_rows(empty).read == {"a/0": [(0, 1)]}


@given(PLACES, PLACES)
def test_offsets_are_those_of_a_set(before, now):
    read = OffsetRanges().with_rows(rows(*before))
    seen, want = set(before), []
    for place in now:
        want.append(place in seen)
        seen.add(place)
    assert read.repeats(rows(*now)).tolist() == want
    intervals = read.with_rows(rows(*now)).read
    assert {(name, p) for name, spans in intervals.items() for a, b in spans for p in range(a, b + 1)} == seen
    for spans in intervals.values():
        assert all(b + 1 < a for (_, b), (a, _) in itertools.pairwise(spans))


def test_origin_offsets_are_closed_intervals_by_source_and_partition():
    table = rows(("a/0", 3), ("a/0", 1), ("b/2", 9), ("a/0", 2), ("a/0", 5), ("a/0", 2))
    assert OffsetRanges.in_rows(table) == {"a/0": [(1, 3), (5, 5)], "b/2": [(9, 9)]}
    assert OffsetRanges.in_rows(rows()) == {}


@pytest.mark.parametrize("turn", [1, -1])
def test_of_a_place_read_twice_the_first_by_step_part_and_line_counts(turn):
    orders = [(1, 5, 9), (1, 6, 1), (2, 0, 0)]
    table = rows(*[("a/0", 7)] * 3).take([0, 1, 2])
    placed = [{"step": step, "part": part, "position": line} for step, part, line in orders[::turn]]
    table = table.set_column(1, "_order", pa.array(placed, ORDER))
    assert OffsetRanges().repeats(table).tolist() == [False, True, True][::turn]


def test_place_is_known_where_it_was_read_and_nowhere_else():
    read = OffsetRanges({"a/0": [(2, 4), (7, 7)]})
    assert [position for position in range(10) if read.knows("a/0", position)] == [2, 3, 4, 7]
    assert not read.knows("b/0", 3)
