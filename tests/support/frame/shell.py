"""What a user gives a process before it starts: variables of its environment, and its working directory."""

from __future__ import annotations

from typing import Any, Self

import pytest


class Shell:
    """Gives this process an environment and a working directory, until it is left; the fixture `shell` lasts for a test."""

    def __init__(self) -> None:
        self._changes = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._changes.undo()

    def export(self, **variables: Any) -> None:
        """Set variables, as text."""
        for name, value in variables.items():
            self._changes.setenv(name, str(value))

    def unset(self, *names: str) -> None:
        """Take variables away."""
        for name in names:
            self._changes.delenv(name, raising=False)

    def cd(self, folder: Any) -> None:
        """Work in a folder."""
        self._changes.chdir(folder)

    def keep_temporary_files(self, folder: Any) -> None:
        """Have temporary files made in a folder, as TMPDIR does at a start."""
        self._changes.setattr("tempfile.tempdir", str(folder))

    def put_on_path(self, *folders: Any) -> None:
        """Have the modules of folders found, the last folder's first; PYTHONPATH does so at a start."""
        for folder in folders:
            self._changes.syspath_prepend(str(folder))
