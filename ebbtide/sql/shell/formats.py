"""Rows as lines of text. A format is a function of columns and batches of rows; lines come as the batches do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

from ebbtide.redaction import has_unseen, printable
from ebbtide.sql.results import ResultColumn, Row
from ebbtide.sql.shell.cells import ELLIPSIS, NULL, padded, whole, width

Columns = Sequence[ResultColumn]
Batches = Iterable[list[Row]]
Format = Callable[[Columns, Batches], Iterator[str]]

MOST_WIDTH = 40
"""Columns of the terminal that a cell of a text table takes at most."""
LONG = 10 * MOST_WIDTH
"""Characters of a value that are looked at where it is cut to that."""
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "long", "integer", "short", "byte")
_NEEDS_QUOTES = frozenset(',"\r\n')
_JOINT = " | "


class ResultFormat(StrEnum):
    """How rows are shown."""

    TABLE = "table"
    TABLEAU = "tableau"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"

    @property
    def is_data(self) -> bool:
        """Whether programs read it: what is for people is then no part of it."""
        return self in {ResultFormat.CSV, ResultFormat.JSON, ResultFormat.MARKDOWN}


def cell(value: Any) -> str:
    """Return a value as people see it: NULL by name, and no character that a terminal obeys."""
    return NULL if value is None else printable(whole(value))


def short_cell(value: Any) -> str:
    """Return a value as people see it where there is no room for all of a long one."""
    text = whole(value)
    if len(text) <= LONG:
        return cell(value)
    return printable(text[:LONG]) + ELLIPSIS


def is_number(column: ResultColumn) -> bool:
    """Return whether a column's cells stand right."""
    return column.type.lower().partition("(")[0] in _NUMBERS


def widths_of(columns: Columns, rows: Iterable[Row]) -> list[int]:
    """Return how many columns of the terminal each cell is given."""
    widest = [width(printable(column.name)) for column in columns]
    for row in rows:
        widths = [width(short_cell(value)) for value in row]
        widest = list(map(max, widest, widths))
    at_most = [min(found, MOST_WIDTH) for found in widest]
    return [max(1, found) for found in at_most]


def tableau(columns: Columns, batches: Batches, most_width: int | None = None) -> Iterator[str]:
    """Lay out rows in columns, as wide as the names and the first batch need; a single long cell whole, its lines as lines.

    Nothing stands behind the last column: a text there has what is left of the terminal.

    Args:
        columns: Of the rows.
        batches: The rows.
        most_width: Of the terminal; columns that do not fit are left out and named. Default: no limit.
    """
    remaining: Iterator[list[Row]] = filter(None, batches)
    first = next(remaining, [])
    has_one_cell = len(columns) == len(first) == 1
    if has_one_cell and _is_cut(first[0][0]):
        second = next(remaining, None)
        if second is None:
            yield from _one_cell(columns[0], first[0][0])
            return
        remaining = chain([second], remaining)
    widths = widths_of(columns, first)
    n_fitting = _n_fitting(widths, most_width)
    fitting = columns[:n_fitting]
    aligned = [(wide, is_number(column)) for column, wide in zip(fitting, widths, strict=False)]
    if fitting and not is_number(fitting[-1]):
        aligned[-1] = (_room_of_last(widths[:n_fitting], most_width), False)
    names = [printable(column.name) for column in fitting]
    rules = ["-" * wide for wide in widths[:n_fitting]]
    yield _tableau_line(names, aligned)
    yield "-+-".join(rules)
    yield from _tableau_lines(first, aligned)
    for batch in remaining:
        yield from _tableau_lines(batch, aligned)
    if n_fitting < len(columns):
        left_out = [printable(column.name) for column in columns[n_fitting:]]
        listed = ", ".join(left_out)
        yield f"Columns that do not fit: {listed}. SET result-format = vertical shows them."


def tableau_width(columns: Columns, rows: Iterable[Row]) -> int:
    """Return how wide a text table of some rows is."""
    return _total(widths_of(columns, rows))


