"""What was typed before, in a file that nobody else reads and that has no credentials."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

FILE = Path("ebbtide") / "sql_history"
"""Below the folder where programs of a user keep what they remember."""


class MaskedHistory(FileHistory):
    """Keeps what was typed, credentials masked; what was typed in this session comes back whole.

    Args:
        file: It must be there.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))

    def store_string(self, string: str) -> None:
        """Write what was typed."""
        from ebbtide.sql.masking import masked  # the prompt stands before the parser is there

        kept = masked(string)
        if kept is not None:
            super().store_string(kept)


def history_at(state_folder: Path) -> History:
    """Return the history below a folder; one of this session alone, where no file can be written."""
    file = state_folder / FILE
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)
        os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return MaskedHistory(file)


def state_folder() -> Path:
    """Return where programs of this user keep what they remember, as the XDG specification has it."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
