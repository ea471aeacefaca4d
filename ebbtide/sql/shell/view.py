"""Rows on the whole screen: pages, a row, search, refresh; changes as they come."""

from __future__ import annotations

from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition, Filter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.styles import Style

from ebbtide.redaction import printable
from ebbtide.sql.results import Page, Result, ResultKind, Row
from ebbtide.sql.shell.console import Console
from ebbtide.sql.shell.execution import Execution
from ebbtide.sql.shell.feed import Feed
from ebbtide.sql.shell.formats import ResultFormat, tableau_width
from ebbtide.sql.shell.grid import Grid, Mode
from ebbtide.sql.shell.printing import Printer
from ebbtide.sql.shell.settings import ClientSettings

STYLE = Style.from_dict(
    {
        "header": "bold",
        "cursor": "reverse",
        "status": "reverse",
        "insert": "ansigreen",
        "update": "ansicyan",
        "retract": "ansibrightblack",
        "delete": "ansired",
    }
)
_LINES_AROUND = 5
"""Of a result that is printed: names, rule, count, an empty line and the prompt."""


class ScreenPrinter(Printer):
    """Prints results that fit the terminal; others are shown on the whole screen.

    Args:
        console: A terminal.
        settings: How.
    """

    def __init__(self, console: Console, settings: ClientSettings) -> None:
        super().__init__(console, settings)

    def rows(self, execution: Execution, result: Result) -> None:
        """Show the rows of a result."""
        if self.settings.result_format is not ResultFormat.TABLE:
            super().rows(execution, result)
            return
        first = self._first_pages(execution, result)
        if self._fits(result, first):
            self.lines(execution, result, first)
            return
        execution.stop_clock()
        feed = view(execution, result, first)
        self.say(feed.notice)
        self.say_rows(feed.execution, result)

    def _first_pages(self, execution: Execution, result: Result) -> list[Page]:
        """Read what shows whether a table fits; nothing of changes."""
        pages: list[Page] = []
        if result.kind is ResultKind.CHANGES:
            return pages
        for page in execution.pages(result):
            pages.append(page)
            if execution.n_rows > self.console.height:
                break
        return pages

    def _fits(self, result: Result, pages: list[Page]) -> bool:
        is_whole = bool(pages) and pages[-1].next is None
        if not is_whole:
            return False
        rows: list[Row] = []
        for page in pages:
            rows += page.rows
        height = len(rows) + _LINES_AROUND
        if height > self.console.height:
            return False
        width = tableau_width(result.columns, rows)
        return width <= self.console.width


def view(execution: Execution, result: Result, pages: list[Page]) -> Feed:
    """Show rows until the user has seen enough.

    Args:
        execution: The statement.
        result: Its columns.
        pages: Those that were read already.

    Returns:
        What was read; of the statement's last execution, if it was refreshed.

    Raises:
        EbbtideError: the statement failed.
    """
    application: Application[None] = Application(
        style=STYLE,
        full_screen=True,
        mouse_support=False,
    )
    feed = Feed(execution, result, pages, application.invalidate)
    grid = Grid(feed)

    def seen() -> StyleAndTextTuples:
        size = application.output.get_size()
        grid.height, grid.width = size.rows, size.columns
        parts: StyleAndTextTuples = []
        for line in grid.lines():
            parts += [*line, ("", "\n")]
        return parts[:-1]

    application.layout = Layout(
        Window(
            FormattedTextControl(seen),
            always_hide_cursor=True,
            wrap_lines=False,
        )
    )
    application.key_bindings = _keys(grid)
    feed.start()
    feed.want(application.output.get_size().rows * 2)
    try:
        application.run()
    finally:
        feed.stop()
        if feed.execution is not execution:
            feed.execution.end()
    if feed.error is not None:
        raise feed.error
    return feed


def _keys(grid: Grid) -> KeyBindings:
    keys = KeyBindings()
    searches = Condition(lambda: grid.mode is Mode.SEARCH)
    moves = ~searches
    _bind_moves(keys, grid, moves)
    _bind_search(keys, grid, searches)

    @keys.add("q", filter=moves)
    def quit_(event: KeyPressEvent) -> None:
        if grid.mode is Mode.ROW:
            grid.open_row()
        else:
            _exit(event)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def leave(event: KeyPressEvent) -> None:
        _exit(event)

    return keys


def _exit(event: KeyPressEvent) -> None:
    """End the view; keys that were typed before it was gone ask for that again."""
    if not event.app.is_done:
        event.app.exit()


def _bind_moves(keys: KeyBindings, grid: Grid, moves: Filter) -> None:
    actions = {
        "up": lambda: grid.move(-1),
        "down": lambda: grid.move(1),
        "k": lambda: grid.move(-1),
        "j": lambda: grid.move(1),
        "pageup": lambda: grid.move(-grid.page),
        "pagedown": lambda: grid.move(grid.page),
        " ": lambda: grid.move(grid.page),
        "home": grid.home,
        "g": grid.home,
        "end": grid.end,
        "G": grid.end,
        "left": lambda: grid.move_columns(-1),
        "right": lambda: grid.move_columns(1),
        "enter": grid.open_row,
        "/": grid.begin_search,
        "n": grid.search_next,
        "r": grid.refresh,
    }
    for key, action in actions.items():
        keys.add(key, filter=moves)(lambda event, action=action: action())


def _bind_search(keys: KeyBindings, grid: Grid, searches: Filter) -> None:
    @keys.add(Keys.Any, filter=searches)
    @keys.add(Keys.BracketedPaste, filter=searches)
    def type_(event: KeyPressEvent) -> None:
        grid.term += printable(event.data)

    @keys.add("backspace", filter=searches)
    def erase(event: KeyPressEvent) -> None:
        grid.term = grid.term[:-1]

    @keys.add("enter", filter=searches)
    def search(event: KeyPressEvent) -> None:
        grid.search()

    @keys.add("escape", filter=searches, eager=True)
    def give_up(event: KeyPressEvent) -> None:
        grid.mode = Mode.ROWS
