"""The shell: a client for scripts, or for a user at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from ebbtide.errors import MissingExtraError
from ebbtide.sql._results import Session
from ebbtide.sql._shell.execution import BackgroundSession, Console, Interrupts, Waiting
from ebbtide.sql._shell.show import ClientSettings, Printer, ResultFormat

if TYPE_CHECKING:
    from ebbtide.sql._shell.script import Client, Script

LIBRARIES = ("prompt_toolkit", "pygments", "wcwidth")
"""Libraries of the prompt."""


class Shell:
    """A client. A context manager that closes the session; jobs continue.

    Args:
        open_session: Opens the session, when it is first needed.
        variables: Returns the values of `${name}`, when a statement is first executed.
        first_format: How rows are shown until SET result-format changes it.
        out: Stream for rows.
        err: Stream for errors.
        is_interactive: Whether a user types.

    Raises:
        MissingExtraError: a user types, and a library of the prompt is missing.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        variables: Callable[[], Mapping[str, str]],
        first_format: ResultFormat,
        out: TextIO,
        err: TextIO,
        *,
        is_interactive: bool,
    ) -> None:
        if is_interactive:
            _refuse_without_libraries()
        self._background = BackgroundSession(open_session)
        self._variables = variables
        self._console = Console(out, err)
        self._printer = Printer(self._console, ClientSettings(first_format), pages=is_interactive)
        self._interrupts = Interrupts()

    @cached_property
    def _client(self) -> Client:
        """Client, loaded with the first statement: the prompt does not wait for its libraries."""
        from ebbtide.sql._shell.script import Client

        waiting = Waiting(self._interrupts, self._console)
        return Client(self._background, self._printer, waiting, self._variables())

    def run(self, scripts: Iterable[Script]) -> bool:
        """Execute scripts; return whether a QUIT ended them.

        Raises:
            EbbtideError: a statement failed.
            KeyboardInterrupt: Ctrl-C came; the statement was cancelled.
        """
        for script in scripts:
            self._client.run(script)
            if self._client.has_quit:
                return True
        return False

    def interact(self, error_text: Callable[[Exception], str]) -> None:
        """Read statements at the prompt and execute them, until the user leaves.

        Args:
            error_text: Returns the text of an error.
        """
        from ebbtide.sql._shell.prompt import interact, state_folder

        folder = state_folder()
        interact(self._background, lambda: self._client, self._console, folder, error_text)

    def __enter__(self) -> Self:
        self._interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.__exit__(kind, error, trace)  # from here on Ctrl-C ends a closing that hangs
        self._background.close()


def _refuse_without_libraries() -> None:
    try:
        import ebbtide.sql._shell.prompt  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name in LIBRARIES:
            raise MissingExtraError.of_extra("sql", error.name) from error
        raise
