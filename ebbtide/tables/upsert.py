"""Upserts without a MERGE: new rows go into new files, old ones leave by deletion vectors, or with the files they are in.

See `ebbtide.tables.replaced_rows` for how the old rows are found.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ebbtide.delta import vectors
from ebbtide.delta.commit import Puts, Transaction, now_ms
from ebbtide.delta.features import refuse_unwritable, with_vectors
from ebbtide.delta.fitting import refuse_nulls, refuse_other_columns
from ebbtide.delta.joining import SMALL_BYTES, commit_joined, emptied_files, in_batches, small_files, write_files
from ebbtide.delta.restoring import becoming
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import add_file, commit_on, read_file, read_files
from ebbtide.ledger.tables import gone
from ebbtide.model.codes import row_codes
from ebbtide.tables.replaced_rows import FileLoss, ReplacedRows, Upsert

ROWS_PER_FILE = 1_000_000
STATISTICS_COLUMNS = 32
"""Columns, the first ones, that statistics are kept of."""
Back = Callable[[Snapshot], list[Action]]
"""Returns what brings a version back to an earlier one."""


class Upserter:
    """Writes one table.

    Args:
        table: Its location.
        columns: Its columns.
        key: Names of the key's columns.
        puts: Its store.
        by_vectors: Old rows leave by deletion vectors. Else the files that they are in are written again without them, for
            readers that know no vectors.
        with_images: The change feed shows an update as what was and what is, from a file of its own. Else readers derive a
            delete and an insert from the data files.
    """

    def __init__(
        self,
        table: str,
        columns: pa.Schema,
        key: Sequence[str],
        puts: Puts,
        *,
        by_vectors: bool = True,
        with_images: bool = True,
    ) -> None:
        self._by_vectors = by_vectors
        self._with_images = with_images
        self._table = table
        self._columns = columns
        self._key = list(key)
        self._puts = puts
        self._old = ReplacedRows(table, columns, key, with_rows=with_images)
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
            back: The table goes back first, in the same commit: readers see nothing in between. Its change feed is then derived from
                the data files.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: another client has given it other columns.
            HistoryGoneError: what it goes back to is gone.
        """
        adds = self._written(upsert.rows)

        def actions_of(found: Snapshot) -> list[Action]:
            if back is None:
                return self._changes(found, upsert, adds, with_images=self._with_images)
            before = found.after(back(found))
            changes = self._changes(before, upsert, adds)
            return becoming(found, before.after(changes))

        self._commit(actions_of, committed)

    def replace(
        self,
        keys: pa.Table,
        adds: Sequence[Action],
        committed: Transaction,
    ) -> None:
        """Commit once that some keys have other rows; errors as `apply`.

        Args:
            keys: The keys, once each: all rows that they have go.
            adds: The actions that add the files with the rows that come.
            committed: The transaction.
        """
        gone_rows = Upsert(keys, self._columns.empty_table())
        self._commit(lambda found: self._changes(found, gone_rows, adds), committed)

    def _changes(
        self, found: Snapshot, upsert: Upsert, adds: Sequence[Action], *, with_images: bool = False
    ) -> list[Action]:
        """Return the actions that make an upsert of a version: asked for each version that is tried, as old rows may have moved."""
        self._refuse_altered(found, adds)
        dying = list(self._old.dying(found, upsert))
        actions = [*adds, *self._removals(dying)]
        if dying and self._by_vectors:
            actions += with_vectors(found.protocol, found.metadata)
        if dying and with_images:
            actions.append(self._images(dying, upsert.rows))
        return actions

    def _commit(
        self,
        actions_of: Callable[[Snapshot], list[Action]],
        committed: Transaction,
    ) -> None:
        made = commit_on(self._puts, self._newest(), actions_of, committed)
        self._snapshot = made or self._snapshot

    def fold(self, *, everything: bool = False) -> None:
        """Join small files, and write large ones again of which half the rows are gone; no row changes.

        Args:
            everything: Join all small files. Else only where that is to be done anyway before long.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: another client has given it other columns.
        """
        snapshot = self._newest()
        files = list(snapshot.files.values())
        group = emptied_files(files)
        small = small_files(files)
        if everything:
            small = [file for file in files if file.size < SMALL_BYTES]
        is_one_whole = len(small) == 1 and small[0].vector is None
        if not is_one_whole:
            group += small
        for some in in_batches(group):
            self._refuse_altered(snapshot)
            rows = read_files(self._table, some, self._columns)
            adds = self._written(rows, data_change=False)
            snapshot = commit_joined(
                self._puts,
                snapshot,
                some,
                adds,
                {},
            )
        self._snapshot = snapshot

    def refuse_altered(self) -> None:
        """Refuse a table that another client has altered; see `Sink`."""
        self._refuse_altered(self._newest())

    def _refuse_altered(self, found: Snapshot, adds: Sequence[Action] = ()) -> None:
        refuse_unwritable(self._table, found.protocol, found.metadata)
        refuse_other_columns(self._table, found.metadata, self._columns)
        refuse_nulls(
            self._table,
            found.metadata,
            self._columns,
            adds,
        )

    def _newest(self) -> Snapshot:
        known = self._snapshot
        newest = Snapshot.read(self._table) if known is None else known.advanced()
        if newest is None:
            raise gone(self._table)
        self._snapshot = newest
        self._old.follow(newest)
        return newest

    def _written(
        self,
        rows: pa.Table,
        *,
        data_change: bool = True,
    ) -> list[Action]:
        """Write rows, in the order of their keys, and their indices; return the actions that add them."""
        in_order = rows
        if len(rows):
            by_key = [(name, "ascending") for name in self._key]
            in_order = rows.sort_by(by_key)
        return write_files(
            self._table,
            in_order,
            self._columns.names[:STATISTICS_COLUMNS],
            rows_per_file=ROWS_PER_FILE,
            data_change=data_change,
            on_written=self._old.keep,
        )

    def _removals(self, dying: Sequence[FileLoss]) -> list[Action]:
        """Return the actions that take rows out of their files."""
        at_ms = now_ms()
        actions = [each.file.removed(at_ms, data_change=True) for each in dying]
        partly = [each for each in dying if not each.is_whole]
        if not self._by_vectors:
            return actions + self._rewritten(partly)
        descriptors = vectors.write(self._table, [each.dead for each in partly])
        for each, descriptor in zip(partly, descriptors, strict=True):
            add = each.file.with_vector(descriptor, data_change=True)
            actions.append(add)
        return actions

    def _rewritten(self, partly: Sequence[FileLoss]) -> list[Action]:
        """Write what is left of some files again, together."""
        left = [self._columns.empty_table()]
        for each in partly:
            rows = read_file(
                self._table,
                each.file,
                self._columns,
                live=False,
            )
            left.append(vectors.without(rows, each.dead))
        return self._written(pa.concat_tables(left))

    def _images(self, dying: Sequence[FileLoss], rows: pa.Table) -> Action:
        """Write the commit's change feed: each row before and after."""
        old = pa.concat_tables([self._old.rows_of(each) for each in dying])
        n_old = len(old)
        keys = pa.concat_tables([old.select(self._key), rows.select(self._key)])
        codes = row_codes(keys, self._key)
        of_old = codes[:n_old]
        of_new = codes[n_old:]
        is_replaced = np.isin(of_old, of_new)
        replaces = np.isin(of_new, of_old)
        kinds = [*np.where(is_replaced, "update_preimage", "delete"), *np.where(replaces, "update_postimage", "insert")]
        feed = pa.concat_tables([old, rows.cast(old.schema)])
        feed = feed.append_column("_change_type", pa.array(kinds, pa.string()))
        name = f"_change_data/cdc-{uuid.uuid4()}.parquet"
        add = add_file(self._table, name, feed, bounded=())["add"]
        cdc = {"path": add["path"], "partitionValues": {}, "size": add["size"], "dataChange": False}
        return {"cdc": cdc}
