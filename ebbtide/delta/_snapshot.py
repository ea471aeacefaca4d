"""A table as of one version: its data files, properties and transaction marks, replayed from the log.

The newest checkpoint has the state of the log as of its version; the commits after it, without a gap, have the changes since. A data
file is identified by its path and its deletion vector: an update of the vector removes one and adds the other.

Source: Delta transaction log protocol, "Checkpoints", "Action Reconciliation".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from ebbtide.delta import _log as log
from ebbtide.delta import _vectors as vectors
from ebbtide.delta._checkpoint_files import checkpoint_actions, newest_checkpoint
from ebbtide.delta._features import refuse_unreadable
from ebbtide.delta._log import LOG
from ebbtide.delta._log import actions as read_commit
from ebbtide.errors import DamagedFileError, DeltaLogError
from ebbtide.storage import Location

Action = log.Action
"""A line of a commit by its kind, or the value under the kind."""
FileId = tuple[str, str]
"""A data file's path, and the unique id of its deletion vector: the key by which the log adds and removes."""
_COMMIT = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Args:
        add: The value under `add` in the log.
    """

    add: Action

    @property
    def path(self) -> str:
        """Path as in the log: relative to the table or absolute, percent-encoded."""
        return str(self.add["path"])

    @property
    def id(self) -> FileId:
        """The key by which the log adds and removes the file, with its vector."""
        return file_id(self.add)

    @property
    def vector(self) -> vectors.Descriptor | None:
        """Descriptor of its deletion vector; None if all rows count."""
        return self.add.get("deletionVector")

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Its statistics; empty without any."""
        text = self.add.get("stats") or "{}"
        stats: dict[str, Any] = json.loads(text)
        return stats

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.add["size"])

    @property
    def unpacked_bytes(self) -> int:
        """The bytes that its rows take in memory, as far as is noted: equal values are stored in few bytes."""
        return max(self.size, int(self.tags.get(log.UNPACKED, 0)))

    @property
    def partition(self) -> Mapping[str, str | None]:
        """The values of partition columns, which are not in the file, as text."""
        return self.add.get("partitionValues") or {}

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of its writer."""
        return self.add.get("tags") or {}

    @property
    def rows(self) -> int | None:
        """Number of rows in the file, deleted ones included; None if unknown."""
        return self.stats.get("numRecords")

    @property
    def live_rows(self) -> int | None:
        """Number of rows that count; None if unknown."""
        if self.rows is None or not self.vector:
            return self.rows
        n_gone: int = self.vector["cardinality"]
        return self.rows - n_gone

    def least(self, column: str) -> Any:
        """Return a lower bound of a column; None if unknown."""
        least = self.stats.get("minValues", {})
        return least.get(column)

    def greatest(self, column: str) -> Any:
        """Return an upper bound of a column; None if unknown."""
        greatest = self.stats.get("maxValues", {})
        return greatest.get(column)

    def is_all_null(self, column: str) -> bool:
        """Return whether a column is known to be null in each row."""
        nulls = self.stats.get("nullCount", {})
        return self.rows is not None and nulls.get(column) == self.rows

    def location(self, table: str) -> str:
        """Return its location.

        Args:
            table: Location of the table.

        Raises:
            DeltaLogError: it is outside of the table.
        """
        return log.file_location(table, self.path)

    def removed(self, at_ms: int, *, data_change: bool) -> Action:
        """Return the action that removes it.

        Args:
            at_ms: The time, epoch ms, from which VACUUM counts its retention.
            data_change: Rows are deleted with it; False if another file has them.
        """
        action = {
            "path": self.path,
            "deletionTimestamp": at_ms,
            "dataChange": data_change,
            # With it, the protocol requires partition values and size beside the path.
            "extendedFileMetadata": True,
            "partitionValues": self.partition,
            "size": self.add.get("size"),
        }
        if self.vector is not None:
            action["deletionVector"] = self.vector
        return {"remove": action}

    def with_vector(self, vector: vectors.Descriptor, *, data_change: bool) -> Action:
        """Return the action that adds it with a new deletion vector.

        Args:
            vector: Descriptor of the vector.
            data_change: The vector deletes rows.
        """
        # Bounds may be too wide now, since they include deleted rows: the protocol has a field for that.
        stats = {
            **self.stats,
            "tightBounds": False,
        }
        add = {
            **self.add,
            "deletionVector": vector,
            "stats": json.dumps(stats),
            "dataChange": data_change,
        }
        return {"add": add}


def file_id(action: Action) -> FileId:
    """Return the `DataFile.id` that an `add` or a `remove` names."""
    vector = action.get("deletionVector")
    return str(action["path"]), vectors.unique_id(vector)


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
        domains: The log's `domainMetadata`, by domain; checkpoints keep it beyond the commits that wrote it.
    """

    table: str
    version: int
    protocol: Action
    metadata: Action
    files: Mapping[FileId, DataFile] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        table: str,
        until: int | None = None,
        *,
        any_features: bool = False,
    ) -> Snapshot | None:
        """Replay a table's log.

        Args:
            table: Its location.
            until: The version to stop at. Default: the newest.
            any_features: Allow every feature, as no row of the table will be read.

        Returns:
            The version; None without a table.

        Raises:
            DeltaLogError: the log has a gap.
            DeltaFeatureError: the table uses an unknown feature.
        """
        # One listing. The cost is that of the commits since the newest checkpoint, whatever the age of the table.
        names = _log_names(table, until)
        commits = _commits(names)
        checkpoint, state = _from_checkpoint(table, names, commits)
        if not commits and checkpoint < 0:
            return None
        since = [version for version in commits if version > checkpoint]
        _refuse_gaps(table, checkpoint, since)
        for commit in log.each(table, since, read_commit):
            state.apply(commit)
        newest = since[-1] if since else checkpoint
        snapshot = state.snapshot(table, newest)
        # An unknown feature may change which rows count: such a table is refused.
        if not any_features:
            refuse_unreadable(table, snapshot.protocol, snapshot.configuration)
        return snapshot

    def advanced(self, until: int | None = None) -> Snapshot:
        """Return the newest version, by reading only the later commits.

        Args:
            until: The version to stop at. Default: the newest.
        """
        newer = self
        while newer.version != until:
            actions = read_commit(self.table, newer.version + 1)
            if not actions:
                break
            newer = newer.after(actions)
        return newer

    def after(self, actions: list[Action]) -> Snapshot:
        """Return the version after the next commit.

        Args:
            actions: Actions of the commit.
        """
        # Copies, since versions are values: O(files) for each commit that is applied.
        state = _Replay(
            files=dict(self.files),
            transactions=dict(self.transactions),
            domains=dict(self.domains),
            protocol=self.protocol,
            metadata=self.metadata,
        )
        state.apply(actions)
        after = state.snapshot(self.table, self.version + 1)
        # This version was judged before: only a change of these two can make the next one unreadable.
        if (after.protocol, after.metadata) != (self.protocol, self.metadata):
            refuse_unreadable(after.table, after.protocol, after.configuration)
        return after

    @property
    def id(self) -> str:
        """Unique id of the table; a table made later at the same location has a new one."""
        return str(self.metadata["id"])

    @property
    def live_rows(self) -> int | None:
        """Number of rows that count; None if unknown for a file."""
        n_rows = 0
        for file in self.files.values():
            if file.live_rows is None:
                return None
            n_rows += file.live_rows
        return n_rows

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}


