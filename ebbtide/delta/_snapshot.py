"""A table as of one version: its data files, properties and transaction marks, replayed from the log.

The newest checkpoint has the state of the log as of its version; the commits after it, without a gap, have the changes since. A data
file is identified by its path and its deletion vector: an update of the vector removes one and adds the other.

Source: Delta transaction log protocol, "Checkpoints", "Action Reconciliation".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ebbtide.delta import _fitting as fitting
from ebbtide.delta import _log as log
from ebbtide.delta import _vectors as vectors
from ebbtide.delta._commit import named_files
from ebbtide.delta._data_file import CHANGES, DataFile, FileId, LostRows, file_id, now_ms
from ebbtide.delta._features import is_on, refuse_unreadable, refuse_unwritable, with_feature, with_vectors
from ebbtide.delta._file_faults import faults_of
from ebbtide.delta._log import KEPT_KINDS, Action, Log, checkpoint_actions, newest_checkpoint, versions_in
from ebbtide.delta._table_copy import copy_version
from ebbtide.delta._unneeded import removed_since, retention_ms
from ebbtide.errors import DamagedFileError, DeltaLogError, HistoryGoneError
from ebbtide.storage import FoundFile, Location

VECTORS = ".bin"
"""End of the names of files of deletion vectors, which have positions alone."""
DOMAINS = "domainMetadata"
"""Feature of a table whose log keeps values by domain."""


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
        seen: Log | None = None,
    ) -> Snapshot | None:
        """Replay a table's log.

        Args:
            table: Its location.
            until: The version to stop at. Default: the newest.
            any_features: Allow every feature, as no row of the table will be read.
            seen: Its log as a look found it. Default: it is listed now.

        Returns:
            The version; None without a table.

        Raises:
            DeltaLogError: the log has a gap.
            DeltaFeatureError: the table uses an unknown feature.
        """
        # One listing. The cost depends on the commits since the newest checkpoint, not on the age of the table.
        names = (seen or Log(table)).names(until)
        checkpoint, state = _from_checkpoint(table, names)
        # In a sorted list those of older commits, which may be thousands, need no look.
        since = versions_in(names[bisect_left(names, f"{checkpoint + 1:020d}") :])
        if not since and checkpoint < 0:
            return None
        log.refuse_gaps(table, checkpoint, since)
        for commit in Log(table).each(since, Log(table).commit):
            state.apply(commit)
        newest = since[-1] if since else checkpoint
        snapshot = state.snapshot(table, newest)
        # An unknown feature may change which rows count: such a table is refused.
        if not any_features:
            refuse_unreadable(table, snapshot.protocol, snapshot.metadata)
        return snapshot

    def advanced(self, until: int | None = None) -> Snapshot:
        """Return the newest version, by reading only the later commits.

        Args:
            until: The version to stop at. Default: the newest.
        """
        newer = self
        while newer.version != until:
            actions = Log(self.table).commit(newer.version + 1)
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
            refuse_unreadable(after.table, after.protocol, after.metadata)
        return after

    def rows(self, columns: pa.Schema, files: Iterable[DataFile] | None = None) -> pa.Table:
        """Read the live rows; see `DataFile.read`.

        Args:
            columns: Columns to read.
            files: Data files to read. Default: all.
        """
        read = self.files.values() if files is None else files
        tables = [file.read(self.table, columns) for file in read]
        return pa.concat_tables([columns.empty_table(), *tables])

    def restoring(self, version: int, *, data_change: bool = True) -> list[Action]:
        """Return the actions that restore the table to an earlier version; this one is its newest.

        Args:
            version: The earlier one.
            data_change: Rows change. Else only their columns do.

        Raises:
            HistoryGoneError: its data files, or the commits that name them, are missing or damaged.
        """
        before = Snapshot.read(self.table, version)
        if before is None or before.version != version:
            raise _gone(self.table, version, "its commit is deleted")
        faults = faults_of(self.table, before.files.values())
        if faults:
            raise _gone(self.table, version, faults)
        # The protocol stays: a feature that was added since is kept.
        wanted = replace(before, protocol=self.protocol)
        return self.becoming(wanted, data_change=data_change)

    def becoming(self, wanted: Snapshot, *, data_change: bool = True) -> list[Action]:
        """Return the actions of one commit from this version to a wanted one, which may exist only in memory.

        Args:
            wanted: The wanted version: protocol, definition and files.
            data_change: Rows change.
        """
        # The difference by file ids: a file of both versions is not named.
        actions: list[Action] = []
        if wanted.protocol != self.protocol:
            actions.append({"protocol": wanted.protocol})
        if wanted.metadata != self.metadata:
            actions.append({"metaData": wanted.metadata})
        for id_, file in wanted.files.items():
            if id_ not in self.files:
                add = {**file.add, "dataChange": data_change}
                actions.append({"add": add})
        goes = []
        for id_, file in self.files.items():
            if id_ not in wanted.files:
                goes.append(file)
        return DataFile.replacing(goes, actions, data_change=data_change)

    def deleting(self, losses: Sequence[LostRows]) -> list[Action]:
        """Return the actions that delete rows; a file without a row left is removed, and gets no vector.

        Args:
            losses: One for each file.
        """
        at_ms = now_ms()
        actions = [loss.file.removed(at_ms, data_change=True) for loss in losses]
        partly = [loss for loss in losses if not loss.is_whole]
        dead = [loss.dead for loss in partly]
        # All vectors of a commit are in one file: one put, and one sync.
        descriptors = vectors.write(self.table, dead)
        for loss, descriptor in zip(partly, descriptors, strict=True):
            add = loss.file.with_vector(descriptor, data_change=True)
            actions.append(add)
        return actions

    def copied_to(self, table: str) -> list[Action]:
        """Copy its data files, and their vectors, into another table with the same columns; return the actions that add them."""
        actions = []
        for file in self.files.values():
            Location(file.location(self.table)).copy_to(file.location(table))
            source = file.vector_location(self.table)
            target = file.vector_location(table)
            if source is not None and target is not None:
                Location(source).copy_to(target)
            add = {**file.add, "dataChange": True}
            actions.append({"add": add})
        return actions

    def copied_as_of(
        self, to: str, expected: Mapping[str, tuple[int, str]] | None = None
    ) -> dict[str, tuple[int, str]]:
        """Copy the table as of this version: its data files, and its log up to it; see `copy_version`."""
        return copy_version(self.table, self.version, self.locations, to, expected)

    def unnamed_files(self) -> list[str]:
        """Return the names of the files below the table's folder that this version, its newest, does not name."""
        named = set(self.locations)
        found = _files_in(self.table)
        return [file.name for file in found if Location(self.table) / file.name not in named]

    @property
    def retention_ms(self) -> int:
        """For how long the table keeps files that a commit has removed; see `ebbtide.delta._unneeded`."""
        return retention_ms(self.configuration, self.table)

    def unneeded_files(self) -> list[FoundFile]:
        """Return the files below the table's folder that VACUUM deletes: neither this version, its newest, nor the retention needs them.

        Raises:
            ConfigError: the table's retention is not an interval of fixed length.
        """
        before_ms = now_ms() - self.retention_ms
        names = Log(self.table).names()
        checkpoint, parts = newest_checkpoint(names)
        since = [version for version in versions_in(names) if version > checkpoint]
        kept = {*self.locations, *removed_since(self.table, parts, since, before_ms)}
        found = _files_in(self.table)
        return [file for file in found if _is_older(file, before_ms) and Location(self.table) / file.name not in kept]

    @property
    def locations(self) -> list[str]:
        """Locations of the data files and vectors of this version."""
        return named_files(self.table, [{"add": file.add} for file in self.files.values()])

    def keeping(self, domain: str, value: str, actions: Sequence[Action]) -> list[Action]:
        """Return actions, and those that keep a value in the log for as long as the table exists, beyond its cleanup.

        Args:
            domain: Name of the value.
            value: The value, as text.
            actions: Actions of the next commit.
        """
        # A commit has one protocol action: the feature of domains is added to the commit's own, if it has one.
        protocol = self.protocol
        kept = []
        for action in actions:
            if "protocol" in action:
                protocol = action["protocol"]
            else:
                kept.append(action)
        if DOMAINS not in (protocol.get("writerFeatures") or ()):
            protocol = with_feature(protocol, DOMAINS, of_readers=False)
        if protocol != self.protocol:
            kept.append({"protocol": protocol})
        kept.append({DOMAINS: {"domain": domain, "configuration": value, "removed": False}})
        return kept

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
    def column_types(self) -> dict[str, Any]:
        """Its columns by name, each with its type as in the log, without comments and other metadata."""
        return fitting.columns_of(self.metadata)

    def has_types(self, columns: pa.Schema) -> bool:
        """Return whether it has columns of these names and types, in any order."""
        return self.column_types == fitting.types_of(columns)

    @property
    def columns(self) -> pa.Schema:
        """The table's columns; each may be null."""
        from deltalake import Schema

        stored = pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())
        return pa.schema([field.with_nullable(True) for field in stored])

    def has_columns(self, columns: pa.Schema) -> bool:
        """Return whether it has these columns, in any order, with the same nullability."""
        return fitting.has_columns(self.metadata, columns)

    def refuse_other_columns(self, columns: pa.Schema) -> None:
        """Refuse a table that another client has given other columns; their order does not matter.

        Args:
            columns: The columns of its pipeline.

        Raises:
            TableMismatchError: it has a further column, lacks one, or has one of another type.
        """
        fitting.refuse_other_columns(self.table, self.metadata, columns)

    def refuse_nulls(self, columns: pa.Schema, actions: Iterable[Action]) -> None:
        """Refuse new data files with nulls in a column that another client made NOT NULL.

        Args:
            columns: The columns of its pipeline.
            actions: Actions to commit.

        Raises:
            TableMismatchError: a file has nulls in such a column, or its nulls are not counted.
        """
        fitting.refuse_nulls(self.table, self.metadata, columns, actions)

    def refuse_unwritable(self, *, deletes: bool = True, adds_rows: bool = True) -> None:
        """Refuse a table that Ebbtide cannot write; each commit does so.

        Args:
            deletes: The commit deletes rows, which an append-only table forbids.
            adds_rows: The commit may add rows; else files that it adds hold rows of files that it removes.

        Raises:
            DeltaFeatureError: it uses a feature whose duties of writers Ebbtide does not fulfil.
        """
        refuse_unwritable(self.table, self.protocol, self.metadata, deletes=deletes, adds_rows=adds_rows)

    def refuse_other_partitions(self, actions: Iterable[Action]) -> None:
        """Refuse new data files under other partition columns than those of this version: readers would miss or mix their rows.

        Args:
            actions: The actions of the commit that makes this version.

        Raises:
            TableMismatchError: another client has partitioned the table otherwise while the files were written.
        """
        fitting.refuse_other_partitions(self.table, self.partitioned, actions)

    def with_vectors(self) -> list[Action]:
        """Return the actions that switch deletion vectors on; none if they are on."""
        return with_vectors(self.protocol, self.metadata)

    @property
    def partitioned(self) -> tuple[str, ...]:
        """Its partition columns."""
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}

    def is_on(self, name: str) -> bool:
        """Return whether a property of the table is true; one that is not there is false."""
        return is_on(self.configuration, name)


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


