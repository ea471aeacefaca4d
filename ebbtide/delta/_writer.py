"""Writes a table's log: each commit is the file of a version, which is put if it is absent.

Invariant: exactly one writer of a version succeeds. On a local disk a hard link ensures it, in an object store a
    conditional put. Source: Delta transaction log
protocol, "Delta Log Entries"; `LogStore` of Delta's storage library.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ebbtide.delta._checkpoints import checkpoint_if_due, trim_log
from ebbtide.delta._commit import Transaction, named_files, transaction_mark
from ebbtide.delta._cutting import cut_log
from ebbtide.delta._data_file import DataFile, now_ms
from ebbtide.delta._definition import Definition
from ebbtide.delta._features import protects_checkpoints
from ebbtide.delta._log import CHECKSUM, JOINED, NO_CHECKSUM, WITHOUT_COPY, Action, Log, with_checksum
from ebbtide.delta._snapshot import Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError, LeaseLostError, TableMismatchError, VersionTakenError
from ebbtide.storage import Location, Together


class Writer:
    """Creates tables and commits to them, on a local disk or in an object store that has conditional puts."""

    def put_if_absent(self, location: str, data: bytes, behind: Sequence[str] = ()) -> bool:
        """Write a file atomically if it is absent; return whether this writer's file is there.

        If an answer may be lost, a file of the same bytes counts as this writer's: all writers' bytes differ.

        Args:
            location: Its location.
            data: Its content.
            behind: Local files and folders that are on disk before its name.
        """
        path = Location(location.removeprefix("file://"))
        return path.put_if_absent(data, behind)

    def create(self, table: str, definition: Definition, *, name: str, info: Mapping[str, object]) -> None:
        """Create a table: commit version 0, without rows.

        Args:
            table: Its location.
            definition: Its columns and properties.
            name: Its name, shown to readers.
            info: Further fields of the commit's `commitInfo`.

        Raises:
            VersionTakenError: the table exists.
        """
        actions = definition.actions(table_id=str(uuid.uuid4()), name=name)
        self.commit_version(table, 0, actions, {"operation": "CREATE TABLE", **info})

    def create_if_absent(self, table: str, definition: Definition, *, name: str) -> None:
        """Create a table if it does not exist; arguments as `create`."""
        if Log(table).is_there():
            return
        with contextlib.suppress(VersionTakenError):  # another process has created it
            self.create(table, definition, name=name, info={})

    def commit(
        self,
        snapshot: Snapshot,
        actions: Sequence[Action],
        info: Mapping[str, object],
        *,
        adds_rows: bool = True,
    ) -> Snapshot | None:
        """Commit the version that follows one, and the checkpoint that is due with it.

        Args:
            snapshot: A version of the table.
            actions: Its changes.
            info: Fields of the commit's `commitInfo`.
            adds_rows: See `refuse_unwritable`.

        Returns:
            The version that it made; None if another client has committed that version.

        Raises:
            DeltaFeatureError: the table has, or would get, a feature that Ebbtide does not write.
        """
        # Replayed before it is committed: a version that could not be read or written afterwards is refused.
        made = snapshot.after(list(actions))
        made.refuse_other_partitions(actions)
        removes = [action["remove"] for action in actions if "remove" in action]
        deletes = any(remove["dataChange"] for remove in removes)
        # A version that another client committed may have brought a feature since the caller looked, and the actions may bring one.
        for each in (snapshot, made):
            each.refuse_unwritable(
                deletes=deletes,
                adds_rows=adds_rows,
            )
        try:
            self.commit_version(snapshot.table, made.version, actions, info)
        except VersionTakenError:
            return None
        # After the commit: a checkpoint that fails costs later readers time, and nothing else.
        checkpoint_if_due(made.table, made.version, thins_out=not protects_checkpoints(made.protocol))
        return made

    def commit_once(
        self,
        snapshot: Snapshot,
        actions_of: Callable[[Snapshot], Sequence[Action]],
        transaction: Transaction,
        *,
        adds_rows: bool = True,
    ) -> Snapshot | None:
        """Commit a transaction on a table's newest version; tried again if another client commits in between.

        Args:
            snapshot: A version of the table.
            actions_of: Returns the actions for a version; called again for each version that is tried.
            transaction: Identity of the commit.
            adds_rows: See `refuse_unwritable`.

        Returns:
            The version that it made; None if the transaction was committed before.

        Raises:
            LeaseLostError: a later transaction of this application was committed.
        """
        app_id = transaction.app_id
        number = transaction.number
        # Optimistic concurrency. The marks are read again with each version that was lost: a replay of the same step ends here.
        while (last := snapshot.transactions.get(app_id, -1)) < number:
            mark = transaction_mark(app_id, number)
            actions = [*actions_of(snapshot), mark]
            made = self.commit(snapshot, actions, transaction.info, adds_rows=adds_rows)
            if made is not None:
                return made
            snapshot = snapshot.advanced()
        if last > number:
            raise LeaseLostError.of(
                f"Another run has written the Delta table '{snapshot.table}' meanwhile.",
                got=f"step {number}, after step {last}",
                next_step="Nothing was written twice; start the run again.",
            )
        return None

    def join(
        self,
        snapshot: Snapshot,
        files: Sequence[DataFile],
        adds: Sequence[Action],
        info: Mapping[str, Any],
    ) -> Snapshot:
        """Commit files that replace older ones, unless another writer has changed one of those, or the table, in between.

        Args:
            snapshot: The version that was read.
            files: Its data files that are replaced.
            adds: The actions that add the new files.
            info: Further fields of the commit's `commitInfo`.

        Returns:
            The version that it made; else the newest one, without the new files.

        Raises:
            DeltaFeatureError: the table has got a feature that Ebbtide does not write.
        """
        actions = DataFile.replacing(files, adds, data_change=False)
        commit_info = {**JOINED, **info}
        metadata = snapshot.metadata  # the columns and properties of the written files
        # A file that another writer has removed, or given a new vector, has lost rows: its copy would bring them back.
        while snapshot.metadata == metadata and all(file.id in snapshot.files for file in files):
            made = self.commit(snapshot, actions, commit_info)
            if made is not None:
                return made
            snapshot = snapshot.advanced()
        return snapshot

    def commit_version(
        self,
        table: str,
        version: int,
        actions: Iterable[Action],
        info: Mapping[str, Any],
    ) -> None:
        """Commit a version.

        Args:
            table: Its location.
            version: The version after the newest.
            actions: Its changes.
            info: Fields of its `commitInfo`, such as `operation` and `userMetadata`.

        Raises:
            VersionTakenError: another client has committed the version.
            DeltaLogError: a later version exists.
            TableMismatchError: the version before it does not exist: the table was deleted.
        """
        commit_info = {
            "timestamp": now_ms(),
            "txnId": str(uuid.uuid4()),  # no two commits have the same bytes: see `put_if_absent`
            **info,
            CHECKSUM: NO_CHECKSUM,
        }
        actions = list(actions)
        lines = [_line({"commitInfo": commit_info})]
        for action in actions:
            line = _line(action)
            lines.append(line)
        content = "".join(lines).encode()
        # Both before the put: a version in a gap of the log, or in an emptied folder, could not be taken back.
        looks = [partial(_refuse_hole, table, version), partial(_refuse_gone, table, version)]
        if Location(table).is_in_object_store:
            Together.at_once(*looks)
        else:
            for look in looks:
                look()
        location = Log(table).commit_file(version)
        # The order ensures durability: files first, then the commit that names them. A power cut leaves no commit without its files.
        behind = _to_sync(table, actions, is_new=version == 0) if Location(table).is_local else []
        # If two writers write one version, one succeeds; the other reads that commit, and tries the next version.
        with _gone_named(behind):
            is_written = self.put_if_absent(location, with_checksum(content), behind)
        if not is_written:
            raise VersionTakenError.of(
                f"Version {version} of the Delta table '{table}' was committed by another client."
            )

    def sync_files(self, table: str, actions: Iterable[Action], *, is_new: bool) -> None:
        """Sync the files that actions name, so that a commit names no file that a power cut can take.

        Args:
            table: Location of the table, a local one.
            actions: Actions of the commit.
            is_new: The table is not there yet. Else its folder is on disk: its first commit has seen to it, or `settle`.

        Raises:
            DamagedFileError: a file is gone.
        """
        behind = _to_sync(table, actions, is_new=is_new)
        with _gone_named(behind):
            Location.sync_together(behind)

    def trim_log(self, table: str, commits_kept: int | None = None) -> None:
        """Delete the commits of a table that a checkpoint covers; none if its checkpoints are protected.

        Args:
            table: Its location.
            commits_kept: Number of newest commits to keep. Default: those within the table's `delta.logRetentionDuration`, 30 days.
        """
        trim_log(table, commits_kept)

    def cut_log(self, table: str, info: Callable[[Snapshot], dict[str, object]]) -> int:
        """Cut the log of a table: nothing is left in it of what came before its newest version.

        That version becomes one whose commit names no file: a commit without changes follows a newest one that does. Its checkpoint is written, and all
        earlier commits, checkpoints, sidecars and checksum files are deleted. Time travel to before ends. Interrupted, it is done again.

        Args:
            table: Its location.
            info: Returns the fields of the `commitInfo` of that commit.

        Returns:
            Number of the files that were deleted.

        Raises:
            DeltaLogError: the checkpoint could not be written.
        """
        return cut_log(table, self.commit, info)


def _to_sync(table: str, actions: Iterable[Action], *, is_new: bool) -> list[str]:
    """Return what has to be on disk before a commit with some actions; arguments as `Writer.sync_files`."""
    actions = list(actions)
    # A file that only gets another vector was named by an earlier commit: this one removes it with the older vector, and adds it again.
    known = {action["remove"]["path"] for action in actions if "remove" in action}
    known_files = {Log(table).location_of(path) for path in known}
    new_files = [file for file in named_files(table, actions) if file not in known_files]
    return Location(table).with_folders(new_files, is_new=is_new)


@contextlib.contextmanager
def _gone_named(behind: Sequence[str]) -> Iterator[None]:
    """Raise an error that names a file that is gone, where a commit names it."""
    try:
        yield
    except FileNotFoundError as error:
        if error.filename not in behind:
            raise
        raise DamagedFileError.of(
            f"The file '{error.filename}' was deleted before it was committed.",
            next_step="Nothing was committed. Run it again: the file is written again.",
        ) from error


def _refuse_hole(table: str, version: int) -> None:
    """Refuse to put a version that was lost: readers of the next version have read other actions in its place."""
    has_later = Log(table).commit_file(version + 1).is_file()
    if has_later and not Log(table).commit_file(version).is_file():
        raise DeltaLogError.of(
            f"The log of the Delta table '{table}' is not whole.",
            got=f"version {version + 1} without version {version}",
            next_step=f"Restore the missing file of _delta_log. {WITHOUT_COPY}",
        )


def _refuse_gone(table: str, version: int) -> None:
    """Refuse to put a version without the one before it: no reader could read such a log."""
    if version > 0 and not Log(table).has(version - 1):
        raise TableMismatchError.of(
            f"The table at '{table}' is gone.",
            got=f"no version {version - 1} in its log",
            allowed="the table as it was written",
            next_step="Restore it; without a copy run 'ebbtide repair' if it is a sink, a changelog or a quarantine, else 'ebbtide refresh'.",
        )


def _line(action: Action) -> str:
    text = json.dumps(action, separators=(",", ":"))
    return text + "\n"
