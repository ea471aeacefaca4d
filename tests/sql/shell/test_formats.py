import csv
import io
import json

import pytest

from ebbtide.sql.results import ResultColumn
from ebbtide.sql.shell import formats
from ebbtide.sql.shell.cells import cut, folded, padded, width

COLUMNS = (ResultColumn("id", "bigint"), ResultColumn("name"))
HOSTILE = ["\x1b[2J", "\x9b31m", "\u202e", "\r", "\x07"]


def lines(form, rows, columns=COLUMNS, **options):
    return list(form(columns, [rows], **options))


def test_tableau_shows_null_by_name_and_aligns_wide_characters():
    assert lines(formats.tableau, [[1, "東京"], [20, None], [3, ""]]) == [
        "id | name",
        "---+-----",
        " 1 | 東京",
        "20 | NULL",
        " 3 |",
    ]


def test_tableau_cuts_long_cells_with_an_ellipsis():
    columns = (ResultColumn("name"), ResultColumn("id", "bigint"))
    [*_, row] = lines(formats.tableau, [["x" * 100, 1]], columns)
    assert row == f"{'x' * 39}… |  1"


def test_tableau_gives_the_last_text_what_is_left_of_the_terminal():
    text = "The sink is gone; " * 5
    [*_, row] = lines(formats.tableau, [[1, text]])
    assert row == f" 1 | {text.rstrip()}"
    [*_, row] = lines(formats.tableau, [[1, text]], most_width=60)
    assert (width(row), row[-1]) == (60, "…")


def test_tableau_looks_at_the_beginning_of_a_very_long_cell_alone():
    [*_, row] = lines(formats.tableau, [[1, "\u0301" * 1_000_000], [2, "a"]])[:3]
    assert row.endswith("…")


def test_tableau_is_as_wide_as_its_first_rows_need_and_cuts_later_ones():
    shown = list(formats.tableau(COLUMNS, [[], [[1, "short"]], [[100, "much longer"]]]))
    assert shown[2:] == [" 1 | short", "1… | much longer"]


def test_tableau_shows_a_single_cell_whole_with_its_lines():
    column = [ResultColumn("statement")]
    text = f"CREATE TABLE t (\n\tid BIGINT{'x' * 100}\x1b\n)"
    shown = list(formats.tableau(column, [[], [[text]], []]))
    assert shown == ["statement", "---------", "CREATE TABLE t (", f"\\tid BIGINT{'x' * 100}\\x1b", ")"]
    assert lines(formats.tableau, [[None]], column)[2:] == ["NULL"]
    assert list(formats.tableau(column, [[["a\nb"]], [["c"]]]))[2:] == ["a\\nb", "c"]


def test_tableau_names_the_columns_that_do_not_fit_the_terminal():
    columns = [ResultColumn(f"column{number}") for number in range(30)]
    shown = lines(formats.tableau, [["value"] * 30], columns, most_width=40)
    assert max(map(width, shown[:-1])) <= 40
    assert shown[0].startswith("column0 | column1 | column2")
    assert shown[-1].startswith("Columns that do not fit: column4, column5")


@pytest.mark.parametrize("form", [formats.tableau, formats.vertical, formats.json_lines, formats.markdown])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_formats_hold_no_character_that_a_terminal_obeys(form, hostile):
    columns = (ResultColumn(f"n{hostile}"), ResultColumn("m"))
    shown = "".join(lines(form, [[hostile, [hostile]]], columns))
    assert hostile not in shown


def test_csv_tells_null_from_an_empty_text_and_keeps_cells_whole():
    rows = [[1, None], [2, ""], [3, 'a,"b"\nc\x1b'], [4, "x" * 100], [5, "東京"]]
    text = "\n".join(lines(formats.csv, rows))
    assert text.splitlines()[:3] == ["id,name", "1,", '2,""']
    read = list(csv.reader(io.StringIO(text)))
    assert [row[1] for row in read[3:]] == ['a,"b"\nc\x1b', "x" * 100, "東京"]


def test_json_is_an_object_a_row_with_values_as_they_are():
    rows = [[1, {"a": [None, "\x1b\u202e"]}], [2, True]]
    shown = lines(formats.json_lines, rows)
    assert [json.loads(line) for line in shown] == [
        {"id": 1, "name": {"a": [None, "\x1b\u202e"]}},
        {"id": 2, "name": True},
    ]


def test_lone_surrogates_are_escaped_where_they_cannot_be_written():
    [line] = lines(formats.json_lines, [[1, "\ud800"]])
    assert json.loads(line.encode()) == {"id": 1, "name": "\ud800"}


def test_json_loses_no_column_of_a_name_that_is_there_twice():
    columns = [ResultColumn("a"), ResultColumn("a"), ResultColumn("a_2")]
    [line] = lines(formats.json_lines, [[1, 2, 3]], columns)
    assert json.loads(line) == {"a": 1, "a_3": 2, "a_2": 3}


def test_markdown_escapes_what_would_end_a_cell():
    assert lines(formats.markdown, [[1, "a|b\nc"], [2, None]])[2:] == ["| 1 | a\\|b<br>c |", "| 2 | NULL |"]


def test_vertical_shows_whole_cells():
    assert lines(formats.vertical, [[1, "x" * 100]]) == ["--- row 1 ---", "id   | 1", f"name | {'x' * 100}"]


@pytest.mark.parametrize("form", [formats.tableau, formats.vertical, formats.csv, formats.json_lines, formats.markdown])
def test_lines_come_as_the_rows_do(form):
    waited = []

    def batches():
        yield [[1, "a"]]
        waited.append("for the second")
        yield [[2, "b"]]

    shown = form(COLUMNS, batches())
    assert any("1" in line for line in shown)
    assert waited == []


@pytest.mark.parametrize("text", ["", "abc", "東京都庁", "e\u0301e\u0301e\u0301", "a東b"])
@pytest.mark.parametrize("columns", [1, 2, 3, 10])
def test_padded_text_takes_its_columns_exactly(text, columns):
    assert width(padded(text, columns)) == columns
    assert width(cut(text, columns)) <= columns
    assert "".join(folded(text, max(2, columns))) == text
