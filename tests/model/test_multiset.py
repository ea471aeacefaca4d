from hypothesis import given
from hypothesis import strategies as st

from ebbtide.model.multiset import Element, OrderedMultiset


def filled(*rows):
    multiset = OrderedMultiset()
    for row in rows:
        multiset.add(row)
    return multiset


def test_empty_multiset_has_no_last_row():
    assert (len(OrderedMultiset()), OrderedMultiset().last, OrderedMultiset().retract("a")) == (0, None, None)


def test_retract_takes_the_oldest_equal_row():
    rows = filled("a", "b", "a")
    assert rows.retract("a") == ("a", 0)
    assert list(rows) == [("b", 1), ("a", 2)]
    assert rows.last == ("a", 2)


def test_retract_of_the_last_row_shows_the_one_before():
    rows = filled("a", "b")
    assert rows.retract("b") == ("b", 1)
    assert rows.last == ("a", 0)


def test_retract_of_an_unknown_row_changes_nothing():
    rows = filled("a", "b")
    assert rows.retract("c") is None
    assert list(rows) == [("a", 0), ("b", 1)]


def test_positions_are_not_given_out_twice():
    rows = filled("a")
    rows.retract("a")
    assert rows.add("a") == ("a", 1)
    stored = OrderedMultiset([Element("x", 3)], next_position=9)
    assert (stored.add("y"), stored.last, len(stored)) == (("y", 9), ("y", 9), 2)


def test_start_is_copied():
    start = [Element("a", 0)]
    OrderedMultiset(start, next_position=1).retract("a")
    assert start == [("a", 0)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3))))
def test_rows_are_those_of_a_list_with_the_first_equal_one_removed(moves):
    multiset, want = OrderedMultiset(), []
    for adds, row in moves:
        if adds:
            multiset.add(row)
            want.append(row)
        else:
            assert (multiset.retract(row) is not None) == (row in want)
            if row in want:
                want.remove(row)
        assert [e.row for e in multiset] == want
        positions = [e.position for e in multiset]
        assert positions == sorted(set(positions))


def test_retract_compares_with_equal_rows_only():
    class Row(int):
        compared = 0

        def __eq__(self, other):
            Row.compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    rows = filled(*map(Row, range(1000)))
    for n in reversed(range(1000)):
        assert rows.retract(Row(n)).position == n
    assert Row.compared < 3000
