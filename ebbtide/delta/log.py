"""Reads a Delta table's log without a JVM: which commits there are, what Ebbtide wrote into them, which files count.

A commit is `_delta_log/<20 digits>.json`: actions, one a line. `commitInfo.userMetadata` holds our facts as JSON. A
checkpoint, `<20 digits>.checkpoint.parquet`, holds the actions that still count as of its version.

Source: Delta transaction log protocol, "Delta Log Entries", "Checkpoints".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ebbtide.paths import join, list_files, read_bytes, read_parquet

Action = dict[str, Any]
"""One line of a commit, by its kind; or what stands under one kind."""
Adds = dict[str, Action]
"""The data files that count, by path."""
Facts = dict[str, Any]
"""What Ebbtide wrote into a commit."""
LOG = "_delta_log"
"""The folder of a table's log."""
COMMIT = ".json"
"""What the name of a commit's file ends with, after the version."""
CHECKPOINT = ".checkpoint.parquet"
"""The same of a checkpoint's."""
FACTS = "ebbtide"
"""The key of our facts in a commit's userMetadata; its value is the format's version."""


def versions(table: str) -> list[int]:
    """Return the versions whose commits are still in the log, ascending."""
    return _numbers(table, COMMIT)


def _log_file(table: str, version: int, suffix: str) -> str:
    name = f"{version:020d}{suffix}"
    return join(table, LOG, name)


def commit_file(table: str, version: int) -> str:
    """Return where a version's commit is."""
    return _log_file(table, version, COMMIT)


def _numbers(table: str, suffix: str) -> list[int]:
    """Return the versions of the log's files with a suffix: it stands after exactly 20 digits."""
    numbers = []
    log = join(table, LOG)
    for name in list_files(log):
        if not name.endswith(suffix):
            continue
        stem = name.removesuffix(suffix)
        is_version = len(stem) == 20 and stem.isdigit()
        if is_version:
            numbers.append(int(stem))
    return numbers


def actions(table: str, version: int) -> list[Action]:
    """Return a commit's actions; none if it is not there."""
    location = commit_file(table, version)
    return read_actions(location)


def read_actions(location: str) -> list[Action]:
    """Return the actions in a file of the log, one a line; none if it is not there."""
    raw = read_bytes(location) or b""
    actions: list[Action] = []
    for line in raw.splitlines():
        if line.strip():
            action = json.loads(line)
            actions.append(action)
    return actions


def facts(table: str, version: int) -> Facts | None:
    """Return what Ebbtide wrote into a commit; None if the commit is not ours."""
    for action in actions(table, version):
        info = action.get("commitInfo", {})
        text = info.get("userMetadata", "null")
        try:
            metadata = json.loads(text)
        except ValueError:
            continue
        if isinstance(metadata, dict) and FACTS in metadata:
            return metadata
    return None


def added(table: str, version: int) -> list[str]:
    """Return the locations of the data files that a commit added."""
    adds = _adds(table, version)
    return [_location(table, add["path"]) for add in adds]


def _adds(table: str, version: int) -> list[Action]:
    commit = actions(table, version)
    return [action["add"] for action in commit if "add" in action]


def _location(table: str, path: str) -> str:
    if "://" in path:
        return path
    return join(table, unquote(path))


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Args:
        location: Where it is.
        rows: How many it has; None if that was not noted.
        least: Column to its least value, of the columns that the table keeps statistics of.
        greatest: Column to its greatest value.
    """

    location: str
    rows: int | None
    least: dict[str, Any]
    greatest: dict[str, Any]


def data_files(table: str) -> list[DataFile] | None:
    """Return the data files of a table's newest version.

    Returns:
        None where the log is not enough: a checkpoint in parts or with sidecars, commits that are gone, deletion vectors.
    """
    commits = versions(table)
    if not commits:
        return None
    # The newest checkpoint holds the files as of its version; the commits after it, none missing, say what changed since.
    # One read for the checkpoint and one for each commit after it.
    checkpoints = _numbers(table, CHECKPOINT)
    checkpoint = max(checkpoints, default=-1)
    since = [version for version in commits if version > checkpoint]
    newest = commits[-1]
    expected = range(checkpoint + 1, newest + 1)
    is_complete = since == list(expected)
    if not is_complete:
        return None
    adds: Adds = {}
    if checkpoint >= 0:
        adds = _checkpoint_adds(table, checkpoint)
    for version in since:
        commit = actions(table, version)
        _apply(commit, adds)
    files = []
    for add in adds.values():
        if add.get("deletionVector"):
            return None  # some of its rows do not count
        file = _data_file(table, add)
        files.append(file)
    return files


def _checkpoint_adds(table: str, version: int) -> Adds:
    """Return the data files as of a checkpoint, by path."""
    location = _log_file(table, version, CHECKPOINT)
    rows = read_parquet(location, columns=["add"])
    adds = {}
    for add in rows["add"].to_pylist():
        if add is None:
            continue  # the row of another action
        path = add["path"]
        adds[path] = add
    return adds


def _apply(commit: list[Action], adds: Adds) -> None:
    """Add to the data files, and take from them, as a commit's actions say."""
    for action in commit:
        if "add" in action:
            add = action["add"]
            path = add["path"]
            adds[path] = add
        elif "remove" in action:
            path = action["remove"]["path"]
            adds.pop(path, None)


def _data_file(table: str, add: Action) -> DataFile:
    stats = _statistics(add)
    return DataFile(
        location=_location(table, add["path"]),
        rows=stats.get("numRecords"),
        least=stats.get("minValues", {}),
        greatest=stats.get("maxValues", {}),
    )


def _statistics(add: Action) -> dict[str, Any]:
    """Return a data file's statistics; empty if it has none."""
    text = add.get("stats")
    if not text:
        return {}
    statistics: dict[str, Any] = json.loads(text)
    return statistics


def last_step(table: str) -> int:
    """Return the last step that changed a table, 0 before the first."""
    newest = next(own_commits(table), None)
    if newest is None:
        return 0
    _, own = newest
    return int(own["step"])


class LastStep:
    """The last step that changed a table, found again by reading the commits since alone.

    Args:
        table: The table's location.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._version = -1
        self._step = 0

    def find(self) -> int:
        """Return it, 0 before the first."""
        table = self._table
        if self._version < 0:
            self._version = max(versions(table), default=-1)
            self._step = last_step(table)
        while actions(table, self._version + 1):
            self._version += 1
            own = facts(table, self._version)
            if own:
                self._step = int(own["step"])
        return self._step


def own_commits(table: str) -> Iterator[tuple[int, Facts]]:
    """Yield (version, facts) of our commits, the newest first."""
    newest_first = reversed(versions(table))
    for version in newest_first:
        own = facts(table, version)
        if own is not None:
            yield version, own
