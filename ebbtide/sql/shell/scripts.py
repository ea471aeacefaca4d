"""Texts that statements are read from: files, arguments, standard input, what is typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ebbtide.errors import ConfigError, SqlError
from ebbtide.sql.tokens import Statement, split

MOST_NESTED = 16
"""Files that SOURCE reads within each other: more is a circle."""


class ScriptFailedError(Exception):
    """Raised when a statement of a script failed.

    Args:
        where: File and line of the statement.
        error: What it failed with.
    """

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__(f"{where}: {error}")
        self.where = where
        self.error = error


@dataclass(frozen=True)
class Script:
    """A text of statements.

    Args:
        name: For people: its file, for instance.
        text: It.
        folder: What the names of files in it are relative to.
        depth: How many scripts it is read within.
    """

    name: str
    text: str
    folder: Path
    depth: int = 0

    @classmethod
    def read(cls, file: Path, depth: int = 0) -> Script:
        """Read a file.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError.of(
                f"The script '{file}' cannot be read.",
                got=str(error),
                allowed="a text file in UTF-8",
            ) from error
        return cls(str(file), text, file.parent, depth)

    def nested(self, file: str) -> Script:
        """Read a file that this one names.

        Raises:
            SqlError: it is nested too deep.
            ConfigError: it cannot be read.
        """
        if self.depth == MOST_NESTED:
            raise SqlError.of(
                f"SOURCE '{file}' is nested too deep.",
                allowed=f"{MOST_NESTED} scripts within each other",
                next_step="A script must not name itself, or one that names it.",
            )
        return Script.read(self.folder / Path(file).expanduser(), self.depth + 1)

    def statements(self) -> list[Statement]:
        """Return its statements.

        Raises:
            SqlSyntaxError: it cannot be split.
        """
        return split(self.text)


def placed(statement: Statement, text: str) -> str:
    """Return a statement's text with empty lines and spaces in front: places in errors are then those of its script."""
    return "\n" * (statement.place.line - 1) + " " * (statement.place.column - 1) + text
