"""Executes the statements of a text in order: the client's own here, the rest in the session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ebbtide.errors import ConfigError, EbbtideError, SessionGoneError, SqlError
from ebbtide.sql import _statements as ast
from ebbtide.sql._parsing import parse, single
from ebbtide.sql._reference import help_text
from ebbtide.sql._results import Result, ResultColumn, ResultKind
from ebbtide.sql._shell.execution import BackgroundSession, Execution, Waiting
from ebbtide.sql._shell.show import Printer
from ebbtide.sql._tokens import Statement, keyword, split

OWN = {"SOURCE", "SET", "RESET", *ast.Client, "EXIT"}
"""First words of statements that may be the client's."""
WATCH_S = 2.0
"""Default interval of `\\watch`."""
MOST_NESTED = 16
"""Maximum depth of files that SOURCE reads within each other: more is a circle."""
_WATCH = re.compile(r"\\watch(?:\s+(\d+(?:\.\d+)?))?\s*;?")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")


@dataclass(frozen=True)
class Script:
    """A text of statements: a file, an argument, standard input, or input at the prompt.

    Args:
        name: Name for people, such as the file's.
        text: Text of the statements.
        folder: Base folder of relative file names in it.
        depth: Number of scripts around it.
    """

    name: str
    text: str
    folder: Path
    depth: int = 0

    @classmethod
    def read(cls, file: Path, depth: int = 0) -> Script:
        """Read a file.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError.of(
                f"The script '{file}' cannot be read.", got=str(error), allowed="a text file in UTF-8"
            ) from error
        return cls(str(file), text, file.parent, depth)

    def nested(self, file: str) -> Script:
        """Read a file that this script names.

        Raises:
            SqlError: the scripts are nested too deep.
            ConfigError: the file cannot be read.
        """
        if self.depth == MOST_NESTED:
            raise SqlError.of(
                f"SOURCE '{file}' is nested too deep.",
                allowed=f"{MOST_NESTED} scripts within each other",
                next_step="A script must not name itself, or one that names it.",
            )
        return Script.read(self.folder / Path(file).expanduser(), self.depth + 1)

    @staticmethod
    def variables(definitions: Iterable[str]) -> dict[str, str]:
        """Read definitions of variables, `name=value`.

        Raises:
            ConfigError: one does not have this form, or a name occurs twice.
        """
        found: dict[str, str] = {}
        for definition in definitions:
            name, equals, value = definition.partition("=")
            if not equals or not _NAME.fullmatch(name):
                raise ConfigError.of(
                    "-D defines no variable.",
                    got=definition,
                    allowed="name=value",
                )
            if name in found:
                raise ConfigError.of(
                    f"-D defines the variable '{name}' twice.",
                    allowed="each once",
                )
            found[name] = value
        return found


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Replace `${name}` in a statement.

    Raises:
        SqlError: one is not defined.

    Example:
        >>> substituted("SELECT * FROM ${table}", {"table": "orders"})
        'SELECT * FROM orders'
    """

    def value(reference: re.Match[str]) -> str:
        name = reference[1]
        if name not in values:
            raise SqlError.of(
                f"The variable '{name}' is not defined.",
                allowed=", ".join(values) or "none: no variable is defined",
                next_step=f"Define it: -D {name}=VALUE.",
            )
        return values[name]

    return _REFERENCE.sub(value, text)


