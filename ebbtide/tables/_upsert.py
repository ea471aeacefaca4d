"""Upserts without a MERGE: new rows are written to new files, old ones are deleted by vectors or by rewriting their files.

`ebbtide.tables._pieces` does the work on the rows, in tasks; what is here commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.delta import (
    Action,
    DataFile,
    Definition,
    LostRows,
    Snapshot,
    Transaction,
    Writer,
)
from ebbtide.executors import InProcess
from ebbtide.faults import Fault
from ebbtide.tables._bounded import bounded_columns, hiding_properties, refuse_shown
from ebbtide.tables._joining import (
    by_range,
    emptied_files,
    in_batches,
    in_groups,
    is_small,
    joinable,
    n_ranges_for,
    small_files,
    wide_files,
)
from ebbtide.tables._pieces import Applied, ApplyPiece, CutFile, JoinFiles, Piece, TableFiles, WholeUpsert, WriteLeft
from ebbtide.tables._replaced_rows import FileId, ReplacedRows, Upsert, Version

if TYPE_CHECKING:
    from ebbtide.executors import Executor

Back = Callable[[Snapshot], list[Action]]
"""Returns the log actions that bring a version back to an earlier one."""


class Upserter:
    """Writes one table.

    Args:
        table: Its location.
        columns: Its columns.
        key: Names of the key's columns.
        writer: Writes it.
        by_vectors: Old rows are deleted by deletion vectors. Else their files are rewritten, for readers without vectors.
        with_images: The change feed shows the row before and after an update, from a separate file. Otherwise readers derive a
            delete and an insert from the data files.
        hidden: Columns whose values the log does not show.
    """

    def __init__(
        self,
        table: str,
        columns: pa.Schema,
        key: Sequence[str],
        writer: Writer,
        *,
        by_vectors: bool = True,
        with_images: bool = True,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        self._by_vectors = by_vectors
        self._with_images = with_images
        self._table = table
        self._columns = columns
        self._definition = Definition(columns, hiding_properties(columns, hidden))
        self._writer = writer
        self._hidden = hidden
        bounded = bounded_columns(columns, hidden)
        self._files = TableFiles(table, columns, tuple(key), tuple(bounded), keeps_rows=with_images)
        self._replaced = ReplacedRows(table, columns, key, with_rows=with_images)
        self._snapshot: Snapshot | None = None
        self._is_by_tasks = False

    def apply(
        self,
        upsert: Upsert,
        committed: Transaction,
        back: Back | None = None,
    ) -> None:
        """Commit a step's changes once, which are here; if they were committed, nothing happens.

        Args:
            upsert: The changes.
            committed: The transaction.
            back: The table goes back first, in the same commit, so that readers see nothing in between. Readers then derive the
                change feed from the data files.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: another client has given it other columns.
            HistoryGoneError: the version to restore no longer exists.
        """
        self.apply_pieces(InProcess(), [WholeUpsert(upsert)], committed, back)

    def apply_pieces(
        self,
        executor: Executor,
        pieces: Sequence[Piece],
        committed: Transaction,
        back: Back | None = None,
    ) -> None:
        """Commit a step's changes once, each part by a task; errors as `apply`.

        Args:
            executor: Runs the tasks.
            pieces: The changes, in parts of whole keys.
            committed: The transaction.
            back: See `apply`.
        """
        adds: list[Action] = []
        self._is_by_tasks = len(pieces) > 1

        def changes(found: Snapshot, *, feeds: bool) -> list[Action]:
            # Called for each version that is tried: another client may have moved the old rows. The new ones are written once.
            self._refuse_altered(found)
            version = Version.of(found)
            work = ApplyPiece(self._files, version, writes_rows=not adds, feeds=feeds)
            parts = executor.map(work, pieces, at=lambda piece: piece.middle())
            adds.extend(add for part in parts for add in part.adds)
            dead = _joined(parts)
            feed = self._feed(executor, pieces, parts, version) if feeds and dead else []
            return self._changes(executor, found, adds, dead, feed)

        def actions_of(found: Snapshot) -> list[Action]:
            if back is None:
                return changes(found, feeds=self._with_images)
            # Two changes in one commit: the first is applied in memory, and the commit holds the difference to the second.
            before = found.after(back(found))
            return found.becoming(before.after(changes(before, feeds=False)))

        self._commit(actions_of, committed)

    def replace(
        self,
        keys: pa.Table,
        adds: Sequence[Action],
        committed: Transaction,
    ) -> None:
        """Commit once that some keys have other rows; errors as `apply`.

        Args:
            keys: The keys, once each: all their rows are deleted.
            adds: The actions that add the files with the new rows.
            committed: The transaction.
        """
        gone_rows = Upsert(keys, self._columns.empty_table())

        def actions_of(found: Snapshot) -> list[Action]:
            self._refuse_altered(found)
            work = ApplyPiece(self._files, Version.of(found), writes_rows=False, feeds=False)
            dead = _joined([work(WholeUpsert(gone_rows))])
            return self._changes(InProcess(), found, adds, dead, [])

        self._commit(actions_of, committed)

    def _changes(
        self,
        executor: Executor,
        found: Snapshot,
        adds: Sequence[Action],
        dead: Mapping[FileId, BitMap64],
        feed: Sequence[Action],
    ) -> list[Action]:
        """Return the actions that apply changes to a version.

        Args:
            found: The version.
            adds: Add the files of the new rows.
            dead: Id of a file to the positions of all its rows that do not count afterwards.
            feed: Name the files of the change feed.
        """
        found.refuse_nulls(self._columns, adds)
        actions = [*adds, *self._removals(executor, found, dead, is_derived=not feed)]
        if dead and self._by_vectors:
            actions += found.with_vectors()
        # A table from before its columns were declared personal gets the property here.
        return list(self._definition.completing(found, [*actions, *feed]))

    def _feed(
        self, executor: Executor, pieces: Sequence[Piece], parts: Sequence[Applied], version: Version
    ) -> list[Action]:
        """Return the actions of the change feed's files: also of parts that replace no row, if another part does."""
        without = [piece for piece, part in zip(pieces, parts, strict=True) if part.feed is None]
        work = ApplyPiece(self._files, version, writes_rows=False, feeds=True, always_feeds=True)
        return [action for part in [*parts, *executor.map(work, without)] for action in part.feed or ()]

    def _commit(
        self,
        actions_of: Callable[[Snapshot], list[Action]],
        committed: Transaction,
    ) -> None:
        # A version that another client has committed since shows by the commit, which then fails: no look before it.
        known = self._known()
        self._replaced.follow(Version.of(known))
        made = self._writer.commit_once(known, actions_of, committed)
        self._snapshot = made or self._snapshot

    def fold(self, executor: Executor, *, everything: bool = False) -> None:
        """Join small files, rewrite large ones with half of their rows deleted, and cut those with keys of several hosts; no row changes.

        Args:
            executor: Runs the tasks.
            everything: Join all small files, and cut all. Else join only those of a size class that is full, and cut a few after a
                step that was applied by tasks.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: another client has given it other columns.
        """
        known = self._snapshot
        # The log is read only if there seems to be something to gain.
        if known is not None and not any(self._files_to_fold(executor, known, everything=everything)):
            self._replaced.follow(Version.of(known))
            return
        snapshot = self._newest()
        self._refuse_altered(snapshot)
        group, wide = self._files_to_fold(executor, snapshot, everything=everything)
        self._snapshot = self._joined(executor, snapshot, group)
        if wide:
            cut = CutFile(self._files, Version.of(snapshot), n_ranges_for(executor.n_hosts))
            added = executor.map(cut, wide, is_little=False)
            self._snapshot = self._joined_apart(self._snapshot, [[file] for file in wide], added)

    def _files_to_fold(
        self, executor: Executor, snapshot: Snapshot, *, everything: bool
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of a version that are joined or rewritten, and those that are cut; arguments as `fold`."""
        wide: list[DataFile] = []
        large = [file for file in snapshot.files.values() if not is_small(file)]
        if large and (self._is_by_tasks or everything):
            wide = wide_files(large, executor.n_hosts)
        if wide and not everything:  # one for each task that runs at a time: a step takes little longer
            wide = wide[: executor.parallelism]
        left = {file.id for file in wide}
        group = [file for file in _files_to_join(snapshot, everything=everything) if file.id not in left]
        return group, wide

    def _joined(self, executor: Executor, snapshot: Snapshot, group: Sequence[DataFile]) -> Snapshot:
        """Join some files of a version; return the newest one then."""
        batches = [batch for files in by_range(group) for batch in in_batches(files)]
        is_little = sum(file.size for file in group) <= executor.LITTLE_BYTES
        work = JoinFiles(self._files, Version.of(snapshot))
        added = executor.map(work, batches, is_little=is_little, at=lambda files: files[0].key_range().middle)
        if is_little and group:
            return self._writer.join(snapshot, group, [add for adds in added for add in adds], {})
        return self._joined_apart(snapshot, batches, added)

    def _joined_apart(
        self, snapshot: Snapshot, batches: Sequence[Sequence[DataFile]], added: Sequence[Sequence[Action]]
    ) -> Snapshot:
        """Commit what replaces batches of files, one by one: if another writer changes a file meanwhile, only its batch is lost."""
        for joined, adds in zip(batches, added, strict=True):
            snapshot = self._writer.join(snapshot, joined, adds, {})
        return snapshot

    def begin(self, newest: Snapshot) -> None:
        """Begin with the newest version of the table, read by the caller; one that another client has altered is refused."""
        self._refuse_altered(newest)
        self._go_on_from(newest)

    def _refuse_altered(self, found: Snapshot) -> None:
        found.refuse_unwritable()
        refuse_shown(found, self._hidden)
        found.refuse_other_columns(self._columns)

    def _known(self) -> Snapshot:
        """Return the newest version that is known; the newest one if none is."""
        return self._snapshot or self._newest()

    def _newest(self) -> Snapshot:
        known = self._snapshot
        newest = Snapshot.read(self._table) if known is None else known.advanced()
        if newest is None:
            raise Fault.of("sink", "gone", location=self._table).error
        self._go_on_from(newest)
        return newest

    def _go_on_from(self, newest: Snapshot) -> None:
        self._snapshot = newest
        self._replaced.follow(Version.of(newest))

    def _removals(
        self,
        executor: Executor,
        found: Snapshot,
        dead: Mapping[FileId, BitMap64],
        *,
        is_derived: bool,
    ) -> list[Action]:
        """Return the actions that delete rows from their files; arguments as `_changes`.

        Args:
            is_derived: Readers derive the change feed from these actions.
        """
        lost = []
        for id_, positions in dead.items():
            file = found.files[id_]
            # Of a removed file delta-rs derives deletes of all rows, also of those that its vector had deleted before.
            must_stay = is_derived and self._by_vectors and file.vector is not None
            lost.append(LostRows(file, positions, is_whole=len(positions) == file.rows and not must_stay))
        if self._by_vectors:
            return found.deleting(lost)
        partly = [each for each in lost if not each.is_whole]
        work = WriteLeft(self._files, Version.of(found))
        # Small ones are written together.
        groups = list(in_groups(partly, lambda each: each.file.size, executor.LITTLE_BYTES))
        is_little = sum(each.file.size for each in partly) <= executor.LITTLE_BYTES
        left = [add for adds in executor.map(work, groups, is_little=is_little) for add in adds]
        return DataFile.replacing([each.file for each in lost], left)


def _joined(parts: Sequence[Applied]) -> dict[FileId, BitMap64]:
    """Return the positions of all parts that do not count afterwards, once for each file."""
    dead: dict[FileId, BitMap64] = {}
    for part in parts:
        for id_, positions in part.dead.items():
            dead[id_] = dead[id_] | positions if id_ in dead else positions
    return dead


def _files_to_join(snapshot: Snapshot, *, everything: bool) -> list[DataFile]:
    """Return the files that a fold joins or rewrites; arguments as `Upserter.fold`."""
    group = []
    for files in joinable(snapshot.files.values()):
        group += emptied_files(files)
        small = [file for file in files if is_small(file)] if everything else small_files(files)
        # One small file without a vector has nothing to be joined with, and nothing to lose.
        is_one_whole = len(small) == 1 and small[0].vector is None
        if not is_one_whole:
            group += small
    return group
