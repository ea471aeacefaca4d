"""Where results are shown: on a stream or a terminal, in the pager where a table does not fit it; and the settings of the client."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ebbtide.errors import SqlError
from ebbtide.redaction import printable
from ebbtide.sql.results import Page, Result, ResultKind, Row
from ebbtide.sql.shell.execution import Console, Execution
from ebbtide.sql.shell.formats import Columns, Format, ResultFormat, csv, json_lines, markdown, table, vertical

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
