"""The client: what is its own it does itself, all else it gives to the session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ebbtide.errors import EbbtideError, SessionGoneError, SqlError
from ebbtide.sql import statements as ast
from ebbtide.sql.parsing import parse
from ebbtide.sql.reference import help_text
from ebbtide.sql.results import Result, ResultColumn, ResultKind
from ebbtide.sql.shell.background import BackgroundSession
from ebbtide.sql.shell.execution import Execution
from ebbtide.sql.shell.printing import Printer
from ebbtide.sql.shell.scripts import Script, ScriptFailedError, placed
from ebbtide.sql.shell.variables import substituted
from ebbtide.sql.shell.waiting import Waiting
from ebbtide.sql.tokens import Statement, keyword, split

OWN = {"SOURCE", "SET", "RESET", *ast.Client, "EXIT"}
"""How statements begin that may be the client's."""
_WATCH = re.compile(r"\\watch(?:\s+(\d+(?:\.\d+)?))?\s*;?")
WATCH_S = 2.0
"""How often `\\watch` asks, if it does not say."""


class Client:
    """Executes statements one after the other.

    Args:
        background: The session.
        printer: Shows results.
        waiting: Waits for them.
        variables: Name to value, of `${name}`.
    """

    def __init__(
        self,
        background: BackgroundSession,
        printer: Printer,
        waiting: Waiting,
        variables: Mapping[str, str],
    ) -> None:
        self.has_quit = False
        self._background = background
        self._printer = printer
        self._waiting = waiting
        self._variables = variables
        self._last_query: str | None = None

    def run(self, script: Script) -> None:
        """Execute a script, to its end or a QUIT.

        Raises:
            ScriptFailedError: a statement failed; those after it were not executed.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        where = script.name
        try:
            for statement in script.statements():
                where = f"{script.name}, line {statement.place.line}"
                self.execute(statement, script)
                if self.has_quit:
                    return
        except EbbtideError as error:
            raise ScriptFailedError(where, error) from error

    def typed(self, text: str) -> None:
        """Execute what was typed at the prompt.

        Args:
            text: Statements, or a line that begins with a backslash.

        Raises:
            EbbtideError: a statement failed; those after it were not executed.
            ScriptFailedError: it was a SOURCE, and a statement of that script failed.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        self._waiting.interrupts.forget()
        line = text.strip()
        if line.startswith("\\"):
            self._watch(line)
            return
        script = Script("typed", text, Path.cwd())
        for statement in script.statements():
            self.execute(statement, script)
            if self.has_quit:
                return

    def execute(self, statement: Statement, script: Script) -> None:
        """Execute one statement.

        Args:
            statement: It.
            script: Where it stands.

        Raises:
            EbbtideError: it failed.
            ScriptFailedError: it was a SOURCE, and a statement of that script failed.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        text = placed(statement, substituted(statement.text, self._variables))
        may_be_own = keyword(statement.tokens[0]) in OWN
        if may_be_own and self._did(parse(_one(text)), script):
            return
        result = self._ask(text, self._printer)
        if result.kind is ResultKind.ROWS:
            self._last_query = text

    def _watch(self, line: str) -> None:
        """Execute the last query again and again."""
        command = _WATCH.fullmatch(line)
        if command is None:
            raise SqlError.of(
                "There is no such command.",
                got=line,
                allowed="\\watch SECONDS",
            )
        if self._last_query is None:
            raise SqlError.of("There is no query to watch.", allowed="\\watch after a SELECT that returned rows")
        seconds = float(command[1] or WATCH_S)
        printer = Printer(self._printer.console, self._printer.settings)
        while True:
            printer.say(f"{datetime.now().astimezone():%H:%M:%S}, every {seconds:g} s")
            self._ask(self._last_query, printer)
            self._waiting.interrupts.sleep(seconds)

    def _did(self, parsed: ast.Parsed, script: Script) -> bool:
        """Do what a statement asks of the client; return whether it is the client's alone."""
        settings = self._printer.settings
        match parsed:
            case ast.Client.HELP:
                self._printer.console.say(help_text())
            case ast.Client.CLEAR:
                self._printer.console.clear()
            case ast.Client.QUIT:
                self.has_quit = True
            case ast.RunScript(file):
                self.run(script.nested(file))
            case ast.SetOption(key, None) if key in settings.values():
                self._show_setting(key)
            case ast.SetOption(key, str(value)) if key in settings.values():
                settings.set(key, value)
            case ast.Reset(key) if key in settings.values():
                settings.reset(key)
            case ast.SetOption(None):
                values = settings.values().items()
                self._printer.say("Of the client: " + ", ".join(f"{key} = {value}" for key, value in values))
                return False
            case ast.Reset(None):
                settings.reset()
                return False
            case _:
                return False
        return True

    def _show_setting(self, key: str) -> None:
        columns = (ResultColumn("key"), ResultColumn("value"))
        value = self._printer.settings.values()[key]
        self._printer.table(columns, [[key, value]])

    def _ask(self, text: str, printer: Printer) -> Result:
        """Let the session execute a statement, and show what comes of it."""
        session = self._waiting.until(self._background.get, "Opening the session")
        with Execution(session, text, self._waiting) as execution:
            try:
                return printer.show(execution)
            except KeyboardInterrupt:
                if not execution.end():
                    printer.say("The statement was asked to end and has not yet; it goes on behind the prompt.")
                raise
            except SessionGoneError:
                self._background.forget()
                printer.say("The next statement opens a new session: its settings are those that sessions begin with.")
                raise


def _one(text: str) -> Statement:
    """Return the statement of a text, with variables replaced; a variable may have made several of it."""
    found = split(text)
    if len(found) != 1:
        raise SqlError.of(
            "This is not one statement.",
            got=f"{len(found)} statements",
            allowed="one",
        )
    return found[0]
