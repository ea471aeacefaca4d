"""Commits: a version's file is put if it is absent, and holds all that the version changes.

Whoever puts it first has the version; everybody else is refused. On a local disk a link does that. Source: Delta
transaction log protocol, "Delta Log Entries"; `LogStore` of Delta's storage library.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ebbtide.delta.log import CHECKSUM, NO_CHECKSUM, WITHOUT_COPY, commit_file, with_checksum
from ebbtide.delta.snapshot import Action, has_version
from ebbtide.errors import DeltaLogError, TableMismatchError, VersionTakenError
from ebbtide.paths import is_file


class Puts(Protocol):
    """Puts files where there are none."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a file whole, or leave the one that is there; return whether it was written.

        Where an answer may be lost, a file of the same bytes counts as ours: nobody else's may be the same.
        """


class LocalPuts:
    """On a local disk, or a file system that links as one does."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """See `Puts`. The file is on disk before it gets its name."""
        path = Path(location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with unnamed.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(unnamed, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                unnamed.unlink()
        _sync_folder(path.parent)
        return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(
    puts: Puts,
    table: str,
    version: int,
    actions: Iterable[Action],
    info: Mapping[str, Any],
) -> None:
    """Commit a version.

    Args:
        puts: The table's store.
        table: Its location.
        version: The one after the newest.
        actions: What it changes.
        info: What it says of itself: `operation`, `userMetadata` and whatever else.

    Raises:
        VersionTakenError: somebody else has committed it.
        DeltaLogError: a later version is there.
        TableMismatchError: the version before it is not there: the table was deleted.
    """
    said = {
        "timestamp": now_ms(),
        "txnId": str(uuid.uuid4()),  # no two commits have the same bytes: see `Puts`
        **info,
        CHECKSUM: NO_CHECKSUM,
    }
    lines = [_line({"commitInfo": said})]
    for action in actions:
        line = _line(action)
        lines.append(line)
    content = "".join(lines).encode()
    _refuse_hole(table, version)
    _refuse_gone(table, version)
    location = commit_file(table, version)
    is_written = puts.put_if_absent(location, with_checksum(content))
    if not is_written:
        raise VersionTakenError.of(f"Version {version} of the Delta table '{table}' was committed by somebody else.")


def _refuse_hole(table: str, version: int) -> None:
    """Refuse to put a version that was lost: whoever has read the one after it has read other actions in its place."""
    has_later = is_file(commit_file(table, version + 1))
    if has_later and not is_file(commit_file(table, version)):
        raise DeltaLogError.of(
            f"The log of the Delta table '{table}' is not whole.",
            got=f"version {version + 1} without version {version}",
            next_step=f"Restore the missing file of _delta_log. {WITHOUT_COPY}",
        )


def _refuse_gone(table: str, version: int) -> None:
    """Refuse to put a version without the one before it: nobody could read the table that this would begin."""
    if version > 0 and not has_version(table, version - 1):
        raise TableMismatchError.of(
            f"The table at '{table}' is gone.",
            got=f"no version {version - 1} in its log",
            allowed="the table as it was written",
            next_step="Restore it; without a copy run 'ebbtide repair' if it is a sink, a changelog or a quarantine, else 'ebbtide refresh'.",
        )


def _line(action: Action) -> str:
    text = json.dumps(action, separators=(",", ":"))
    return text + "\n"


def transaction_mark(app_id: str, version: int) -> Action:
    """Return the action that marks a transaction of an application as done."""
    mark = {
        "appId": app_id,
        "version": version,
        "lastUpdated": now_ms(),
    }
    return {"txn": mark}


def now_ms() -> int:
    """Return the time, epoch ms."""
    return time.time_ns() // 1_000_000
