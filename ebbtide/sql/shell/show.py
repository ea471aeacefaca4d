"""Results as lines of text, and where they are shown: on a stream or a terminal, in the pager where a table does not fit it.

A format is a function of columns and batches of rows; lines come as the batches do. Values are escaped here, so that a terminal
obeys none of them, and NULL is distinct from an empty text; cli-helpers lays tables out, as in pgcli.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from ebbtide.errors import MissingExtraError, SqlError
from ebbtide.redaction import has_unseen, printable
from ebbtide.sql.results import Page, Result, ResultColumn, ResultKind, Row
from ebbtide.sql.shell.execution import Console, Execution

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
        """True if programs read it: messages for people then go to standard error."""
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


RESULT_FORMAT, TIMING = "result-format", "timing"
LINES_AROUND = 2
"""Of a table that is printed: how many rows it has, and the prompt."""
LESS = "-SRX"
"""Options of `less` if the user has none: long lines are cut, not wrapped, and stay on the screen."""
COLOURS = {"+I": 32, "+U": 36, "-U": 90, "-D": 31}
"""Of changes on a terminal, by what they do."""
_SWITCH = {"on": True, "off": False, "true": True, "false": False}


@dataclass
class ClientSettings:
    """Settings of the client, changed by SET and RESET beside the session's.

    Args:
        first_format: What `result-format` is at the beginning, and after RESET.
    """

    first_format: ResultFormat = ResultFormat.TABLE

    def __post_init__(self) -> None:
        self.reset()

    def values(self) -> dict[str, str]:
        """Return all of them."""
        return {RESULT_FORMAT: self.result_format.value, TIMING: "on" if self.timing else "off"}

    def set(self, key: str, value: str) -> None:
        """Change one.

        Raises:
            SqlError: it does not take the value.
        """
        name = value.lower()
        if key == RESULT_FORMAT and name in list(ResultFormat):
            self.result_format = ResultFormat(name)
        elif key == TIMING and name in _SWITCH:
            self.timing = _SWITCH[name]
        else:
            allowed = list(ResultFormat) if key == RESULT_FORMAT else ["on", "off"]
            raise SqlError.of(f"The setting '{key}' has no such value.", got=value, allowed=", ".join(allowed))

    def reset(self, key: str | None = None) -> None:
        """Put one, or all, back to what it was at the beginning."""
        if key in {RESULT_FORMAT, None}:
            self.result_format = self.first_format
        if key in {TIMING, None}:
            self.timing = False


class Printer:
    """Prints results.

    Args:
        console: Where.
        settings: How.
        pages: A user looks: tables that do not fit the terminal go to the pager.
    """

    def __init__(self, console: Console, settings: ClientSettings, *, pages: bool = False) -> None:
        self.console = console
        self.settings = settings
        self.pages = pages

    def show(self, execution: Execution) -> Result:
        """Wait for a statement's result and print all of it.

        Raises:
            EbbtideError: it failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        result = execution.result()
        if result.kind is not ResultKind.DONE:
            try:
                self._rows(execution, result)
            except KeyboardInterrupt:
                self._say_rows(execution, result)
                raise
            self._say_rows(execution, result)
        self.say(result.message)
        if self.settings.timing:
            self.say(f"Time: {execution.seconds:.3f} s")
        return result

    def say(self, text: str) -> None:
        """Write what is for people, not among data."""
        self.console.say(text, beside_data=self.settings.result_format.is_data)

    def table(self, columns: Columns, rows: list[Row]) -> None:
        """Print rows that are the client's own."""
        self._put(self._format(ResultKind.ROWS)(columns, [rows]))

    def _rows(self, execution: Execution, result: Result) -> None:
        """Print the rows of a result as they come, or give them to the pager."""
        pages = execution.pages(result)
        lay_out = self._format(result.kind)
        is_static = result.kind is ResultKind.ROWS
        if not (self.pages and is_static and self.settings.result_format is ResultFormat.TABLE):
            self._put(lay_out(result.columns, self._batches(pages)))
            return
        first = _first_pages(execution, pages)
        lines = lay_out(result.columns, [page.rows for page in first]) if execution.is_whole else iter(())
        seen = list(lines)
        if seen and _fits(seen):
            self._put(seen)
        else:
            execution.stop_clock()
            rows = (page.rows for page in chain(first, pages))
            _page(lay_out(result.columns, rows))
        self.say(" ".join(page.notice for page in first if page.notice))

    def _say_rows(self, execution: Execution, result: Result) -> None:
        """Say how many rows there were, where people read them, and where changes can be taken up again."""
        what = "change" if result.kind is ResultKind.CHANGES else "row"
        if execution.n_rows != 1:
            what += "s"
        if not execution.is_whole:
            what += " read"
        if not self.settings.result_format.is_data:
            self.say(f"({execution.n_rows:,} {what})")
        if execution.position is not None:
            self.say(f"Go on from here: EMIT CHANGES FROM '{execution.position}'")

    def _put(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.console.put(line)
        self.console.flush()

    def _batches(self, pages: Iterable[Page]) -> Iterator[list[Row]]:
        """Yield the rows of pages; what was printed of one is seen before the next is waited for."""
        for page in pages:
            yield page.rows
            self.console.flush()
            self.say(page.notice)

    def _format(self, kind: ResultKind) -> Format:
        match self.settings.result_format:
            case ResultFormat.VERTICAL:
                return vertical
            case ResultFormat.CSV:  # a terminal obeys some characters; elsewhere they stay as they are
                return _through(printable, csv) if self.console.is_terminal else csv
            case ResultFormat.JSON:
                return json_lines
            case ResultFormat.MARKDOWN:
                return markdown
            case ResultFormat.TABLE | ResultFormat.TABLEAU:
                is_coloured = self.pages and kind is ResultKind.CHANGES
                return _through(_coloured, table) if is_coloured else table


def _through(change: Callable[[str], str], lay_out: Format) -> Format:
    """Return a format each of whose lines is changed."""
    return lambda columns, batches: map(change, lay_out(columns, batches))


def _first_pages(execution: Execution, pages: Iterator[Page]) -> list[Page]:
    """Read what shows whether a table fits the terminal."""
    found: list[Page] = []
    for page in pages:
        found.append(page)
        if execution.n_rows > shutil.get_terminal_size().lines:
            break
    return found


def _fits(lines: Sequence[str]) -> bool:
    """Return whether lines fit the terminal."""
    from prompt_toolkit.utils import get_cwidth

    columns, height = shutil.get_terminal_size()
    return len(lines) + LINES_AROUND <= height and max(map(get_cwidth, lines)) <= columns


def _page(lines: Iterable[str]) -> None:
    """Give lines to the user's pager, as it takes them: $PAGER, else `less`."""
    import click

    os.environ.setdefault("LESS", LESS)
    click.echo_via_pager(f"{line}\n" for line in lines)


def _coloured(line: str) -> str:
    """Colour a line of a table by the operation in its first column."""
    colour = COLOURS.get(line[2:4])
    return line if colour is None else f"\x1b[{colour}m{line}\x1b[0m"
