"""Results as lines of text, printed on a stream, a terminal, or in the pager where a table does not fit the terminal.

A format is a function of columns and batches of rows; it yields the lines of each batch as it comes. It escapes control characters
in values and keeps NULL distinct from an empty text; cli-helpers lays tables out, as in pgcli.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from ebbtide.errors import MissingExtraError
from ebbtide.lines import lines_of
from ebbtide.redaction import has_unseen, printable
from ebbtide.sql._results import Page, Result, ResultColumn, ResultKind, Row
from ebbtide.sql._settings import Setting, Settings
from ebbtide.sql._shell.execution import Console, Execution

Columns = Sequence[ResultColumn]
Batches = Iterable[list[Row]]
Format = Callable[[Columns, Batches], Iterator[str]]

NULL = "NULL"
MOST_CHARACTERS = 400
"""Maximum length of a value in a text table; a longer one is cut."""
LONG = 40
"""Minimum length of a single value that is shown without a box."""
ELLIPSIS = "…"
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "long", "integer", "short", "byte")
_NEEDS_QUOTES = frozenset(',"\r\n')


class ResultFormat(StrEnum):
    """Format of rows."""

    TABLE = "table"
    TABLEAU = "tableau"
    VERTICAL = "vertical"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"

    @property
    def is_data(self) -> bool:
        """True if programs read the rows: messages for people then go to standard error."""
        return self in {ResultFormat.CSV, ResultFormat.JSON, ResultFormat.MARKDOWN}


def table(columns: Columns, batches: Batches) -> Iterator[str]:
    """Lay out rows in a box; a single long value as its own lines without a box, so that it can be copied."""
    remaining: Iterator[list[Row]] = filter(None, batches)
    known = [next(remaining, [])]
    [first] = known
    is_single = len(columns) == len(first) == 1
    if is_single and _is_long(first[0][0]):
        known += list(islice(remaining, 1))
        if len(known) == 1:
            yield from _one_cell(columns[0], first[0][0])
            return
    yield from _laid_out("psql", columns, chain(known, remaining), short_cell)


def markdown(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write rows as a table of Markdown."""
    return _laid_out("pipe", columns, batches, _markdown_cell)


def vertical(columns: Columns, batches: Batches) -> Iterator[str]:
    """Lay out each row as a line for each column, with whole values."""
    names = [printable(column.name) for column in columns]
    lay_out = _library()
    rows = chain.from_iterable(batches)
    for number, row in enumerate(rows, start=1):
        cells = [cell(value) for value in row]
        title = f"{number}. row"
        yield from lay_out([cells], names, "vertical", sep_title=title)


