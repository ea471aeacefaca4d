"""Upserts without a MERGE: new rows are written to new files, old ones are deleted by vectors or by rewriting their files.

`ebbtide.tables._replaced_rows` finds the old rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ebbtide.columns import row_codes
from ebbtide.delta import (
    Action,
    DataFile,
    Definition,
    LostRows,
    Snapshot,
    Transaction,
    Writer,
    write_files,
)
from ebbtide.faults import Fault
from ebbtide.tables._bounded import bounded_columns, hiding_properties
from ebbtide.tables._joining import ROWS_PER_FILE, emptied_files, in_batches, is_small, small_files
from ebbtide.tables._replaced_rows import FileLoss, ReplacedRows, Upsert

_IMAGE_KINDS = ("update_preimage", "delete", "update_postimage", "insert")
_BEFORE, _DELETED, _AFTER, _INSERTED = range(4)
Back = Callable[[Snapshot], list[Action]]
"""Returns the log actions that bring a version back to an earlier one."""
Parts = Callable[[], Iterator[Upsert]]
"""Returns the changes of a step in parts of whole keys, the same each time."""


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
        self._bounded = bounded_columns(columns, hidden)
        self._definition = Definition(columns, hiding_properties(columns, hidden))
        self._key = list(key)
        self._writer = writer
        self._replaced = ReplacedRows(table, columns, key, with_rows=with_images)
        self._snapshot: Snapshot | None = None

    def apply(
        self,
        upsert: Upsert,
        committed: Transaction,
        back: Back | None = None,
    ) -> None:
        """Commit a step's changes once; if they were committed, nothing happens.

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
        self.apply_parts(lambda: iter([upsert]), committed, back)

    def apply_parts(
        self,
        parts: Parts,
        committed: Transaction,
        back: Back | None = None,
    ) -> None:
        """Commit a step's changes once, with those of one part in memory at a time; arguments and errors as `apply`.

        Args:
            parts: Returns the changes in parts of whole keys, the same each time.
            committed: The transaction.
            back: See `apply`.
        """
        self._known()  # whose copies the new files get
        # Written once, outside: a version that is tried again needs the same new files, and only other removals.
        adds = [add for part in parts() for add in self._written(part.rows)]

        def actions_of(found: Snapshot) -> list[Action]:
            if back is None:
                return self._changes(found, parts, adds, with_images=self._with_images)
            # Two changes in one commit: the first is applied in memory, and the commit holds the difference to the second.
            before = found.after(back(found))
            changes = self._changes(before, parts, adds)
            return found.becoming(before.after(changes))

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
        self._commit(lambda found: self._changes(found, lambda: iter([gone_rows]), adds), committed)

    def _changes(
        self, found: Snapshot, parts: Parts, adds: Sequence[Action], *, with_images: bool = False
    ) -> list[Action]:
        """Return the actions that apply an upsert to a version.

        Called for each version that is tried: another client may have moved the old rows.
        """
        self._refuse_altered(found, adds)
        by_part = [list(self._replaced.losses(found, part)) for part in parts()]
        losses = _joined(by_part)
        actions = [*adds, *self._removals(found, losses)]
        if losses and self._by_vectors:
            actions += found.with_vectors()
        if losses and with_images:
            # Readers take the whole feed of a commit from its own files, if there is one: also the inserts of parts without losses.
            for part, of_part in zip(parts(), by_part, strict=True):
                actions.append(self._images(of_part, part.rows))
        # A table from before its columns were declared personal gets the property here.
        return list(self._definition.completing(found, actions))

    def _commit(
        self,
        actions_of: Callable[[Snapshot], list[Action]],
        committed: Transaction,
    ) -> None:
        # A version that another client has committed since shows by the commit, which then fails: no look before it.
        known = self._known()
        self._replaced.follow(known)
        made = self._writer.commit_once(known, actions_of, committed)
        self._snapshot = made or self._snapshot

    def fold(self, *, everything: bool = False) -> None:
        """Join small files, and rewrite large ones with half of their rows deleted; no row changes.

        Args:
            everything: Join all small files. Else only those of a size class that is full.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: another client has given it other columns.
        """
        known = self._snapshot
        # The log is read only if there seems to be something to gain.
        if known is not None and not _files_to_fold(known, everything=everything):
            self._replaced.follow(known)
            return
        snapshot = self._newest()
        group = _files_to_fold(snapshot, everything=everything)
        for some in in_batches(group):
            self._refuse_altered(snapshot)
            rows = snapshot.rows(self._columns, some)
            adds = self._written(rows, data_change=False)
            snapshot = self._writer.join(snapshot, some, adds, {})
        self._snapshot = snapshot

    def begin(self, newest: Snapshot) -> None:
        """Begin with the newest version of the table, read by the caller; one that another client has altered is refused."""
        self._refuse_altered(newest)
        self._go_on_from(newest)

    def _refuse_altered(self, found: Snapshot, adds: Sequence[Action] = ()) -> None:
        found.refuse_unwritable()
        found.refuse_other_columns(self._columns)
        found.refuse_nulls(
            self._columns,
            adds,
        )

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
        self._replaced.follow(newest)

    def _written(
        self,
        rows: pa.Table,
        *,
        data_change: bool = True,
    ) -> list[Action]:
        """Write rows, and index them; return the actions that add the files."""
        # In the order of keys: the statistics of the files then overlap little, and lookups open few files.
        in_order = rows
        if len(rows):
            by_key = [(name, "ascending") for name in self._key]
            in_order = rows.sort_by(by_key)
        return write_files(
            self._table,
            in_order,
            self._bounded,
            rows_per_file=ROWS_PER_FILE,
            data_change=data_change,
            copies=self._replaced.copies,
        )

    def _removals(self, found: Snapshot, losses: Sequence[FileLoss]) -> list[Action]:
        """Return the actions that delete rows from their files."""
        if self._by_vectors:
            lost = [LostRows(loss.file, loss.dead, loss.is_whole) for loss in losses]
            return found.deleting(lost)
        files = [loss.file for loss in losses]
        partly = [loss for loss in losses if not loss.is_whole]
        return DataFile.replacing(files, self._rewritten(partly))

    def _rewritten(self, partly: Sequence[FileLoss]) -> list[Action]:
        """Write the remaining rows of some files to a new file."""
        left = [self._columns.empty_table()]
        left += [loss.file.read_without(self._table, self._columns, loss.dead) for loss in partly]
        return self._written(pa.concat_tables(left))

    def _images(self, losses: Sequence[FileLoss], rows: pa.Table) -> Action:
        """Write the commit's change feed: each row before and after its change."""
        lost = [self._replaced.rows_of(loss) for loss in losses]
        old = pa.concat_tables([self._columns.empty_table(), *lost])
        n_old = len(old)
        # Dense codes of the keys match old rows with new ones by integers, for all types of keys. O(changes).
        old_keys = old.select(self._key)
        new_keys = rows.select(self._key)
        keys = pa.concat_tables([old_keys, new_keys])
        codes = row_codes(keys, self._key)
        of_old = codes[:n_old]
        of_new = codes[n_old:]
        is_replaced = np.isin(of_old, of_new)
        replaces = np.isin(of_new, of_old)
        old_kinds = np.where(is_replaced, _BEFORE, _DELETED)
        new_kinds = np.where(replaces, _AFTER, _INSERTED)
        kinds = np.concatenate([old_kinds, new_kinds])
        new = rows.cast(old.schema)
        images = pa.concat_tables([old, new])
        kind_column = pa.array(_IMAGE_KINDS).take(pa.array(kinds))
        feed = images.append_column("_change_type", kind_column)
        name = f"_change_data/cdc-{uuid.uuid4()}.parquet"
        action = DataFile.write(self._table, name, feed, bounded=())
        add = action["add"]
        cdc = {
            "path": add["path"],
            "partitionValues": {},
            "size": add["size"],
            "dataChange": False,
        }
        return {"cdc": cdc}


def _joined(by_part: Sequence[Sequence[FileLoss]]) -> list[FileLoss]:
    """Return the losses of all parts, once for each file."""
    of_file: dict[str, FileLoss] = {}
    for losses in by_part:
        for loss in losses:
            before = of_file.get(loss.file.path)
            of_file[loss.file.path] = loss if before is None else before.plus(loss)
    return list(of_file.values())


def _files_to_fold(snapshot: Snapshot, *, everything: bool) -> list[DataFile]:
    """Return the files that a fold joins or rewrites; arguments as `Upserter.fold`."""
    files = list(snapshot.files.values())
    group = emptied_files(files)
    small = small_files(files)
    if everything:
        small = [file for file in files if is_small(file)]
    # One small file without a vector has nothing to be joined with, and nothing to lose.
    is_one_whole = len(small) == 1 and small[0].vector is None
    if is_one_whole:
        return group
    return [*group, *small]