class Client:
    """Executes statements one after the other.

    Args:
        background: Session that executes statements.
        printer: Shows results.
        waiting: Waits for results.
        values: Values of variables, by name.
    """

    def __init__(
        self,
        background: BackgroundSession,
        printer: Printer,
        waiting: Waiting,
        values: Mapping[str, str],
    ) -> None:
        self.has_quit = False
        self._background = background
        self._printer = printer
        self._waiting = waiting
        self._values = values
        self._last_query: str | None = None

    def run(self, script: Script) -> None:
        """Execute a script, to its end or a QUIT.

        Raises:
            EbbtideError: a statement failed, whose file and line are its note; those after it were not executed.
            KeyboardInterrupt: Ctrl-C came, and the statement was cancelled.
        """
        where = script.name
        try:
            for statement in split(script.text):
                where = f"{script.name}, line {statement.place.line}"
                self.execute(statement, script)
                if self.has_quit:
                    return
        except EbbtideError as error:
            is_of_inner_script = hasattr(error, "__notes__")
            if not is_of_inner_script:
                error.add_note(where)
            raise

    def typed(self, text: str) -> None:
        """Execute the input of the prompt.

        Args:
            text: Statements, or a line that begins with a backslash.

        Raises:
            EbbtideError: a statement failed; those after it were not executed. One of a SOURCE has its place as a note.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        self._waiting.interrupts.forget()
        line = text.strip()
        if line.startswith("\\"):
            self._watch(line)
            return
        script = Script("typed", text, Path.cwd())
        for statement in split(text):
            self.execute(statement, script)
            if self.has_quit:
                return

    def execute(self, statement: Statement, script: Script) -> None:
        """Execute one statement.

        Args:
            statement: Statement to execute.
            script: Script of the statement.

        Raises:
            EbbtideError: the statement failed, or one of the script that it names.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        text = _placed(statement, substituted(statement.text, self._values))
        may_be_own = keyword(statement.tokens[0]) in OWN
        if may_be_own:
            own = parse(single(text))  # a variable may have made several statements of one
            if self._did(own, script):
                return
        result = self._ask(text)
        if result.kind is ResultKind.ROWS:
            self._last_query = text

    def _watch(self, line: str) -> None:
        """Repeat the last query and print its rows without a pager, until Ctrl-C."""
        command = _WATCH.fullmatch(line)
        if command is None:
            raise SqlError.of("There is no such command.", got=line, allowed="\\watch SECONDS")
        if self._last_query is None:
            raise SqlError.of(
                "There is no query to watch.",
                allowed="\\watch after a SELECT that returned rows",
            )
        seconds = float(command[1] or WATCH_S)
        printer = Printer(self._printer.console, self._printer.settings)
        while True:
            printer.say(f"{datetime.now().astimezone():%H:%M:%S}, every {seconds:g} s")
            self._ask(self._last_query, printer)
            self._waiting.interrupts.sleep(seconds)

    def _did(self, parsed: ast.Parsed, script: Script) -> bool:
        """Execute a statement of the client; return False if the session executes it (too)."""
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
            case ast.SetOption(str(key), None) if key in settings:
                columns = (ResultColumn("key"), ResultColumn("value"))
                self._printer.table(columns, [[key, settings[key]]])
            case ast.SetOption(str(key), str(value)) if key in settings:
                settings.set(key, value)
            case ast.Reset(str(key)) if key in settings:
                settings.reset(key)
            case ast.SetOption(None):
                values = [f"{key} = {value}" for key, value in settings.shown().items()]
                self._printer.say("Of the client: " + ", ".join(values))
                return False
            case ast.Reset(None):
                settings.reset()
                return False
            case _:
                return False
        return True

    def _ask(self, text: str, printer: Printer | None = None) -> Result:
        """Let the session execute a statement, and show the result."""
        printer = printer or self._printer
        session = self._waiting.until(self._background.get, "Opening the session")
        try:
            with Execution(session, text, self._waiting) as execution:
                return self._show(execution, printer)
        except SessionGoneError:
            self._background.forget()
            printer.say("The next statement opens a new session: its settings are those that sessions begin with.")
            raise

    def _show(self, execution: Execution, printer: Printer) -> Result:
        try:
            return printer.show(execution)
        except KeyboardInterrupt:
            if not execution.end():
                printer.say("The statement was asked to end and has not yet; it continues in the background.")
            raise


def _placed(statement: Statement, text: str) -> str:
    """Return a statement's text behind empty lines and spaces, so that places in errors are those of its script."""
    place = statement.place
    lines = "\n" * (place.line - 1)
    spaces = " " * (place.column - 1)
    return lines + spaces + text