def csv(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write comma-separated values below a line of names; NULL is empty, an empty text is a pair of quotes.

    Python's `csv` cannot distinguish these two before Python 3.12.
    """
    names = [_quoted(column.name) for column in columns]
    yield ",".join(names)
    for row in chain.from_iterable(batches):
        cells = map(_csv_cell, row)
        yield ",".join(cells)


def json_lines(columns: Columns, batches: Batches) -> Iterator[str]:
    """Write each row as a JSON object; columns of one name are numbered after the first."""
    names = unique([column.name for column in columns])
    for row in chain.from_iterable(batches):
        values = dict(zip(names, row, strict=True))
        text = json.dumps(values, ensure_ascii=False)
        if has_unseen(text):
            text = "".join(map(_escaped, text))
        yield text


def whole(value: Any) -> str:
    """Return a whole value as text; an empty text for NULL.

    Example:
        >>> whole(True), whole([1, "ä"]), whole(None)
        ('true', '[1, "ä"]', '')
    """
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cell(value: Any) -> str:
    """Return a value for people: NULL by name, control characters escaped."""
    return NULL if value is None else printable(whole(value))


def short_cell(value: Any) -> str:
    """Return a value for people, cut if it is long."""
    text = whole(value)
    if len(text) <= MOST_CHARACTERS:
        return cell(value)
    return printable(text[:MOST_CHARACTERS]) + ELLIPSIS


def unique(names: Sequence[str]) -> list[str]:
    """Return names with numbers behind repeated ones, so that all differ.

    Example:
        >>> unique(["a", "a", "a_2"])
        ['a', 'a_3', 'a_2']
    """
    # A number that another column has as its own name is passed over too.
    found: list[str] = []
    for name in names:
        own, number = name, 2
        while own in found or (own != name and own in names):
            own = f"{name}_{number}"
            number += 1
        found.append(own)
    return found


def _laid_out(
    style: str,
    columns: Columns,
    batches: Batches,
    written: Callable[[Any], str],
) -> Iterator[str]:
    """Yield the lines of a table batch by batch, each column as wide as the names and the first batch need.

    Args:
        style: Style of the library.
        columns: Columns of the table.
        batches: Rows of the table.
        written: Returns the text of a value.
    """
    # The library lays out whole tables. A later batch is laid out below the names and a row as wide as the first table's columns;
    # the lines above its own rows are dropped. A longer value makes its own batch wider.
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
    """Return the function of cli-helpers that lays rows out as lines; loaded with the first table."""
    try:
        from cli_helpers.tabular_output import TabularOutputFormatter
    except ModuleNotFoundError as missing:
        raise MissingExtraError.of_extra("sql", "A text table") from missing
    formatter = TabularOutputFormatter()

    def lay_out(rows: list[list[str]], names: list[str], style: str, **options: Any) -> list[str]:
        blocks = formatter.format_output(
            rows,
            names,
            style,
            column_types=[str] * len(names),
            **options,
        )
        return [line for block in blocks for line in block.split("\n")]

    return lay_out


def _one_cell(column: ResultColumn, value: Any) -> Iterator[str]:
    name = printable(column.name)
    yield name
    yield "-" * len(name)
    for line in whole(value).split("\n"):
        yield printable(line)


def _is_number(column: ResultColumn) -> bool:
    """Return whether the cells of a column are aligned right."""
    return column.type.lower().partition("(")[0] in _NUMBERS


def _is_long(value: Any) -> bool:
    text = whole(value)
    return "\n" in text or len(text) > LONG


def _csv_cell(value: Any) -> str:
    return "" if value is None else _quoted(whole(value))


def _quoted(text: str) -> str:
    if text and _NEEDS_QUOTES.isdisjoint(text):
        return text
    inner = text.replace('"', '""')
    return f'"{inner}"'


def _escaped(character: str) -> str:
    """Return a character as JSON; a control character as an escape."""
    return f"\\u{ord(character):04x}" if has_unseen(character) else character


def _markdown_cell(value: Any) -> str:
    if value is None:
        return NULL
    lines = map(printable, lines_of(whole(value)))
    return "<br>".join(lines).replace("|", "\\|")


RESULT_FORMAT, TIMING = "result-format", "timing"
LINES_AROUND = 2
"""Lines below a printed table: the number of its rows, and the prompt."""
LESS = "-SRX"
"""Options of `less` if the user has none: long lines are cut, not wrapped, and stay on the screen."""
COLOURS = {"+I": 32, "+U": 36, "-U": 90, "-D": 31}
"""Colours of changes on a terminal, by kind."""
_SETTINGS = {
    RESULT_FORMAT: Setting.choice(*(form.value for form in ResultFormat)),
    TIMING: Setting.choice("off", "on"),
}
_SYNONYMS = {"true": "on", "false": "off"}


class ClientSettings(Settings):
    """Settings of the client, changed by SET and RESET like the session's.

    Args:
        first_format: Initial `result-format`.
    """

    def __init__(self, first_format: ResultFormat = ResultFormat.TABLE) -> None:
        super().__init__({RESULT_FORMAT: first_format.value}, _SETTINGS, takes_spark=False)

    @property
    def result_format(self) -> ResultFormat:
        """Format of rows."""
        return ResultFormat(self[RESULT_FORMAT])

    @property
    def timing(self) -> bool:
        """True if the time of each statement is printed."""
        return self[TIMING] == "on"

    def set(self, key: str, value: str) -> None:
        """Change a setting; the case of the value does not matter.

        Raises:
            SqlError: the setting does not take the value.
        """
        word = value.lower()
        super().set(key, _SYNONYMS.get(word, word))


class Printer:
    """Prints results.

    Args:
        console: Console to print on.
        settings: Settings of the client.
        pages: Whether tables that do not fit the terminal go to the pager, since a user reads them.
    """

    def __init__(
        self,
        console: Console,
        settings: ClientSettings,
        *,
        pages: bool = False,
    ) -> None:
        self.console = console
        self.settings = settings
        self.pages = pages

    def show(self, execution: Execution) -> Result:
        """Wait for a statement's result and print all of it.

        Raises:
            EbbtideError: the statement failed.
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
        """Write text for people, apart from data."""
        self.console.say(text, beside_data=self.settings.result_format.is_data)

    def table(self, columns: Columns, rows: list[Row]) -> None:
        """Print rows of the client itself."""
        self._put(self._format(ResultKind.ROWS)(columns, [rows]))

    def _rows(self, execution: Execution, result: Result) -> None:
        """Print the rows of a result as they come, or in the pager."""
        pages = execution.pages(result)
        lay_out = self._format(result.kind)
        is_static = result.kind is ResultKind.ROWS
        if not (self.pages and is_static and self.settings.result_format is ResultFormat.TABLE):
            self._put(lay_out(result.columns, self._batches(pages)))
            return
        # Whether a table fits the terminal shows once a screen of rows was read. What was read is printed at once if it fits; else it
        # goes to the pager, which then reads the other pages as the user scrolls.
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
        """Print the number of rows, unless programs read them, and the position after changes."""
        what = "change" if result.kind is ResultKind.CHANGES else "row"
        if execution.n_rows != 1:
            what += "s"
        if not execution.is_whole:
            what += " read"
        if not self.settings.result_format.is_data:
            self.say(f"({execution.n_rows:,} {what})")
        if execution.position is not None:
            self.say(f"Continue from here: EMIT CHANGES FROM '{execution.position}'")

    def _put(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.console.put(line)
        self.console.flush()

    def _batches(self, pages: Iterable[Page]) -> Iterator[list[Row]]:
        """Yield the rows of pages; the output of a page is flushed before the wait for the next."""
        for page in pages:
            yield page.rows
            self.console.flush()
            self.say(page.notice)

    def _format(self, kind: ResultKind) -> Format:
        match self.settings.result_format:
            case ResultFormat.VERTICAL:
                return vertical
            case ResultFormat.CSV:  # control characters are escaped on a terminal only
                return _through(printable, csv) if self.console.is_terminal else csv
            case ResultFormat.JSON:
                return json_lines
            case ResultFormat.MARKDOWN:
                return markdown
            case ResultFormat.TABLE | ResultFormat.TABLEAU:
                is_coloured = self.pages and kind is ResultKind.CHANGES
                return _through(_coloured, table) if is_coloured else table


def _through(change: Callable[[str], str], lay_out: Format) -> Format:
    """Return a format that applies a function to each line of another."""
    return lambda columns, batches: map(change, lay_out(columns, batches))


def _first_pages(execution: Execution, pages: Iterator[Page]) -> list[Page]:
    """Read pages until there are more rows than a terminal shows."""
    height = shutil.get_terminal_size().lines
    found: list[Page] = []
    for page in pages:
        found.append(page)
        if execution.n_rows > height:
            break
    return found


def _fits(lines: Sequence[str]) -> bool:
    """Return whether lines fit the terminal."""
    from prompt_toolkit.utils import get_cwidth

    width, height = shutil.get_terminal_size()
    is_low = len(lines) + LINES_AROUND <= height
    return is_low and max(map(get_cwidth, lines)) <= width


def _page(lines: Iterable[str]) -> None:
    """Show lines in the user's pager, $PAGER or else `less`, as fast as it reads them."""
    import click

    os.environ.setdefault("LESS", LESS)
    click.echo_via_pager(f"{line}\n" for line in lines)


def _coloured(line: str) -> str:
    """Colour a line of a table by the operation in its first column."""
    colour = COLOURS.get(line[2:4])
    return line if colour is None else f"\x1b[{colour}m{line}\x1b[0m"
