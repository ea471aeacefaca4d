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

from ebbtide.paths import exists, join, list_files, read_bytes, read_parquet

Action = dict[str, Any]
"""One line of a commit, by its kind; or what stands under one kind."""
Adds = dict[str, Action]
"""The data files that count, by path."""
Facts = dict[str, Any]
"""What Ebbtide wrote into a commit."""
LOG = "_delta_log"
"""The folder of a table's log."""
STATS_TEXT = 32
"""Characters after which Delta may cut a text in a file's statistics."""
FACTS = "ebbtide"
"""The key of our facts in a commit's userMetadata; its value is the format's version."""


def versions(table: str) -> list[int]:
    """Return the versions whose commits are still in the log, ascending."""
    if not exists(table):
        return []
    return _numbers(_log_files(table), ".json")


def _log_files(table: str) -> list[str]:
    return list_files(join(table, LOG))


def _numbers(names: list[str], suffix: str) -> list[int]:
    """Return the versions of the log's files with a suffix: it stands after exactly 20 digits."""
    stems = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return [int(stem) for stem in stems if stem.isdigit() and len(stem) == 20]


def actions(table: str, version: int) -> list[Action]:
    """Return a commit's actions."""
    raw = read_bytes(join(table, LOG, f"{version:020d}.json")) or b""
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def facts(table: str, version: int) -> Facts | None:
    """Return what Ebbtide wrote into a commit; None if the commit is not ours."""
    for action in actions(table, version):
        info = action.get("commitInfo", {})
        try:
            metadata = json.loads(info.get("userMetadata", "null"))
        except ValueError:
            continue
        if isinstance(metadata, dict) and FACTS in metadata:
            return metadata
    return None


def added(table: str, version: int) -> list[str]:
    """Return the locations of the data files that a commit added."""
    return [_location(table, add["path"]) for add in _adds(table, version)]


def _adds(table: str, version: int) -> list[Action]:
    return [action["add"] for action in actions(table, version) if "add" in action]


def _location(table: str, path: str) -> str:
    return path if "://" in path else join(table, unquote(path))


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
        None where the log alone does not tell: a checkpoint in parts or with sidecars, commits that are gone, deletion vectors.
    """
    commits = versions(table)
    if not commits:
        return None
    # The newest checkpoint holds the files as of its version; the commits after it, none missing, say what changed since.
    # One read for the checkpoint and one for each commit after it.
    checkpoints = _numbers(_log_files(table), ".checkpoint.parquet")
    checkpoint = max(checkpoints, default=-1)
    since = [version for version in commits if version > checkpoint]
    newest = commits[-1]
    if since != list(range(checkpoint + 1, newest + 1)):
        return None
    adds = _checkpoint_adds(table, checkpoint) if checkpoint >= 0 else {}
    for version in since:
        commit = actions(table, version)
        _apply(commit, adds)
    if any(add.get("deletionVector") for add in adds.values()):
        return None
    return [_data_file(table, add) for add in adds.values()]


def _checkpoint_adds(table: str, version: int) -> Adds:
    """Return the data files as of a checkpoint, by path."""
    location = join(table, LOG, f"{version:020d}.checkpoint.parquet")
    column = read_parquet(location, columns=["add"])["add"]
    adds = {}
    for add in column.to_pylist():
        if add is not None:  # the row of another action
            adds[add["path"]] = add
    return adds


def _apply(commit: list[Action], adds: Adds) -> None:
    """Add to the data files, and take from them, as a commit's actions say."""
    for action in commit:
        if "add" in action:
            add = action["add"]
            adds[add["path"]] = add
        elif "remove" in action:
            adds.pop(action["remove"]["path"], None)


def _data_file(table: str, add: Action) -> DataFile:
    stats = json.loads(add.get("stats") or "{}")
    return DataFile(
        _location(table, add["path"]),
        stats.get("numRecords"),
        stats.get("minValues", {}),
        stats.get("maxValues", {}),
    )


def files_more(table: str, version: int) -> int:
    """Return how many more data files a table has by a commit; negative: fewer."""
    commit = actions(table, version)
    n_added = sum("add" in action for action in commit)
    n_removed = sum("remove" in action for action in commit)
    return n_added - n_removed


def bounds(table: str, version: int, column: str) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column in the files that a commit added, by their statistics.

    None where that is not known: no statistics, a type whose statistics are not exact, or a text that they may cut off.
    """
    ends: list[Any] = []
    for add in _adds(table, version):
        stats = json.loads(add.get("stats") or "{}")
        null_counts = stats.get("nullCount", {})
        if null_counts.get(column) == stats.get("numRecords", -1):
            continue  # no value at all
        for side in ("minValues", "maxValues"):
            bound = stats.get(side, {}).get(column)
            if not _is_exact(bound):
                return None
            ends.append(bound)
    if not ends:
        return None
    return min(ends), max(ends)


def _is_exact(value: Any) -> bool:
    """Return whether a statistic is the value itself: Delta cuts texts after 32 characters."""
    return type(value) is int or (isinstance(value, str) and len(value) < STATS_TEXT)


def last_step(table: str) -> int:
    """Return the last step that changed a table, 0 before the first."""
    steps = (int(own["step"]) for _, own in own_commits(table))
    return next(steps, 0)


def own_commits(table: str) -> Iterator[tuple[int, Facts]]:
    """Yield (version, facts) of our commits, the newest first."""
    for version in reversed(versions(table)):
        own = facts(table, version)
        if own is not None:
            yield version, own
