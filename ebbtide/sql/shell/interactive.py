"""The prompt: it stands before the session does, and before what reads statements is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import completion_is_selected, has_focus
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.styles import Style

from ebbtide.sql.shell.background import BackgroundSession
from ebbtide.sql.shell.completion import SessionCompleter
from ebbtide.sql.shell.console import Console
from ebbtide.sql.shell.highlighting import STYLE, StatementLexer
from ebbtide.sql.shell.history import history_at

if TYPE_CHECKING:
    from ebbtide.sql.shell.client import Client

PROMPT = "ebbtide> "
CONTINUED = "      -> "
WELCOME = "Statements end with a semicolon. HELP lists them; QUIT leaves, jobs go on."
MENU_LINES = 6
BARE = ("HELP", "CLEAR", "QUIT", "EXIT")
"""What needs no semicolon."""


def interact(
    background: BackgroundSession,
    client: Callable[[], Client],
    console: Console,
    state_folder: Path,
    error_text: Callable[[Exception], str],
) -> None:
    """Ask for statements and execute them, until the user leaves.

    Args:
        background: The session; it is begun to be opened once the prompt stands.
        client: Returns what executes statements, the same each time.
        console: Where it writes.
        state_folder: Where the history is.
        error_text: Writes an error.
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
    r"""Return whether Enter executes what was typed so far.

    Example:
        >>> is_ready("SELECT 1"), is_ready("SELECT 1;"), is_ready("quit"), is_ready("\\watch 2")
        (False, True, True, True)
    """
    from ebbtide.sql.tokens import is_complete

    line = typed.strip()
    return line.upper() in BARE or line.startswith("\\") or is_complete(typed)


def _execute(
    client: Client,
    typed: str,
    console: Console,
    error_text: Callable[[Exception], str],
) -> bool:
    """Execute what was typed and print what went wrong; return whether the user leaves."""
    try:
        client.typed(typed)
    except KeyboardInterrupt:
        console.say("Cancelled.")
    except Exception as error:  # noqa: BLE001 - whatever a statement brings about, the shell goes on
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
    """Return what stands before a further line; before the rest of one that is too long: nothing."""
    return " " * width if wrap_count else CONTINUED


def _keys() -> KeyBindings:
    keys = KeyBindings()
    types = has_focus(DEFAULT_BUFFER)  # and does not search the history

    @keys.add("enter", filter=types & ~completion_is_selected)
    def enter(event: KeyPressEvent) -> None:
        """Execute what is complete; else begin a new line."""
        buffer = event.current_buffer
        if is_ready(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline()

    @keys.add("enter", filter=types & completion_is_selected)
    def take(event: KeyPressEvent) -> None:
        """Take the completion."""
        event.current_buffer.complete_state = None

    return keys
