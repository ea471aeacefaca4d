import csv
import io
import json

import pytest

from ebbtide.sql._results import ResultColumn
from ebbtide.sql._shell import show

MOST_CHARACTERS = 400


COLUMNS = (ResultColumn("id", "bigint"), ResultColumn("name"))
HOSTILE = ["\x1b[2J", "\x9b31m", "\u202e", "\r", "\x07"]


def lines(form, rows, columns=COLUMNS):
    return list(form(columns, [rows]))


def test_table_shows_null_by_name_and_aligns_wide_characters():
    assert lines(show.table, [[1, "東京"], [20, None], [3, ""], [4, " a"], [5, "1.50"]]) == [
        "+----+------+",
        "| id | name |",
        "|----+------|",
        "|  1 | 東京 |",
        "| 20 | NULL |",
        "|  3 |      |",
        "|  4 |  a   |",
        "|  5 | 1.50 |",
        "+----+------+",
    ]


def test_table_without_rows_has_its_names():
    assert lines(show.table, []) == ["+----+------+", "| id | name |", "|----+------|", "+----+------+"]


def test_table_cuts_very_long_cells_with_an_ellipsis():
    for text in ("x" * 1_000_000, "\u0301" * 1_000_000):
        [*_, row, _] = lines(show.table, [[1, text], [2, "a"]])[:5]
        assert row.count(text[0]) == MOST_CHARACTERS
        assert "…" in row


def test_later_rows_stand_below_the_first_ones_and_are_whole():
    batches = [[], [[1, "short"]], [[2, "b"]], [], [[100, "much longer"]]]
    assert list(show.table(COLUMNS, batches)) == [
        "+----+-------+",
        "| id | name  |",
        "|----+-------|",
        "|  1 | short |",
        "|  2 | b     |",
        "| 100 | much longer |",
        "+-----+-------------+",
    ]
    assert list(show.markdown(COLUMNS, [[[1, "short"]], [[2, "b"]]]))[2:] == ["|  1 | short |", "|  2 | b     |"]


def test_table_shows_a_single_cell_whole_with_its_lines():
    column = [ResultColumn("statement")]
    text = f"CREATE TABLE t (\n\tid BIGINT{'x' * 100}\x1b\n)"
    shown = list(show.table(column, [[], [[text]], []]))
    assert shown == ["statement", "---------", "CREATE TABLE t (", f"\\tid BIGINT{'x' * 100}\\x1b", ")"]
    assert "| NULL      |" in lines(show.table, [[None]], column)
    of_two = list(show.table(column, [[["a\nb"]], [["c"]]]))
    assert of_two[3:5] == ["| a\\nb      |", "| c         |"]


@pytest.mark.parametrize("form", [show.table, show.vertical, show.json_lines, show.markdown])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_formats_hold_no_character_that_a_terminal_obeys(form, hostile):
    columns = (ResultColumn(f"n{hostile}"), ResultColumn("m"))
    shown = "".join(lines(form, [[hostile, [hostile]]], columns))
    assert hostile not in shown


def test_csv_tells_null_from_an_empty_text_and_keeps_cells_whole():
    rows = [[1, None], [2, ""], [3, 'a,"b"\nc\x1b'], [4, "x" * 1000], [5, "東京"]]
    text = "\n".join(lines(show.csv, rows))
    assert text.splitlines()[:3] == ["id,name", "1,", '2,""']
    read = list(csv.reader(io.StringIO(text)))
    assert [row[1] for row in read[3:]] == ['a,"b"\nc\x1b', "x" * 1000, "東京"]


def test_json_is_an_object_a_row_with_values_as_they_are():
    rows = [[1, {"a": [None, "\x1b\u202e"]}], [2, True]]
    shown = lines(show.json_lines, rows)
    assert [json.loads(line) for line in shown] == [
        {"id": 1, "name": {"a": [None, "\x1b\u202e"]}},
        {"id": 2, "name": True},
    ]


def test_lone_surrogates_are_escaped_where_they_cannot_be_written():
    [line] = lines(show.json_lines, [[1, "\ud800"]])
    assert json.loads(line.encode()) == {"id": 1, "name": "\ud800"}


def test_json_loses_no_column_of_a_name_that_is_there_twice():
    columns = [ResultColumn("a"), ResultColumn("a"), ResultColumn("a_2")]
    [line] = lines(show.json_lines, [[1, 2, 3]], columns)
    assert json.loads(line) == {"a": 1, "a_3": 2, "a_2": 3}


def test_markdown_escapes_what_would_end_a_cell():
    assert lines(show.markdown, [[1, "a|b\nc"], [2, None]]) == [
        "| id | name      |",
        "|---:|:----------|",
        "|  1 | a\\|b<br>c |",
        "|  2 | NULL      |",
    ]


def test_vertical_shows_whole_cells_and_numbers_rows_over_batches():
    shown = list(show.vertical(COLUMNS, [[[1, "x" * 1000]], [[2, None]]]))
    assert shown[1:3] == ["id   | 1", f"name | {'x' * 1000}"]
    assert shown[3].strip("*") == "[ 2. row ]"
    assert shown[5] == "name | NULL"


@pytest.mark.parametrize("form", [show.table, show.vertical, show.csv, show.json_lines, show.markdown])
def test_lines_come_as_the_rows_do(form):
    waited = []

    def batches():
        yield [[1, "a"]]
        waited.append("for the second")
        yield [[2, "b"]]

    shown = form(COLUMNS, batches())
    assert any("1" in line for line in shown)
    assert waited == []
