"""A table as of one version: its data files, properties and transaction marks, replayed from the log.

The newest checkpoint holds what counts as of its version; the commits after it, none missing, say what changed since. A
data file is known by its path and its deletion vector: an update of the vector removes one and adds the other.

Source: Delta transaction log protocol, "Checkpoints", "Action Reconciliation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from ebbtide.delta import vectors
from ebbtide.delta.features import refuse_unreadable
from ebbtide.errors import DeltaLogError
from ebbtide.paths import join, list_files, read_bytes, read_parquet

Action = dict[str, Any]
"""A line of a commit by its kind, or what stands under the kind."""
LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-f-]{36}))?\.(?P<kind>parquet|json)"
)
_KINDS = ("add", "remove", "metaData", "protocol", "txn", "sidecar")
"""What of a checkpoint is read."""


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Args:
        add: The log's `add`.
    """

    add: Action

    @property
    def path(self) -> str:
        """As the log has it: relative to the table or absolute, percent-encoded."""
        return str(self.add["path"])

    @property
    def id(self) -> tuple[str, str]:
        """What the log adds and removes: the file, with its vector."""
        return self.path, vectors.unique_id(self.vector)

    @property
    def vector(self) -> vectors.Descriptor | None:
        """Descriptor of its deletion vector; None if all rows count."""
        return self.add.get("deletionVector")

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Its statistics; empty if there are none."""
        stats: dict[str, Any] = json.loads(self.add.get("stats") or "{}")
        return stats

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.add["size"])

    @property
    def tags(self) -> Mapping[str, str]:
        """What its writer noted of it."""
        return self.add.get("tags") or {}

    @property
    def rows(self) -> int | None:
        """Rows in the file, those that no longer count included; None if that was not noted."""
        return self.stats.get("numRecords")

    @property
    def live_rows(self) -> int | None:
        """Rows that count; None if that was not noted."""
        if self.rows is None:
            return None
        return self.rows - (self.vector["cardinality"] if self.vector else 0)

    def least(self, column: str) -> Any:
        """Return the least value of a column, or one below it; None if it is not known."""
        return self.stats.get("minValues", {}).get(column)

    def greatest(self, column: str) -> Any:
        """Return the greatest value of a column, or one above it; None if it is not known."""
        return self.stats.get("maxValues", {}).get(column)

    def location(self, table: str) -> str:
        """Return where it is.

        Args:
            table: The table's location.
        """
        path = unquote(self.path)
        if "://" in path:
            return path
        if path.startswith("file:"):
            return path.removeprefix("file:")
        return path if path.startswith("/") else join(table, path)

    def removed(self, at_ms: int, *, data_change: bool) -> Action:
        """Return the action that removes it.

        Args:
            at_ms: The time, epoch ms: VACUUM spares it for a while from then on.
            data_change: Rows go with it; False if another file takes them over.
        """
        action = {
            "path": self.path,
            "deletionTimestamp": at_ms,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": self.add.get("partitionValues") or {},
            "size": self.add.get("size"),
        }
        if self.vector is not None:
            action["deletionVector"] = self.vector
        return {"remove": action}

    def with_vector(self, vector: vectors.Descriptor, *, data_change: bool) -> Action:
        """Return the action that adds it with another deletion vector.

        Args:
            vector: Its descriptor.
            data_change: Rows go by that.
        """
        stats = {**self.stats, "tightBounds": False}
        add = {**self.add, "deletionVector": vector, "stats": json.dumps(stats), "dataChange": data_change}
        return {"add": add}


@dataclass(frozen=True)
class Snapshot:
    """A table as of one version.

    Args:
        table: Its location.
        version: The version.
        protocol: The log's newest `protocol`.
        metadata: The log's newest `metaData`.
        files: Its data files by `DataFile.id`.
        transactions: Application id to the version that it committed last.
    """

    table: str
    version: int
    protocol: Action
    metadata: Action
    files: Mapping[tuple[str, str], DataFile] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, table: str, until: int | None = None) -> Snapshot | None:
        """Replay a table's log.

        Args:
            table: Its location.
            until: The version to stop at. Default: the newest.

        Returns:
            None if there is no table.

        Raises:
            DeltaLogError: the log is not whole.
            DeltaFeatureError: the table uses a feature that is not known.
        """
        names = list_files(join(table, LOG))
        if until is not None:
            names = [name for name in names if name[:20].isdigit() and int(name[:20]) <= until]
        commits = sorted(int(match[1]) for match in map(_COMMIT.fullmatch, names) if match)
        checkpoint, parts = _newest_checkpoint(names)
        if not commits and checkpoint < 0:
            return None
        state = _Replay()
        for part in parts:
            state.apply(_checkpoint_actions(table, part))
        since = [version for version in commits if version > checkpoint]
        newest = since[-1] if since else checkpoint
        if since != list(range(checkpoint + 1, newest + 1)):
            raise DeltaLogError.of(
                f"The log of the Delta table '{table}' is not whole.",
                got=f"commits {since[0]} to {newest} after the checkpoint {checkpoint if checkpoint >= 0 else 'none'}, {newest - checkpoint - len(since)} missing",
                next_step="Restore the missing files of _delta_log.",
            )
        for version in since:
            state.apply(read_commit(table, version))
        return state.snapshot(table, newest)

    def advanced(self) -> Snapshot:
        """Return the newest version, by the commits since."""
        newer = self
        while True:
            actions = read_commit(self.table, newer.version + 1)
            if not actions:
                return newer
            newer = newer.after(actions)

    def after(self, actions: list[Action]) -> Snapshot:
        """Return the table as the next commit leaves it.

        Args:
            actions: The commit's.
        """
        state = _Replay(dict(self.files), dict(self.transactions), self.protocol, self.metadata)
        state.apply(actions)
        return state.snapshot(self.table, self.version + 1)

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}


@dataclass
class _Replay:
    """What counts, as far as actions were applied."""

    files: dict[tuple[str, str], DataFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    protocol: Action | None = None
    metadata: Action | None = None

    def apply(self, actions: list[Action]) -> None:
        """Apply the actions of one commit, or of a checkpoint. Within one, their order says nothing: removes go first."""
        for action in actions:
            if "remove" in action:
                remove = action["remove"]
                self.files.pop((remove["path"], vectors.unique_id(remove.get("deletionVector"))), None)
        for action in actions:
            if "add" in action:
                file = DataFile(action["add"])
                self.files[file.id] = file
            elif "txn" in action:
                self.transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
            elif "protocol" in action:
                self.protocol = action["protocol"]
            elif "metaData" in action:
                self.metadata = action["metaData"]

    def snapshot(self, table: str, version: int) -> Snapshot:
        if self.protocol is None or self.metadata is None:
            raise DeltaLogError.of(
                f"The log of the Delta table '{table}' is not whole.", got="no protocol or no metaData"
            )
        refuse_unreadable(table, self.protocol, self.metadata.get("configuration") or {})
        return Snapshot(table, version, self.protocol, self.metadata, self.files, self.transactions)


def commit_file(table: str, version: int) -> str:
    """Return where a version's commit is."""
    return join(table, LOG, f"{version:020d}.json")


