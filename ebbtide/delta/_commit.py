"""Parts of commits: their identity, the files that they name, and the actions that remove files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ebbtide.delta import _vectors as vectors
from ebbtide.delta._data_file import now_ms
from ebbtide.delta._log import Action, Log


@dataclass(frozen=True)
class Transaction:
    """The identity of a commit: the log keeps the last number of each application, so that a repeated commit is recognized.

    Args:
        app_id: The application.
        number: Number of the transaction; rises within the application.
        info: Fields of the commit's `commitInfo`.
    """

    app_id: str
    number: int
    info: Mapping[str, Any]


def named_files(table: str, actions: Iterable[Action]) -> list[str]:
    """Return the locations of the data files, change files and deletion vectors that a commit names.

    Args:
        table: Location of the table.
        actions: Actions of the commit.
    """
    files = []
    for action in actions:
        named = action.get("add") or action.get("cdc")
        if named is None:
            continue
        files.append(Log(table).location_of(named["path"]))
        # Several data files may share one file of vectors; `sync_together` syncs each path once.
        vector = named.get("deletionVector")
        vector_file = None if vector is None else vectors.location_of(table, vector)
        if vector_file is not None:
            files.append(vector_file)
    return files


def transaction_mark(app_id: str, version: int) -> Action:
    """Return the action that marks a transaction of an application as committed."""
    mark = {
        "appId": app_id,
        "version": version,
        "lastUpdated": now_ms(),
    }
    return {"txn": mark}