def vertical(columns: Columns, batches: Batches) -> Iterator[str]:
    """Lay out each row as a line a column, whole."""
    names = [printable(column.name) for column in columns]
    widest = max(map(width, names), default=0)
    labels = [padded(name, widest) for name in names]
    for number, row in enumerate(_rows(batches), start=1):
        yield f"--- row {number} ---"
        for label, value in zip(labels, row, strict=True):
            line = label + _JOINT + cell(value)
            yield line.rstrip()


def csv(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write comma-separated values under their names; NULL is nothing, an empty text is a pair of quotes."""
    names = [_quoted(column.name) for column in columns]
    yield ",".join(names)
    for row in _rows(batches):
        cells = map(_csv_cell, row)
        yield ",".join(cells)


def json_lines(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write a JSON object a row; of several columns of one name all but the first are numbered."""
    names = unique([column.name for column in columns])
    for row in _rows(batches):
        values = dict(zip(names, row, strict=True))
        text = json.dumps(values, ensure_ascii=False)
        yield _json_escaped(text)


def markdown(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write a table of Markdown."""
    names = [_markdown_cell(column.name) for column in columns]
    yield _markdown_line(names)
    yield _markdown_line("---:" if is_number(column) else "---" for column in columns)
    for row in _rows(batches):
        yield _markdown_line(map(_markdown_cell, row))


def unique(names: Sequence[str]) -> list[str]:
    """Return names that differ.

    Example:
        >>> unique(["a", "a", "a_2"])
        ['a', 'a_3', 'a_2']
    """
    taken = set(names)
    found: list[str] = []
    for name in names:
        own = name
        number = 2
        while own in found or (own != name and own in taken):
            own = f"{name}_{number}"
            number += 1
        found.append(own)
    return found


def _rows(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from batch


def _n_fitting(widths: Sequence[int], most_width: int | None) -> int:
    """Return how many columns fit, one at least."""
    if most_width is None:
        return len(widths)
    for n_columns in range(len(widths), 1, -1):
        if _total(widths[:n_columns]) <= most_width:
            return n_columns
    return min(1, len(widths))


def _room_of_last(widths: Sequence[int], most_width: int | None) -> int:
    """Return how many columns of the terminal the last cell of a line may take."""
    if most_width is None:
        return LONG + len(ELLIPSIS)
    *others, last = widths
    return max(last, most_width - _total([*others, 0]))


def _total(widths: Sequence[int]) -> int:
    n_joints = len(widths) - 1
    return sum(widths) + n_joints * len(_JOINT)


def _is_cut(value: Any) -> bool:
    text = whole(value)
    return "\n" in text or len(text) > MOST_WIDTH


def _one_cell(column: ResultColumn, value: Any) -> Iterator[str]:
    """Lay out a cell that stands alone, such as a statement or a plan: it is there to be read and copied."""
    name = printable(column.name)
    yield name
    yield "-" * width(name)
    yield from map(printable, whole(value).split("\n"))


def _tableau_lines(rows: Iterable[Row], aligned: Sequence[tuple[int, bool]]) -> Iterator[str]:
    for row in rows:
        yield _tableau_line([short_cell(value) for value in row], aligned)


def _tableau_line(cells: Sequence[str], aligned: Sequence[tuple[int, bool]]) -> str:
    parts = []
    for text, (wide, right) in zip(cells, aligned, strict=False):
        part = padded(text, wide, right=right)
        parts.append(part)
    return _JOINT.join(parts).rstrip()


def _csv_cell(value: Any) -> str:
    return "" if value is None else _quoted(whole(value))


def _quoted(text: str) -> str:
    if text and _NEEDS_QUOTES.isdisjoint(text):
        return text
    inner = text.replace('"', '""')
    return f'"{inner}"'


def _json_escaped(text: str) -> str:
    """Escape what JSON may hold as it is, but a terminal obeys."""
    if not has_unseen(text):
        return text
    return "".join(map(_character_escaped, text))


def _character_escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if has_unseen(character) else character


def _markdown_cell(value: Any) -> str:
    if value is None:
        return NULL
    lines = [printable(line) for line in whole(value).splitlines()]
    text = "<br>".join(lines)
    return text.replace("|", "\\|")


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
