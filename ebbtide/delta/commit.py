"""Commits: a version's file is put if it is absent, and holds all that the version changes.

The first put has the version; all others are refused. On a local disk a link does that. Source: Delta
transaction log protocol, "Delta Log Entries"; `LogStore` of Delta's storage library.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ebbtide.delta import vectors
from ebbtide.delta.log import CHECKSUM, NO_CHECKSUM, WITHOUT_COPY, commit_file, file_location, with_checksum
from ebbtide.delta.snapshot import Action, has_version
from ebbtide.errors import DamagedFileError, DeltaLogError, TableMismatchError, VersionTakenError
from ebbtide.storage.disk import failures_named, sync, sync_above, sync_below
from ebbtide.storage.paths import UNFINISHED, is_file, is_local


@dataclass(frozen=True)
class Transaction:
    """What a commit is known by: made again it is found done, by the mark that the log keeps of each application.

    Args:
        app_id: The application.
        number: The transaction's, which rises.
        info: What the commit says of itself.
    """

    app_id: str
    number: int
    info: Mapping[str, Any]


class Puts(Protocol):
    """Puts files where there are none."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """Write a file whole, or leave the one that is there; return whether it was written.

        Where an answer may be lost, a file of the same bytes counts as ours: no other writer puts the same.
        """


class LocalPuts:
    """On a local disk, or a file system that links as one does."""

    def put_if_absent(self, location: str, data: bytes) -> bool:
        """See `Puts`. The file is on disk before it gets its name, and its name before this returns."""
        with failures_named(location):
            return self._put(Path(location.removeprefix("file://")), data)

    def _put(self, path: Path, data: bytes) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.scandir(path.parent) as names:
            is_first = next(names, None) is None
        unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
        try:
            with unnamed.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            # A link fails where the name is taken, and the name appears with all bytes; a rename would replace what is there.
            os.link(unnamed, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                unnamed.unlink()
        sync(path.parent)
        if is_first:
            sync_above(path.parent)  # they may be as new
        return True


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
        VersionTakenError: another client has committed it.
        DeltaLogError: a later version is there.
        TableMismatchError: the version before it is not there: the table was deleted.
    """
    said = {
        "timestamp": now_ms(),
        "txnId": str(uuid.uuid4()),  # no two commits have the same bytes: see `Puts`
        **info,
        CHECKSUM: NO_CHECKSUM,
    }
    actions = list(actions)
    lines = [_line({"commitInfo": said})]
    for action in actions:
        line = _line(action)
        lines.append(line)
    content = "".join(lines).encode()
    # Both before anything is put: a version that is put in a hole, or into a folder that was emptied, cannot be taken back.
    _refuse_hole(table, version)
    _refuse_gone(table, version)
    location = commit_file(table, version)
    # The order is the promise: files first, then the commit that names them, so that a power cut leaves no commit without its files.
    if is_local(table):
        on_disk(table, actions)
    # Of two writers of one version the store lets one through; the other one reads on and tries the next.
    is_written = puts.put_if_absent(location, with_checksum(content))
    if not is_written:
        raise VersionTakenError.of(f"Version {version} of the Delta table '{table}' was committed by another client.")


def on_disk(table: str, actions: Iterable[Action]) -> None:
    """Wait until the files that actions name are on disk, so that a commit names no file that a power cut takes.

    Args:
        table: The table's location, a local one.
        actions: The commit's.

    Raises:
        DamagedFileError: one is gone.
    """
    try:
        sync_below(table, named_files(table, actions))
    except FileNotFoundError as error:
        raise DamagedFileError.of(
            f"The file '{error.filename}' was deleted before it was committed.",
            next_step="Nothing was committed. Run again: it is written again.",
        ) from error


def named_files(table: str, actions: Iterable[Action]) -> list[str]:
    """Return the locations of the files with which a commit adds rows, takes some out, or shows changes.

    Args:
        table: The table's location.
        actions: The commit's.
    """
    files = []
    for action in actions:
        named = action.get("add") or action.get("cdc")
        if named is None:
            continue
        files.append(file_location(table, named["path"]))
        # Several data files may share one file of vectors; `sync_below` waits for each path once.
        vector = named.get("deletionVector")
        vector_file = None if vector is None else vectors.location_of(table, vector)
        if vector_file is not None:
            files.append(vector_file)
    return files


def _refuse_hole(table: str, version: int) -> None:
    """Refuse to put a version that was lost: a reader of the one after it has read other actions in its place."""
    has_later = is_file(commit_file(table, version + 1))
    if has_later and not is_file(commit_file(table, version)):
        raise DeltaLogError.of(
            f"The log of the Delta table '{table}' is not whole.",
            got=f"version {version + 1} without version {version}",
            next_step=f"Restore the missing file of _delta_log. {WITHOUT_COPY}",
        )


def _refuse_gone(table: str, version: int) -> None:
    """Refuse to put a version without the one before it: no reader could read the table that this would begin."""
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