def _from_checkpoint(table: str, names: list[str]) -> tuple[int, _Replay]:
    """Return the version of the newest checkpoint that can be read, and its state; -1 and an empty state without one."""
    checkpoint, parts = newest_checkpoint(names)
    state = _Replay()
    try:
        for part in parts:
            actions = checkpoint_actions(table, part, KEPT_KINDS)
            state.apply(actions)
    except (DamagedFileError, DeltaLogError):
        # A power cut may leave a torn checkpoint. An older one has the same state together with all commits since, if none of
        # them is missing.
        older_names = [name for name in names if name not in parts]
        checkpoint_before, state_before = _from_checkpoint(table, older_names)
        since = range(checkpoint_before + 1, checkpoint + 1)
        if not set(since) <= set(versions_in(names)):
            raise
        return checkpoint_before, state_before
    return checkpoint, state


def _files_in(table: str) -> Iterator[FoundFile]:
    """Yield the data files, vectors and change files below a table, from any writer, by their names there."""
    for file in Location(table).walk():
        if file.name.endswith((".parquet", VECTORS)):
            yield file
    changes = Location(table) / CHANGES
    if changes.is_folder():
        for file in changes.walk():
            yield file._replace(name=f"{CHANGES}/{file.name}")


def _is_older(file: FoundFile, before_ms: int) -> bool:
    """Return whether a file was last written before a time, epoch ms; unknown: it was not."""
    return file.modified_ms is not None and file.modified_ms < before_ms


def _gone(table: str, version: int, reason: str) -> HistoryGoneError:
    return HistoryGoneError.of(
        f"The table '{table}' cannot be brought back to version {version}.",
        got=reason,
        allowed="a version whose files are all there, and whole",
        next_step="Restore them from a copy, name another step, or run 'ebbtide refresh' to rebuild all tables from the source.",
    )
