"""What tied changes say: which are one change, which contradict one another, and the digests that decide."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ebbtide.operators._sequence.ties import Contents, compare, digests

RETRACTED, RETRACTION, LIVE = range(3)


TEXTS = ["x", "y", "x", "z", "y"]


def contents(values=TEXTS, unsent=(), retractions=(), retracted=None, forgotten=(), stored=()):
    places = np.arange(len(values))
    rows = pa.table({"id": [1] * len(values), "v": pa.array(values, pa.string())})
    hidden = {"v": np.isin(places, unsent)} if len(unsent) else {}
    is_forgotten, is_stored = np.isin(places, forgotten), np.isin(places, stored)
    return Contents(rows, hidden, np.isin(places, retractions), retracted or {}, is_forgotten, is_stored)


@pytest.mark.parametrize(
    ("groups", "conflicting", "count"),
    [
        ([0, 0, 0, 0, 0], [0, 1, 2, 3, 4], 2),
        ([0, 1, 2, 3, 4], [], 0),
        ([0, 0, 1, 2, 2], [0, 1, 3, 4], 2),
        ([3, 5, 5, 5, 9], [1, 2, 3], 2),
    ],
)
def test_contents_beyond_the_first_of_each_group_are_conflicts(groups, conflicting, count):
    ties = compare(np.arange(5), np.array(groups), contents())
    assert (ties.conflicting.tolist(), ties.n_conflicts) == (conflicting, count)
    assert sorted(np.flatnonzero(ties.digest).tolist()) == conflicting


def test_only_tied_events_are_compared():
    ties = compare(np.array([3, 4]), np.array([7, 7]), contents())
    assert (ties.conflicting.tolist(), ties.n_conflicts, ties.digest[:3].tolist()) == ([3, 4], 1, [0, 0, 0])
    none = compare(np.array([], np.int64), np.array([], np.int64), contents())
    assert (none.conflicting.tolist(), none.n_conflicts, none.digest.tolist()) == ([], 0, [0] * 5)


@pytest.mark.parametrize(("unsent", "count"), [((), 1), ((1,), 0), ((0, 1), 0)])
def test_value_that_was_not_sent_contradicts_none(unsent, count):
    assert compare(np.arange(2), np.zeros(2, np.int64), contents(["x", None], unsent)).n_conflicts == count


def test_value_not_sent_in_one_group_is_compared_in_another():
    ties = compare(np.arange(4), np.array([0, 0, 1, 1]), contents(["x", None, "x", "y"], unsent=(1,)))
    assert (ties.conflicting.tolist(), ties.n_conflicts) == ([2, 3], 1)


@pytest.mark.parametrize(("other", "weights"), [("x", [RETRACTION, RETRACTED]), ("y", [RETRACTION, LIVE])])
def test_retraction_that_is_stored_takes_back_its_own_content_and_no_other(other, weights):
    [digest] = digests(contents(["x"]).rows).tolist()
    given = contents([None, other], retractions=(0,), retracted={0: [digest]}, forgotten=(0,))
    ties = compare(np.arange(2), np.zeros(2, np.int64), given)
    assert (ties.n_conflicts, ties.weight.tolist(), ties.digest[0]) == (0, weights, digest)
    assert ties.taken_back == {0: [digest], 1: [digest]}


@pytest.mark.parametrize(
    ("values", "weights", "count"),
    [
        (["x", "x"], [RETRACTION, RETRACTED], 0),
        (["x", "y"], [RETRACTION, LIVE], 0),
        (["x", "x", "y"], [RETRACTION, RETRACTED, LIVE], 0),
        (["x", "y", "z"], [RETRACTION, LIVE, LIVE], 1),
    ],
)
def test_retraction_takes_back_the_row_with_its_content(values, weights, count):
    ties = compare(np.arange(len(values)), np.zeros(len(values), np.int64), contents(values, retractions=(0,)))
    assert (ties.weight.tolist(), ties.n_conflicts) == (weights, count)
    assert ties.conflicting.tolist() == (list(range(len(values))) if count else [])


def test_change_delivered_twice_is_not_taken_back_beside_one_that_is():
    ties = compare(np.arange(4), np.array([0, 0, 1, 1]), contents(["x", "x", "y", "y"], retractions=(2,)))
    assert ties.weight.tolist() == [LIVE, LIVE, RETRACTION, RETRACTED]


def test_stored_retraction_of_another_content_does_not_take_back_an_equal_looking_row():
    """Of what was taken back the digest alone is stored: its row looks like one of nulls."""
    [digest] = digests(contents(["x"]).rows).tolist()
    given = contents([None, None], retractions=(0,), retracted={0: [digest]}, forgotten=(0,))
    assert compare(np.arange(2), np.zeros(2, np.int64), given).weight.tolist() == [RETRACTION, LIVE]


def test_contents_that_are_left_are_named_and_those_known_before_are_not_counted_again():
    group = np.zeros(5, np.int64)
    for stored, count in (((), 2), ((0,), 2), ((0, 1), 1), ((0, 1, 3), 0)):
        ties = compare(np.arange(5), group, contents(stored=stored))
        assert (ties.n_conflicts, {event: sorted(left) for event, left in ties.left.items()}) == (
            count,
            {event: [0, 1, 3] for event in (0, 1, 3)},
        )


@pytest.mark.parametrize(
    ("retractions", "conflicting"), [((0, 1, 3), [0, 1, 2, 3, 4]), ((0, 1), []), ((0,), [0, 1, 2, 3, 4])]
)
def test_sequence_does_not_tell_the_row_where_all_of_several_contents_were_taken_back(retractions, conflicting):
    ties = compare(np.arange(5), np.zeros(5, np.int64), contents(retractions=retractions))
    assert ties.conflicting.tolist() == conflicting


def test_content_taken_back_before_stays_so_beside_a_row_that_is_left():
    [digest] = digests(contents(["x"]).rows).tolist()
    ties = compare(np.arange(2), np.zeros(2, np.int64), contents(["y", "x"], retracted={0: [digest]}))
    assert (ties.weight.tolist(), ties.n_conflicts) == ([LIVE, RETRACTED], 0)
    assert ties.taken_back == {0: [digest], 1: [digest]}


def test_digest_of_a_row_is_what_it_was_when_it_was_stored():
    """Digests stand in stored state: a row's must be the same in every process and version."""
    columns = {
        "n": pa.array([1, None]),
        "f": pa.array([1.5, -0.0]),
        "s": pa.array(["a", "\u00e9"]),
        "d": pa.array([Decimal("1.50"), Decimal(-2)], pa.decimal128(6, 2)),
        "m": pa.array([[(10, 2), (9, 1)], None], pa.map_(pa.int64(), pa.int64())),
    }
    assert digests(pa.table(columns)).tolist() == [3290379318523360567, 2976048542268954475]


def test_digest_of_a_map_does_not_depend_on_the_order_of_its_entries():
    maps = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], pa.map_(pa.string(), pa.int64()))
    [one, other] = digests(pa.table({"m": maps})).tolist()
    assert one == other


def test_digests_of_nothing_are_integers_too():
    assert digests(contents([]).rows).dtype == np.int64