def read_commit(table: str, version: int) -> list[Action]:
    """Return a commit's actions; none if it is not there."""
    raw = read_bytes(commit_file(table, version)) or b""
    return [json.loads(line) for line in raw.splitlines() if line.strip()]


def _newest_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """Return the version and the files of the newest checkpoint that is whole; -1 and none if there is none."""
    found: dict[tuple[int, str], list[str]] = {}
    wanted: dict[tuple[int, str], int] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is None:
            continue
        parts = int(match["parts"] or 1)
        writer = match["uuid"] or f"of {parts}"
        checkpoint = (int(match[1]), writer)
        found.setdefault(checkpoint, []).append(name)
        wanted[checkpoint] = parts
    whole = [checkpoint for checkpoint, files in found.items() if len(files) == wanted[checkpoint]]
    if not whole:
        return -1, []
    newest = max(whole)
    return newest[0], sorted(found[newest])


def _checkpoint_actions(table: str, name: str) -> list[Action]:
    """Return the actions of a checkpoint's file, and of the sidecars that it names."""
    location = join(table, LOG, name)
    if name.endswith(".json"):
        raw = read_bytes(location) or b""
        actions = [json.loads(line) for line in raw.splitlines() if line.strip()]
    else:
        actions = list(_parquet_actions(location))
    for sidecar in [action["sidecar"] for action in actions if "sidecar" in action]:
        actions += _parquet_actions(join(table, LOG, "_sidecars", sidecar["path"]))
    return actions


def _parquet_actions(location: str) -> Iterator[Action]:
    for row in read_parquet(location, columns=list(_KINDS)).to_pylist(maps_as_pydicts="strict"):
        for kind, action in row.items():
            if action is not None:
                yield {kind: {name: value for name, value in action.items() if value is not None}}


def encoded(path: str) -> str:
    """Return a relative path as the log has it."""
    return quote(path, safe="/=-_.~")
