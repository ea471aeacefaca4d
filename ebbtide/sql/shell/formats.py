"""Rows as lines of text: tables as pgcli prints them, CSV, JSON, Markdown.

A format is a function of columns and batches of rows; lines come as the batches do. Values are escaped here, so that a terminal
obeys none of them, and NULL is distinct from an empty text; cli-helpers lays them out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

from ebbtide.errors import MissingExtraError
from ebbtide.redaction import has_unseen, printable
from ebbtide.sql.results import ResultColumn, Row

Columns = Sequence[ResultColumn]
Batches = Iterable[list[Row]]
Format = Callable[[Columns, Batches], Iterator[str]]

NULL = "NULL"
MOST_CHARACTERS = 400
"""Of a value in a text table; a longer one is cut."""
LONG = 40
"""Characters of a value that is shown without a box where it stands alone."""
ELLIPSIS = "…"
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "long", "integer", "short", "byte")
_NEEDS_QUOTES = frozenset(',"\r\n')


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


def table(columns: Columns, batches: Batches) -> Iterator[str]:
    """Lay out rows in a box; a single long value without one, its lines as lines: it is there to be read and copied."""
    remaining: Iterator[list[Row]] = filter(None, batches)
    first = next(remaining, [])
    if len(columns) == len(first) == 1 and _is_long(first[0][0]):
        second = next(remaining, None)
        if second is None:
            yield from _one_cell(columns[0], first[0][0])
            return
        remaining = chain([second], remaining)
    yield from _laid_out("psql", columns, chain([first], remaining), short_cell)


def markdown(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write a table of Markdown."""
    return _laid_out("pipe", columns, batches, _markdown_cell)


def vertical(columns: Columns, batches: Batches) -> Iterator[str]:
    """Lay out each row as a line a column, whole."""
    names = [printable(column.name) for column in columns]
    lay_out = _library()
    for number, row in enumerate(chain.from_iterable(batches), start=1):
        cells = [cell(value) for value in row]
        yield from lay_out([cells], names, "vertical", sep_title=f"{number}. row")


def csv(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write comma-separated values under their names; NULL is nothing, an empty text is a pair of quotes.

    Not by Python's `csv`: before Python 3.12 it cannot write these two differently.
    """
    names = [_quoted(column.name) for column in columns]
    yield ",".join(names)
    for row in chain.from_iterable(batches):
        cells = ["" if value is None else _quoted(whole(value)) for value in row]
        yield ",".join(cells)


def json_lines(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write a JSON object a row; of several columns of one name all but the first are numbered."""
    names = unique([column.name for column in columns])
    for row in chain.from_iterable(batches):
        values = dict(zip(names, row, strict=True))
        text = json.dumps(values, ensure_ascii=False)
        yield "".join(map(_escaped, text)) if has_unseen(text) else text


def whole(value: Any) -> str:
    """Return a value as text, not cut; nothing for NULL.

    Example:
        >>> whole(True), whole([1, "ä"]), whole(None)
        ('true', '[1, "ä"]', '')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Return a value as people see it: NULL by name, and no character that a terminal obeys."""
    return NULL if value is None else printable(whole(value))


def short_cell(value: Any) -> str:
    """Return a value as people see it where there is no room for all of a long one."""
    text = whole(value)
    if len(text) <= MOST_CHARACTERS:
        return cell(value)
    return printable(text[:MOST_CHARACTERS]) + ELLIPSIS


def unique(names: Sequence[str]) -> list[str]:
    """Return names that differ.

    Example:
        >>> unique(["a", "a", "a_2"])
        ['a', 'a_3', 'a_2']
    """
    found: list[str] = []
    for name in names:
        own, number = name, 2
        while own in found or (own != name and own in names):
            own = f"{name}_{number}"
            number += 1
        found.append(own)
    return found


def _laid_out(style: str, columns: Columns, batches: Batches, written: Callable[[Any], str]) -> Iterator[str]:
    """Yield the lines of a table batch by batch, each column as wide as the names and the first batch need.

    The library lays out whole tables. A later batch is one more table, with a row as wide as the first table's columns on top of
    it; of that only the rows behind are kept. A longer value makes its own batch wider.
    """
    lay_out = _library()
    n_above, n_below = (3, 1) if style == "psql" else (2, 0)
    names = [printable(written(column.name)) for column in columns]
    sides = ["right" if _is_number(column) else "left" for column in columns]
    widest: list[list[str]] = []
    below: list[str] = []
    for batch in batches:
        rows = [*widest, *([written(value) for value in row] for row in batch)]
        lines = lay_out(
            rows,
            names,
            style,
            colalign=sides,
            disable_numparse=True,
            preserve_whitespace=True,
            max_field_width=None,
        )
        end = len(lines) - n_below
        yield from lines[n_above + 1 : end] if widest else lines[:end]
        below = lines[end:]
        rules = re.findall("[-:]+", lines[n_above - 1])
        widest = widest or [["x" * (len(rule) - 2) for rule in rules]]
    yield from below


def _library() -> Callable[..., list[str]]:
    """Return cli-helpers' function that lays rows out as lines; loaded with the first table."""
    try:
        from cli_helpers.tabular_output import TabularOutputFormatter
    except ModuleNotFoundError as missing:
        raise MissingExtraError.of_extra("sql", "A text table") from missing
    formatter = TabularOutputFormatter()

    def lay_out(rows: list[list[str]], names: list[str], style: str, **options: Any) -> list[str]:
        blocks = formatter.format_output(rows, names, style, column_types=[str] * len(names), **options)
        return [line for block in blocks for line in block.split("\n")]

    return lay_out


def _one_cell(column: ResultColumn, value: Any) -> Iterator[str]:
    name = printable(column.name)
    yield name
    yield "-" * len(name)
    for line in whole(value).split("\n"):
        yield printable(line)


def _is_number(column: ResultColumn) -> bool:
    """Return whether a column's cells stand right."""
    return column.type.lower().partition("(")[0] in _NUMBERS


def _is_long(value: Any) -> bool:
    text = whole(value)
    return "\n" in text or len(text) > LONG


def _quoted(text: str) -> str:
    if text and _NEEDS_QUOTES.isdisjoint(text):
        return text
    inner = text.replace('"', '""')
    return f'"{inner}"'


def _escaped(character: str) -> str:
    """Escape what JSON may hold as it is, but a terminal obeys."""
    return f"\\u{ord(character):04x}" if has_unseen(character) else character


def _markdown_cell(value: Any) -> str:
    if value is None:
        return NULL
    lines = map(printable, whole(value).splitlines())
    return "<br>".join(lines).replace("|", "\\|")
