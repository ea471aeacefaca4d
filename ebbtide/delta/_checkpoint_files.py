"""Reads checkpoints of a table's log, in one file or several, with or without sidecars.

Source: Delta transaction log protocol, "Checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ebbtide.delta import _log as log
from ebbtide.delta._log import LOG, Action
from ebbtide.storage import Location, read_parquet

_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-f-]{36}))?\.(?P<kind>parquet|json)"
)
_KINDS = ("add", "remove", "metaData", "protocol", "txn", "domainMetadata", "sidecar")
"""Kinds of actions that are read from a checkpoint."""


def newest_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """Return the version and the files of the newest complete checkpoint; -1 and none without one."""
    # Several writers may have written a checkpoint of one version, each in its own number of parts: they are kept apart.
    found: dict[tuple[int, str], list[str]] = {}
    n_wanted: dict[tuple[int, str], int] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is None:
            continue
        version = int(match[1])
        n_parts = int(match["parts"] or 1)
        writer = match["uuid"] or f"of {n_parts}"
        checkpoint = (version, writer)
        found.setdefault(checkpoint, []).append(name)
        n_wanted[checkpoint] = n_parts
    whole = []
    for checkpoint, files in found.items():
        is_whole = len(files) == n_wanted[checkpoint]
        if is_whole:
            whole.append(checkpoint)
    if not whole:
        return -1, []
    # Of several writers of one version each will do: all have the same state.
    newest = max(whole)
    newest_version, _ = newest
    return newest_version, sorted(found[newest])


def checkpoint_actions(table: str, name: str) -> list[Action]:
    """Return the actions of a checkpoint's file, and of the sidecars that it names."""
    location = Location(table) / LOG / name
    is_json = name.endswith(".json")
    actions = log.read_actions(location) if is_json else list(_parquet_actions(location))
    sidecars = [action["sidecar"] for action in actions if "sidecar" in action]
    # A V2 checkpoint names sidecar files with its `add` and `remove` actions.
    for sidecar in sidecars:
        folder = Location(table) / LOG / "_sidecars"
        sidecar_location = log.file_location(folder, sidecar["path"])
        actions += _parquet_actions(sidecar_location)
    return actions


def _parquet_actions(location: str) -> Iterator[Action]:
    """Yield the actions of a file that has a column for each kind, of which one is set in each row."""
    table = read_parquet(location, columns=list(_KINDS))
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        for kind, action in row.items():
            # Parquet has all fields of all kinds: those that were not written are null, and must not count as values.
            if action is not None:
                yield {kind: _without_nulls(action)}


def _without_nulls(action: Action) -> Action:
    return {name: value for name, value in action.items() if value is not None}
