"""The prompt, with its history, colours and completions. It appears before the session is open and the parser is loaded."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import completion_is_selected, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.styles import Style
from pygments.lexers.sql import SqlLexer
from pygments.token import Keyword, Name, String

from ebbtide.errors import EbbtideError
from ebbtide.sql._reference import KEYWORDS
from ebbtide.sql._shell.execution import BackgroundSession, Console
from ebbtide.sql._shell.show import RESULT_FORMAT, TIMING, ResultFormat

if TYPE_CHECKING:
    from ebbtide.sql._shell.script import Client

PROMPT = "ebbtide> "
CONTINUED = "      -> "
WELCOME = "Statements end with a semicolon. HELP lists them; QUIT leaves, jobs continue."
MENU_LINES = 6
BARE = ("HELP", "CLEAR", "QUIT", "EXIT")
"""Statements that need no semicolon."""
HISTORY = Path("ebbtide") / "sql_history"
"""File of the history below the user's folder for state."""
OPENING_S = 5.0
"""Maximum wait of a completion, on its own thread, for a session that is being opened."""
STYLE = {
    "pygments.keyword": "ansiblue bold",
    "pygments.name.builtin": "ansicyan",
    "pygments.literal.string": "ansigreen",
    "pygments.literal.number": "ansimagenta",
    "pygments.comment": "ansibrightblack italic",
}
"""Colours of statements, by the names of the terminal's palette."""
_KEY = re.compile(r"\s*(?:SET|RESET)\s+([\w-]*)", re.IGNORECASE)
_VALUE = re.compile(r"\s*SET\s+(result-format|timing)\s*=\s*(\w*)", re.IGNORECASE)
_VALUES = {RESULT_FORMAT: [form.value for form in ResultFormat], TIMING: ["on", "off"]}


def interact(
    background: BackgroundSession,
    client: Callable[[], Client],
    console: Console,
    state_folder: Path,
    error_text: Callable[[Exception], str],
) -> None:
    """Read statements at the prompt and execute them, until the user leaves.

    Args:
        background: Session; its opening begins once the prompt is shown.
        client: Returns the client that executes statements, the same each time.
        console: Console for results.
        state_folder: Folder of the history.
        error_text: Returns the text of an error.
    """
    prompt = _prompt(background, history_at(state_folder))
    console.say(WELCOME)

    def first() -> None:
        asyncio.get_running_loop().call_soon(background.begin)

    before: Callable[[], None] | None = first
    has_quit = False
    while not has_quit:
        try:
            typed = prompt.prompt(PROMPT, pre_run=before)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        before = None
        if typed.strip():
            has_quit = _execute(client(), typed, console, error_text)


def is_ready(typed: str) -> bool:
    r"""Return whether Enter executes the input so far.

    Example:
        >>> is_ready("SELECT 1"), is_ready("SELECT 1;"), is_ready("quit"), is_ready("\\watch 2")
        (False, True, True, True)
    """
    from ebbtide.sql._tokens import is_complete

    line = typed.strip()
    return line.upper() in BARE or line.startswith("\\") or is_complete(typed)


def _execute(
    client: Client,
    typed: str,
    console: Console,
    error_text: Callable[[Exception], str],
) -> bool:
    """Execute the input and print its error; return whether the user leaves."""
    try:
        client.typed(typed)
    except KeyboardInterrupt:
        console.say("Cancelled.")
    except Exception as error:  # noqa: BLE001 - no error of a statement ends the shell
        console.error(error_text(error))
    return client.has_quit


def _prompt(background: BackgroundSession, history: History) -> PromptSession[str]:
    return PromptSession(
        multiline=True,
        prompt_continuation=_continuation,
        editing_mode=EditingMode.EMACS,
        lexer=PygmentsLexer(StatementLexer),
        style=Style.from_dict(STYLE),
        history=history,
        completer=SessionCompleter(background),
        complete_in_thread=True,
        complete_while_typing=False,
        reserve_space_for_menu=MENU_LINES,
        key_bindings=_keys(),
    )


def _continuation(width: int, line_number: int, wrap_count: int) -> str:
    """Return the prefix of a further line; spaces before the rest of a wrapped one."""
    return " " * width if wrap_count else CONTINUED


def _keys() -> KeyBindings:
    keys = KeyBindings()
    types = has_focus(DEFAULT_BUFFER)  # and does not search the history

    @keys.add("enter", filter=types & ~completion_is_selected)
    def enter(event: KeyPressEvent) -> None:
        """Execute a complete statement; else begin a new line."""
        buffer = event.current_buffer
        if is_ready(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    @keys.add("enter", filter=types & completion_is_selected)
    def take(event: KeyPressEvent) -> None:
        """Accept the completion."""
        event.current_buffer.complete_state = None

    return keys


class StatementLexer(SqlLexer):
    """Splits statements for their colours: the SQL of Pygments, our keywords, and Spark's names in backticks."""

    tokens: ClassVar[dict[str, Any]] = {
        **SqlLexer.tokens,
        "root": [(r"`(``|[^`])*`", Name), (r"'(\\.|''|[^'\\])*'", String.Single), *SqlLexer.tokens["root"]],
    }

    def get_tokens_unprocessed(self, text: str, stack: Any = ("root",)) -> Iterator[tuple[int, Any, str]]:
        """Yield offset, kind and text of each word."""
        words = super().get_tokens_unprocessed(text, stack)
        for offset, kind, word in words:
            is_keyword = kind is Name and word.upper() in KEYWORDS
            own_kind = Keyword if is_keyword else kind
            yield offset, own_kind, word


class SessionCompleter(Completer):
    """Completes words by the session, and the settings of the client.

    Args:
        background: Session that completes words.
    """

    def __init__(self, background: BackgroundSession) -> None:
        self._background = background

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor; none of the session if it cannot be opened."""
        offset = document.cursor_position
        yield from _own(document.text_before_cursor)
        try:
            session = self._background.get(OPENING_S)
            found = [] if session is None else session.complete(document.text, offset)
        except EbbtideError:  # the next statement raises it
            return
        for completion in found:
            start = completion.start - offset
            yield Completion(
                completion.text,
                start_position=start,
                display_meta=completion.kind.value,
            )


def _own(text: str) -> Iterator[Completion]:
    """Yield the settings of the client, or their values, after SET and RESET."""
    key, value = _KEY.fullmatch(text), _VALUE.fullmatch(text)
    if key is not None:
        typed, choices = key[1], list(_VALUES)
    elif value is not None:
        typed, choices = value[2], _VALUES[value[1].lower()]
    else:
        return
    for choice in choices:
        if choice.startswith(typed.lower()):
            yield Completion(
                choice,
                start_position=-len(typed),
                display_meta="setting of the client",
            )


class MaskedHistory(FileHistory):
    """A history file in which credentials are masked; this session still recalls its own input unmasked."""

    def store_string(self, string: str) -> None:
        """Write an input to the file."""
        from ebbtide.sql._masking import masked  # the prompt is shown before the parser is loaded

        kept = masked(string)
        if kept is not None:
            super().store_string(kept)


def history_at(state_folder: Path) -> History:
    """Return the history below a folder, in a file that only its owner reads; in memory if none can be written."""
    file = state_folder / HISTORY
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return MaskedHistory(str(file))


def state_folder() -> Path:
    """Return the user's folder for the state of programs, by the XDG specification."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
