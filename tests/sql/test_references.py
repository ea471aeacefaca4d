"""The tables in a statement, and its text for Spark."""

import pytest

from ebbtide.errors import SqlError
from ebbtide.sql._catalog import Part
from ebbtide.sql._references import Pin, PinKind, Reference, find_references
from ebbtide.sql._tokens import split

NAMES = {"orders", "items"}
ORDERS, ITEMS, STATE = Reference("orders"), Reference("items"), Reference("orders", Part.STATE)


def referring(text):
    [statement] = split(text)
    return find_references(statement, NAMES)


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ("SELECT 1", set()),
        ("SELECT * FROM orders", {ORDERS}),
        ("SELECT * FROM Orders o JOIN `items` i USING (id)", {ORDERS, ITEMS}),
        ("SELECT 'orders', x.orders /* orders */ FROM y", set()),
        ("SELECT orders.id FROM orders", {ORDERS}),
        ("WITH a AS (SELECT * FROM items) SELECT * FROM a", {ITEMS}),
        ("SELECT `other$state` FROM y", set()),
    ],
)
def test_tables_are_found_and_the_text_stays(text, references):
    found = referring(text)
    assert (found.references, found.text) == (references, text)


V3, S7 = Pin(PinKind.VERSION, 3), Pin(PinKind.STEP, 7)


@pytest.mark.parametrize(
    ("text", "written", "references"),
    [
        ("SELECT * FROM orders$state", "SELECT * FROM `orders$state`", {STATE}),
        ("SELECT * FROM `orders$state` s", "SELECT * FROM `orders$state` s", {STATE}),
        (
            "SELECT orders$state.id FROM orders$state JOIN orders",
            "SELECT `orders$state`.id FROM `orders$state` JOIN orders",
            {STATE, ORDERS},
        ),
        (
            "SELECT id FROM orders VERSION AS OF 3 WHERE id > 1",
            "SELECT id FROM `orders@version3` AS `orders` WHERE id > 1",
            {Reference("orders", None, V3)},
        ),
        (
            "SELECT * FROM orders FOR VERSION AS OF 3 a, orders STEP AS OF 7 AS b",
            "SELECT * FROM `orders@version3` a, `orders@step7` AS b",
            {Reference("orders", None, V3), Reference("orders", None, S7)},
        ),
        (
            "SELECT * FROM orders$state STEP AS OF 7",
            "SELECT * FROM `orders$state@step7` AS `orders`",
            {Reference("orders", Part.STATE, S7)},
        ),
    ],
)
def test_parts_and_moments_are_written_as_views_of_their_own(text, written, references):
    found = referring(text)
    assert (found.text, found.references) == (written, references)


def test_part_of_a_table_that_there_is_not_is_refused_with_its_place():
    with pytest.raises(
        SqlError, match=r"There is no table 'other', at line 2, column 6\. Got: other\$state\. Allowed: items, orders"
    ):
        referring("SELECT *\nFROM other$state")


def test_part_that_there_is_not_is_refused_with_its_place():
    with pytest.raises(
        SqlError, match=r"'orders' has no such part, at line 2, column 6. Got: nope. Allowed: state, changes"
    ):
        referring("SELECT *\nFROM orders$nope")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, nope FROM orders",
        "SELECT * FROM orders$state s WHERE nope = 1",
        "SELECT s.a, nope FROM orders$state s,\n  items VERSION\n AS OF 3 i JOIN orders$steps\n WHERE nope",
        "SELECT o.a FROM orders STEP\nAS OF 7, items WHERE\n    nope = 1",
        "SELECT orders$state.nope",
    ],
)
def test_place_of_what_spark_finds_is_where_it_was_written(text):
    whole, offset = f"SELECT 1;\n  {text}", len("SELECT 1;\n  ") + text.index("nope")
    _, statement = split(whole)
    found = find_references(statement, NAMES)
    line, position = places(found.text, found.text.index("nope"))
    expected_line, expected_column = places(whole, offset)
    place = found.place(line, position)
    assert (place.line, place.column) == (expected_line, expected_column + 1)


def places(text, offset):
    """Line, from 1, and position in it, from 0, of an offset."""
    before = text[:offset].split("\n")
    return len(before), len(before[-1])


def test_place_within_what_was_written_otherwise_is_where_that_begins():
    found = referring("SELECT 1 FROM orders$state")
    assert str(found.place(1, 17)) == "line 1, column 15"
