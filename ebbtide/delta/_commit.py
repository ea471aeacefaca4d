"""Commits: the file of a version, with all its changes, is put if it is absent.

Invariant: of all writers of one version exactly one succeeds. On a local disk a hard link ensures it, in an object store a conditional put. Source: Delta transaction log
protocol, "Delta Log Entries"; `LogStore` of Delta's storage library.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ebbtide.delta import _vectors as vectors
from ebbtide.delta._log import CHECKSUM, NO_CHECKSUM, WITHOUT_COPY, Action, Log, with_checksum
from ebbtide.errors import DamagedFileError, DeltaLogError, TableMismatchError, VersionTakenError
from ebbtide.storage import Location, at_once, sync_below


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


class Puts(Protocol):
    """Puts files that are absent."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a file atomically if it is absent; return whether this writer's file is there.

        If an answer may be lost, a file of the same bytes counts as this writer's: all writers' bytes differ.
        """


class StoragePuts:
    """Puts on a local disk, or in an object store that has conditional puts."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Put a file, see `Puts`."""
        path = Location(location.removeprefix("file://"))
        return path.put_if_absent(data)


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
        version: The version after the newest.
        actions: Its changes.
        info: Fields of its `commitInfo`, such as `operation` and `userMetadata`.

    Raises:
        VersionTakenError: another client has committed the version.
        DeltaLogError: a later version exists.
        TableMismatchError: the version before it does not exist: the table was deleted.
    """
    commit_info = {
        "timestamp": now_ms(),
        "txnId": str(uuid.uuid4()),  # no two commits have the same bytes: see `Puts`
        **info,
        CHECKSUM: NO_CHECKSUM,
    }
    actions = list(actions)
    lines = [_line({"commitInfo": commit_info})]
    for action in actions:
        line = _line(action)
        lines.append(line)
    content = "".join(lines).encode()
    # Both before the put: a version in a gap of the log, or in an emptied folder, could not be taken back.
    looks = [partial(_refuse_hole, table, version), partial(_refuse_gone, table, version)]
    if Location(table).is_in_object_store:
        at_once(*looks)
    else:
        for look in looks:
            look()
    location = Log(table).commit_file(version)
    # The order ensures durability: files first, then the commit that names them. A power cut leaves no commit without its files.
    if Location(table).is_local:
        on_disk(table, actions)
    # Of two writers of one version one succeeds; the other reads that commit, and tries the next version.
    is_written = puts.put_if_absent(location, with_checksum(content))
    if not is_written:
        raise VersionTakenError.of(f"Version {version} of the Delta table '{table}' was committed by another client.")


def on_disk(table: str, actions: Iterable[Action]) -> None:
    """Sync the files that actions name, so that a commit names no file that a power cut can take.

    Args:
        table: Location of the table, a local one.
        actions: Actions of the commit.

    Raises:
        DamagedFileError: a file is gone.
    """
    files = named_files(table, actions)
    try:
        sync_below(table, files)
    except FileNotFoundError as error:
        raise DamagedFileError.of(
            f"The file '{error.filename}' was deleted before it was committed.",
            next_step="Nothing was committed. Run it again: the file is written again.",
        ) from error


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
        # Several data files may share one file of vectors; `sync_below` syncs each path once.
        vector = named.get("deletionVector")
        vector_file = None if vector is None else vectors.location_of(table, vector)
        if vector_file is not None:
            files.append(vector_file)
    return files


def _refuse_hole(table: str, version: int) -> None:
    """Refuse to put a version that was lost: readers of the next version have read other actions in its place."""
    has_later = Log(table).commit_file(version + 1).is_file()
    if has_later and not Log(table).commit_file(version).is_file():
        raise DeltaLogError.of(
            f"The log of the Delta table '{table}' is not whole.",
            got=f"version {version + 1} without version {version}",
            next_step=f"Restore the missing file of _delta_log. {WITHOUT_COPY}",
        )


def _refuse_gone(table: str, version: int) -> None:
    """Refuse to put a version without the one before it: no reader could read such a log."""
    if version > 0 and not Log(table).has(version - 1):
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
    """Return the action that marks a transaction of an application as committed."""
    mark = {
        "appId": app_id,
        "version": version,
        "lastUpdated": now_ms(),
    }
    return {"txn": mark}


def now_ms() -> int:
    """Return the time, epoch ms."""
    return time.time_ns() // 1_000_000