@dataclass
class _Replay:
    """The state of a log while actions are applied."""

    files: dict[FileId, DataFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    protocol: Action | None = None
    metadata: Action | None = None

    def apply(self, actions: list[Action]) -> None:
        """Apply the actions of one commit, or of a checkpoint."""
        # The order within a commit has no meaning: removes are applied first. An update of a vector removes and adds one path in
        # the same commit; the ids differ by the vector, so that neither undoes the other.
        for action in actions:
            if "remove" in action:
                removed = file_id(action["remove"])
                self.files.pop(removed, None)
        for action in actions:
            if "add" in action:
                file = DataFile(action["add"])
                self.files[file.id] = file
            elif "txn" in action:
                mark = action["txn"]
                app_id = mark["appId"]
                self.transactions[app_id] = int(mark["version"])
            elif "domainMetadata" in action:
                domain = action["domainMetadata"]
                self.domains[domain["domain"]] = domain.get("configuration", "")
                if domain.get("removed"):
                    del self.domains[domain["domain"]]
            elif "protocol" in action:
                self.protocol = action["protocol"]
            elif "metaData" in action:
                self.metadata = action["metaData"]

    def snapshot(self, table: str, version: int) -> Snapshot:
        if self.protocol is None or self.metadata is None or "schemaString" not in self.metadata:
            raise DeltaLogError.of(
                f"The log of the Delta table '{table}' is not whole.",
                got="no protocol, or no metaData with a schema",
                next_step=f"Restore the missing files of _delta_log. {log.WITHOUT_COPY}",
            )
        return Snapshot(
            table,
            version,
            protocol=self.protocol,
            metadata=self.metadata,
            files=self.files,
            transactions=self.transactions,
            domains=self.domains,
        )


def _log_names(table: str, until: int | None) -> list[str]:
    """Return the names of the log's files, without those of later versions."""
    names = (Location(table) / LOG).list_files()
    if until is None:
        return names
    early = []
    for name in names:
        version = name[:20]
        if version.isdigit() and int(version) <= until:
            early.append(name)
    return early


def _commits(names: Iterable[str]) -> list[int]:
    """Return the versions of the commits among the log's files, ascending."""
    commits = []
    for name in names:
        match = _COMMIT.fullmatch(name)
        if match is not None:
            commits.append(int(match[1]))
    return sorted(commits)


def has_version(table: str, version: int) -> bool:
    """Return whether a version of a table is still in its log: its commit, or a checkpoint of it.

    Args:
        table: Its location.
        version: The version.
    """
    if Location(log.commit_file(table, version)).is_file():
        return True
    names = _log_names(table, version)
    checkpoint, _ = newest_checkpoint(names)
    return checkpoint == version


def _refuse_gaps(table: str, checkpoint: int, since: list[int]) -> None:
    """Refuse a log with a gap after its checkpoint, or after the beginning."""
    if not since:
        return
    newest = since[-1]
    # Commits are numbered consecutively: their count shows whether one is missing.
    n_missing = newest - checkpoint - len(since)
    if n_missing == 0:
        return
    after = checkpoint if checkpoint >= 0 else "none"
    raise DeltaLogError.of(
        f"The log of the Delta table '{table}' is not whole.",
        got=f"commits {since[0]} to {newest} after the checkpoint {after}, {n_missing} missing",
        next_step=f"Restore the missing files of _delta_log. {log.WITHOUT_COPY}",
    )


def _from_checkpoint(table: str, names: list[str], commits: list[int]) -> tuple[int, _Replay]:
    """Return the version of the newest checkpoint that can be read, and its state; -1 and an empty state without one."""
    checkpoint, parts = newest_checkpoint(names)
    state = _Replay()
    try:
        for part in parts:
            actions = checkpoint_actions(table, part)
            state.apply(actions)
    except (DamagedFileError, DeltaLogError):
        # A power cut may leave a torn checkpoint. An older one has the same state together with all commits since, if none of
        # them is missing.
        older_names = [name for name in names if name not in parts]
        checkpoint_before, state_before = _from_checkpoint(table, older_names, commits)
        since = range(checkpoint_before + 1, checkpoint + 1)
        if not set(since) <= set(commits):
            raise
        return checkpoint_before, state_before
    return checkpoint, state


def encoded(path: str) -> str:
    """Return a relative path as written in the log."""
    return quote(path, safe="/=-_.~")
