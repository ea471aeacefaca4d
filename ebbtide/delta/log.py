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

STATS_TEXT = 32
"""Characters after which Delta may cut a text in a file's statistics."""
FACTS = "ebbtide"
"""The key of our facts in a commit's userMetadata; its value is the format's version."""


def versions(table: str) -> list[int]:
    """Return the versions whose commits are still in the log, ascending."""
    names = list_files(join(table, "_delta_log")) if exists(table) else []
    return [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit() and len(name) == 25]


def actions(table: str, version: int) -> list[dict[str, Any]]:
    """Return a commit's actions."""
    raw = read_bytes(join(table, "_delta_log", f"{version:020d}.json"))
    return [json.loads(line) for line in (raw or b"").splitlines() if line.strip()]


def facts(table: str, version: int) -> dict[str, Any] | None:
    """Return what Ebbtide wrote into a commit; None if the commit is not ours."""
    for action in actions(table, version):
        try:
            metadata = json.loads(action.get("commitInfo", {}).get("userMetadata", "null"))
        except ValueError:
            continue
        if isinstance(metadata, dict) and FACTS in metadata:
            return metadata
    return None


def added(table: str, version: int) -> list[str]:
    """Return the locations of the data files that a commit added."""
    return [_location(table, action["add"]["path"]) for action in actions(table, version) if "add" in action]


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
    known = versions(table)
    names = list_files(join(table, "_delta_log")) if known else []
    checkpoints = [int(name[:20]) for name in names if name[20:] == ".checkpoint.parquet" and name[:20].isdigit()]
    base = max(checkpoints, default=-1)
    if not known or [v for v in known if v > base] != list(range(base + 1, known[-1] + 1)):
        return None
    adds: dict[str, dict[str, Any]] = {}
    if base >= 0:
        rows = read_parquet(join(table, "_delta_log", f"{base:020d}.checkpoint.parquet"), columns=["add"])
        adds = {add["path"]: add for add in rows["add"].to_pylist() if add is not None}
    for version in range(base + 1, known[-1] + 1):
        for action in actions(table, version):
            if "add" in action:
                adds[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                adds.pop(action["remove"]["path"], None)
    if any(add.get("deletionVector") for add in adds.values()):
        return None
    return [_data_file(table, add) for add in adds.values()]


def _data_file(table: str, add: dict[str, Any]) -> DataFile:
    stats = json.loads(add.get("stats") or "{}")
    return DataFile(
        _location(table, add["path"]),
        stats.get("numRecords"),
        stats.get("minValues", {}),
        stats.get("maxValues", {}),
    )


def files_more(table: str, version: int) -> int:
    """Return how many more data files a table has by a commit; negative: fewer."""
    found = actions(table, version)
    return sum("add" in action for action in found) - sum("remove" in action for action in found)


def bounds(table: str, version: int, column: str) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column in the files that a commit added, by their statistics.

    None where that is not known: no statistics, a type whose statistics are not exact, or a text that they may cut off.
    """
    ends: list[Any] = []
    for action in actions(table, version):
        if "add" not in action:
            continue
        stats = json.loads(action["add"].get("stats") or "{}")
        if stats.get("nullCount", {}).get(column) == stats.get("numRecords", -1):
            continue
        least, greatest = stats.get("minValues", {}).get(column), stats.get("maxValues", {}).get(column)
        if not (_is_exact(least) and _is_exact(greatest)):
            return None
        ends += [least, greatest]
    return (min(ends), max(ends)) if ends else None


def _is_exact(value: Any) -> bool:
    """Whether a statistic is the value itself: Delta cuts texts after 32 characters."""
    return type(value) is int or (isinstance(value, str) and len(value) < STATS_TEXT)


def last_step(table: str) -> int:
    """Return the last step that changed a table, 0 before the first."""
    return next((int(found["step"]) for _, found in own_commits(table)), 0)


def own_commits(table: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (version, facts) of our commits, the newest first."""
    for version in reversed(versions(table)):
        found = facts(table, version)
        if found is not None:
            yield version, found
