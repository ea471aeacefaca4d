"""Results as lines: to a file, a pipe, or a terminal where they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from ebbtide.redaction import printable
from ebbtide.sql.results import Page, Result, ResultColumn, ResultKind, Row
from ebbtide.sql.shell import formats
from ebbtide.sql.shell.console import Console
from ebbtide.sql.shell.execution import Execution
from ebbtide.sql.shell.formats import Format, ResultFormat
from ebbtide.sql.shell.settings import ClientSettings


class Printer:
    """Prints results.

    Args:
        console: Where.
        settings: How.
    """

    def __init__(self, console: Console, settings: ClientSettings) -> None:
        self.console = console
        self.settings = settings

    def show(self, execution: Execution) -> Result:
        """Wait for a statement's result and print all of it.

        Raises:
            EbbtideError: it failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        result = execution.result()
        if result.kind is not ResultKind.DONE:
            self.rows(execution, result)
        self.say(result.message)
        if self.settings.timing:
            self.say(f"Time: {execution.seconds:.3f} s")
        return result

    def rows(self, execution: Execution, result: Result) -> None:
        """Print the rows of a result as they come."""
        self.lines(execution, result, execution.pages(result))

    def lines(
        self,
        execution: Execution,
        result: Result,
        pages: Iterable[Page],
    ) -> None:
        """Print pages as lines, and how many rows they were."""
        batches = self._batches(pages)
        try:
            self._put(result.columns, batches)
        except KeyboardInterrupt:
            self.say_position(execution)
            raise
        self.say_rows(execution, result)

    def say_rows(self, execution: Execution, result: Result) -> None:
        """Say how many rows there were, where people read them, and where changes can be taken up again."""
        what = "change" if result.kind is ResultKind.CHANGES else "row"
        if execution.n_rows != 1:
            what += "s"
        if not execution.is_whole:
            what += " read"
        if not self.settings.result_format.is_data:
            self.say(f"({execution.n_rows:,} {what})")
        self.say_position(execution)

    def say_position(self, execution: Execution) -> None:
        """Say where changes can be taken up again, if they were read."""
        if execution.position is not None:
            self.say(f"Go on from here: EMIT CHANGES FROM '{execution.position}'")

    def say(self, text: str) -> None:
        """Write what is for people, not among data."""
        self.console.say(text, beside_data=self.settings.result_format.is_data)

    def table(self, columns: tuple[ResultColumn, ...], rows: list[Row]) -> None:
        """Print rows that are the client's own."""
        self._put(columns, [rows])

    def _put(self, columns: tuple[ResultColumn, ...], batches: Iterable[list[Row]]) -> None:
        for line in self._format()(columns, batches):
            self.console.put(line)
        self.console.flush()

    def _batches(self, pages: Iterable[Page]) -> Iterator[list[Row]]:
        """Yield the rows of pages; what was printed of one is seen before the next is waited for."""
        for page in pages:
            yield page.rows
            self.console.flush()
            self.say(page.notice)

    def _format(self) -> Format:
        is_terminal = self.console.is_terminal
        match self.settings.result_format:
            case ResultFormat.VERTICAL:
                return formats.vertical
            case ResultFormat.CSV:
                return _seen_csv if is_terminal else formats.csv
            case ResultFormat.JSON:
                return formats.json_lines
            case ResultFormat.MARKDOWN:
                return formats.markdown
            case ResultFormat.TABLE | ResultFormat.TABLEAU:
                return partial(formats.tableau, most_width=self.console.width if is_terminal else None)


def _seen_csv(columns: formats.Columns, batches: formats.Batches) -> Iterator[str]:
    """Write CSV to a terminal, which obeys some characters; elsewhere they stay as they are."""
    return map(printable, formats.csv(columns, batches))
