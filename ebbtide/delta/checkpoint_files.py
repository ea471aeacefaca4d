"""Reads checkpoints of a table's log, of one file or several, with sidecars or without: what counts as of a version.

Source: Delta transaction log protocol, "Checkpoints".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ebbtide.delta import log
from ebbtide.delta.log import LOG, Action
from ebbtide.storage.columnar import read_parquet
from ebbtide.storage.paths import join

_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-f-]{36}))?\.(?P<kind>parquet|json)"
)
_KINDS = ("add", "remove", "metaData", "protocol", "txn", "domainMetadata", "sidecar")
"""What of a checkpoint is read."""


def newest_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """Return the version and the files of the newest checkpoint that is whole; -1 and none if there is none."""
    # A checkpoint is one of a version by one writer: several may have written it, each in so many parts.
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
    # Of several writers of one version any will do: all hold what counts as of it.
    newest = max(whole)
    newest_version, _ = newest
    return newest_version, sorted(found[newest])


def checkpoint_actions(table: str, name: str) -> list[Action]:
    """Return the actions of a checkpoint's file, and of the sidecars that it names."""
    location = join(table, LOG, name)
    is_json = name.endswith(".json")
    actions = log.read_actions(location) if is_json else list(_parquet_actions(location))
    sidecars = [action["sidecar"] for action in actions if "sidecar" in action]
    # A checkpoint of the second form names files that hold its `add` and `remove` actions.
    for sidecar in sidecars:
        folder = join(table, LOG, "_sidecars")
        sidecar_location = log.file_location(folder, sidecar["path"])
        actions += _parquet_actions(sidecar_location)
    return actions


def _parquet_actions(location: str) -> Iterator[Action]:
    """Yield the actions of a file that has a column for each kind: of a row one is not null."""
    table = read_parquet(location, columns=list(_KINDS))
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        for kind, action in row.items():
            # Parquet has every field of every kind; what was not written is null, and would pass for a value.
            if action is not None:
                yield {kind: _without_nulls(action)}


def _without_nulls(action: Action) -> Action:
    return {name: value for name, value in action.items() if value is not None}
