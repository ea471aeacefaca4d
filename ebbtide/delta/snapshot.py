"""A table as of one version: its data files, properties and transaction marks, replayed from the log.

The newest checkpoint holds what counts as of its version; the commits after it, none missing, say what changed since. A
data file is known by its path and its deletion vector: an update of the vector removes one and adds the other.

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

from ebbtide.delta import log, vectors
from ebbtide.delta.checkpoint_files import checkpoint_actions, newest_checkpoint
from ebbtide.delta.features import refuse_unreadable
from ebbtide.delta.log import LOG
from ebbtide.delta.log import actions as read_commit
from ebbtide.errors import DamagedFileError, DeltaLogError
from ebbtide.storage.paths import is_file, join, list_files

Action = log.Action
"""A line of a commit by its kind, or what stands under the kind."""
FileId = tuple[str, str]
"""What the log adds and removes: a data file's path, and what distinguishes its vector."""
_COMMIT = re.compile(r"(\d{20})\.json")


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
    def id(self) -> FileId:
        """What the log adds and removes: the file, with its vector."""
        return file_id(self.add)

    @property
    def vector(self) -> vectors.Descriptor | None:
        """Descriptor of its deletion vector; None if all rows count."""
        return self.add.get("deletionVector")

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Its statistics; empty if there are none."""
        text = self.add.get("stats") or "{}"
        stats: dict[str, Any] = json.loads(text)
        return stats

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.add["size"])

    @property
    def partition(self) -> Mapping[str, str | None]:
        """The values of partition columns, which are not in the file, as text."""
        return self.add.get("partitionValues") or {}

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
        if self.rows is None or not self.vector:
            return self.rows
        n_gone: int = self.vector["cardinality"]
        return self.rows - n_gone

    def least(self, column: str) -> Any:
        """Return the least value of a column, or one below it; None if it is not known."""
        least = self.stats.get("minValues", {})
        return least.get(column)

    def greatest(self, column: str) -> Any:
        """Return the greatest value of a column, or one above it; None if it is not known."""
        greatest = self.stats.get("maxValues", {})
        return greatest.get(column)

    def is_all_null(self, column: str) -> bool:
        """Return whether a column is known to have no value in any row."""
        nulls = self.stats.get("nullCount", {})
        return self.rows is not None and nulls.get(column) == self.rows

    def location(self, table: str) -> str:
        """Return where it is.

        Args:
            table: The table's location.

        Raises:
            DeltaLogError: out of the table.
        """
        return log.file_location(table, self.path)

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
            # With it, the protocol requires partition values and size beside the path.
            "extendedFileMetadata": True,
            "partitionValues": self.partition,
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
        # Bounds of rows that no longer count may be too wide from now on: the protocol has a field that says so.
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
        domains: What stands in `domainMetadata`, by domain: it outlives the commits that wrote it.
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
            any_features: No row of the table will be read: whatever features it uses are fine.

        Returns:
            None if there is no table.

        Raises:
            DeltaLogError: the log is not whole.
            DeltaFeatureError: the table uses a feature that is not known.
        """
        # One listing: cost is the commits since the newest checkpoint, however old the table is.
        names = _log_names(table, until)
        commits = _commits(names)
        checkpoint, state = _from_checkpoint(table, names, commits)
        if not commits and checkpoint < 0:
            return None
        since = [version for version in commits if version > checkpoint]
        _refuse_gaps(table, checkpoint, since)
        for version in since:
            commit = read_commit(table, version)
            state.apply(commit)
        newest = since[-1] if since else checkpoint
        snapshot = state.snapshot(table, newest)
        # A feature that is not known may change which rows count: nothing of such a table is read by guess.
        if not any_features:
            refuse_unreadable(table, snapshot.protocol, snapshot.configuration)
        return snapshot

    def advanced(self, until: int | None = None) -> Snapshot:
        """Return the newest version, by the commits since.

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
        """Return the table as the next commit leaves it.

        Args:
            actions: The commit's.
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
        # The newest version was judged already; only a change of these two can make it unreadable.
        if (after.protocol, after.metadata) != (self.protocol, self.metadata):
            refuse_unreadable(after.table, after.protocol, after.configuration)
        return after

    @property
    def id(self) -> str:
        """What distinguishes the table from any other, one made later in its place too."""
        return str(self.metadata["id"])

    @property
    def live_rows(self) -> int | None:
        """Rows that count, of all files; None if a file's were not noted."""
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
    """What counts, as far as actions were applied."""

    files: dict[FileId, DataFile] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    protocol: Action | None = None
    metadata: Action | None = None

    def apply(self, actions: list[Action]) -> None:
        """Apply the actions of one commit, or of a checkpoint. Within one, their order says nothing: removes go first."""
        # An update of a vector removes and adds the same path in one commit: the id has the vector, so that neither undoes the other.
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
    """Return the names of the log's files, those of later versions left out."""
    names = list_files(join(table, LOG))
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
    if is_file(log.commit_file(table, version)):
        return True
    names = _log_names(table, version)
    checkpoint, _ = newest_checkpoint(names)
    return checkpoint == version


def _refuse_gaps(table: str, checkpoint: int, since: list[int]) -> None:
    """Refuse a log that misses a commit after its checkpoint, or after the beginning."""
    if not since:
        return
    newest = since[-1]
    # Commits are numbered without a gap, so that counting them shows one that is missing.
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
    """Return the newest checkpoint that can be read, and what counts as of it; -1 and nothing without one.

    A power cut may leave one torn. An older one says the same together with all commits since, if none is missing.
    """
    checkpoint, parts = newest_checkpoint(names)
    state = _Replay()
    try:
        for part in parts:
            counting = checkpoint_actions(table, part)
            state.apply(counting)
    except (DamagedFileError, DeltaLogError):
        # Torn: the next older one is tried, and all commits after it must still be there to take its place.
        others = [name for name in names if name not in parts]
        checkpoint_before, state_before = _from_checkpoint(table, others, commits)
        since = range(checkpoint_before + 1, checkpoint + 1)
        if not set(since) <= set(commits):
            raise
        return checkpoint_before, state_before
    return checkpoint, state


def encoded(path: str) -> str:
    """Return a relative path as the log has it."""
    return quote(path, safe="/=-_.~")
