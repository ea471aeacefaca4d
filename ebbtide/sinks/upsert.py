"""Upserts without a MERGE: new rows go into new files, old ones leave by deletion vectors, or with the files they are in.

The old rows are found by their keys in the version at hand, never by places noted before: whatever others did to the
table since, OPTIMIZE, DELETE or RESTORE, a key has one row afterwards. Cost: O(changes * log(rows of a file)) for each file
that may hold one of their keys; no row is read but for a TRUNCATE.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.commit import Puts, now_ms
from ebbtide.delta.features import refuse_unwritable, with_feature
from ebbtide.delta.fitting import refuse_nulls, refuse_other_columns
from ebbtide.delta.joining import (
    SMALL_BYTES,
    commit_joined,
    emptied_files,
    in_batches,
    small_files,
    write_files,
)
from ebbtide.delta.key_index import IndexCache
from ebbtide.delta.restoring import becoming
from ebbtide.delta.snapshot import Action, DataFile, Snapshot
from ebbtide.delta.table import add_file, commit_on, read_file, read_files
from ebbtide.ledger.tables import gone
from ebbtide.model.codes import row_codes
from ebbtide.model.hashing import key_hashes

ROWS_PER_FILE = 1_000_000
STATISTICS_COLUMNS = 32
"""Columns, the first ones, that statistics are kept of."""
IsBelow = Callable[[pa.Table], NDArray[np.bool_]]
"""Marks the rows that a TRUNCATE deletes."""


@dataclass(frozen=True)
class Upsert:
    """What a step changes in a table.

    Args:
        keys: The keys of all changes, once each.
        rows: The rows that are there afterwards, of some of these keys; of the others none is.
        is_below: Marks the rows that a TRUNCATE deletes, given the columns of `floor_columns`; None: there is none.
        floor_columns: Columns that `is_below` needs.
    """

    keys: pa.Table
    rows: pa.Table
    is_below: IsBelow | None = None
    floor_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dying:
    """A data file that loses rows.

    Args:
        file: The file.
        rows: Which rows of its index it loses.
        dead: Numbers of all rows that do not count afterwards.
    """

    file: DataFile
    rows: NDArray[np.int64]
    dead: BitMap64

    @property
    def is_whole(self) -> bool:
        """Whether no row is left."""
        return len(self.dead) == self.file.rows


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
        # Old rows are shown by the feed: then they are at hand with their keys, and no data file is read for them.
        copied = columns
        if not with_images:
            key_columns = [columns.field(name) for name in key]
            copied = pa.schema(key_columns)
        self._copied = copied
        self._cache = IndexCache(table, key, copied)
        self._snapshot: Snapshot | None = None

    def apply(
        self,
        upsert: Upsert,
        app_id: str,
        number: int,
        info: Mapping[str, object],
    ) -> None:
        """Commit a step's changes once; if it was committed, nothing happens.

        Args:
            upsert: The changes.
            app_id: Identity of the transaction.
            number: The step's.
            info: What the commit says of itself.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: others have given it other columns.
        """
        snapshot = self._newest()
        adds = self._written(upsert.rows)

        def actions_of(found: Snapshot) -> list[Action]:
            self._refuse_altered(found, adds)
            # Looked for in each version: the client that wrote it may have moved the old rows.
            dying = list(self._dying(found, upsert))
            actions = [*adds, *self._removals(dying)]
            if dying and self._by_vectors:
                actions += with_vectors(found)
            if dying and self._with_images:
                images = self._images(dying, upsert.rows)
                actions.append(images)
            return actions

        made = commit_on(
            self._puts,
            snapshot,
            actions_of,
            app_id,
            number,
            {"operation": "MERGE", **info},
        )
        self._snapshot = made or self._snapshot

    def replace(
        self,
        keys: pa.Table,
        adds: Sequence[Action],
        app_id: str,
        number: int,
        info: Mapping[str, object],
    ) -> None:
        """Commit once that some keys have other rows: all that they have go, those of new files come.

        Args:
            keys: The keys, once each.
            adds: The actions that add the new files.
            app_id: Identity of the transaction.
            number: The step's.
            info: What the commit says of itself.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: others have given it other columns.
        """
        gone = Upsert(keys, self._columns.empty_table())

        def actions_of(found: Snapshot) -> list[Action]:
            self._refuse_altered(found, adds)
            dying = list(self._dying(found, gone))
            actions = [*adds, *self._removals(dying)]
            if dying and self._by_vectors:
                actions += with_vectors(found)
            return actions

        made = commit_on(self._puts, self._newest(), actions_of, app_id, number, {"operation": "MERGE", **info})
        self._snapshot = made or self._snapshot

    def restore_and_apply(
        self,
        back: Callable[[Snapshot], list[Action]],
        upsert: Upsert,
        app_id: str,
        number: int,
        info: Mapping[str, object],
    ) -> None:
        """Commit once that the table goes back to what it was, with changes on top: readers see nothing in between.

        Args:
            back: Returns what brings a version back to it.
            upsert: The changes.
            app_id: Identity of the transaction.
            number: The step's.
            info: What the commit says of itself.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            HistoryGoneError: what it goes back to is gone.
        """
        adds = self._written(upsert.rows)

        def actions_of(found: Snapshot) -> list[Action]:
            before = found.after(back(found))
            self._refuse_altered(before, adds)
            dying = list(self._dying(before, upsert))
            actions = [*adds, *self._removals(dying)]
            if dying and self._by_vectors:
                actions += with_vectors(before)
            return becoming(found, before.after(actions))

        made = commit_on(self._puts, self._newest(), actions_of, app_id, number, {"operation": "RESTORE", **info})
        self._snapshot = made or self._snapshot

    def fold(self, *, everything: bool = False) -> None:
        """Join small files, and write large ones again of which half the rows are gone; no row changes.

        Args:
            everything: Join all small files. Else only where that is to be done anyway before long.

        Raises:
            DeltaFeatureError: the table has a feature that is not written here.
            TableMismatchError: others have given it other columns.
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
            snapshot = commit_joined(self._puts, snapshot, some, adds, {})
        self._snapshot = snapshot

    def refuse_altered(self) -> None:
        """Refuse a table that others have altered; see `Sink`."""
        self._refuse_altered(self._newest())

    def _refuse_altered(self, found: Snapshot, adds: Sequence[Action] = ()) -> None:
        refuse_unwritable(self._table, found.protocol, found.metadata)
        refuse_other_columns(self._table, found.metadata, self._columns)
        refuse_nulls(self._table, found.metadata, self._columns, adds)

    def _newest(self) -> Snapshot:
        known = self._snapshot
        newest = Snapshot.read(self._table) if known is None else known.advanced()
        if newest is None:
            raise gone(self._table)
        self._snapshot = newest
        if self._cache.table_id != newest.id:
            self._cache = IndexCache(self._table, self._key, self._copied, table_id=newest.id)
        self._cache.only(newest.files.values())
        return newest

    def _written(self, rows: pa.Table, *, data_change: bool = True) -> list[Action]:
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
            on_written=self._cache.keep,
        )

    def _dying(self, snapshot: Snapshot, upsert: Upsert) -> Iterator[Dying]:
        """Yield the files of a version that lose rows."""
        hashes = key_hashes(upsert.keys, self._key)
        order = np.argsort(hashes, kind="stable")
        keys = upsert.keys.select(self._key)
        keys_in_order = keys.take(pa.array(order)).combine_chunks()
        hashes_in_order = hashes[order]
        first_column = self._key[0]
        for file in snapshot.files.values():
            found = np.zeros(0, np.int64)
            if _may_hold(file, keys_in_order, first_column):
                index = self._cache.index_of(file)
                found, _ = index.find(keys_in_order, hashes_in_order)
            if upsert.is_below is not None:
                below = self._below(file, upsert.is_below, upsert.floor_columns)
                found = np.union1d(found, below)
            if len(found):
                yield from self._losing(file, found)

    def _losing(self, file: DataFile, found: NDArray[np.int64]) -> Iterator[Dying]:
        """Yield what a file loses of some rows of its index; nothing if all of them are gone already."""
        index = self._cache.index_of(file)
        positions = index.positions[found]
        known = BitMap64()
        if file.vector is not None:
            known = vectors.read(self._table, file.vector)
        is_new = ~np.isin(positions, _numbers(known))
        if is_new.any():
            new = positions[is_new].tolist()
            dead = known | BitMap64(new)
            yield Dying(file, found[is_new], dead)

    def _removals(self, dying: Sequence[Dying]) -> list[Action]:
        """Return the actions that take rows out of their files."""
        at_ms = now_ms()
        actions = [each.file.removed(at_ms, data_change=True) for each in dying]
        partly = [each for each in dying if not each.is_whole]
        if not self._by_vectors:
            return actions + self._rewritten(partly)
        dead = [each.dead for each in partly]
        descriptors = vectors.write(self._table, dead)
        for each, descriptor in zip(partly, descriptors, strict=True):
            add = each.file.with_vector(descriptor, data_change=True)
            actions.append(add)
        return actions

    def _rewritten(self, partly: Sequence[Dying]) -> list[Action]:
        """Write what is left of some files again."""
        left = []
        for each in partly:
            rows = read_file(
                self._table,
                each.file,
                self._columns,
                live=False,
            )
            stays = np.ones(len(rows), dtype=bool)
            dead = _numbers(each.dead)
            stays[dead] = False
            rows_left = rows.filter(pa.array(stays))
            left.append(rows_left)
        if not left:
            return []
        rows = pa.concat_tables(left)
        return self._written(rows)

    def _images(self, dying: Sequence[Dying], rows: pa.Table) -> Action:
        """Write the commit's change feed: each row before and after."""
        old_parts = [self._old_rows(each) for each in dying]
        old = pa.concat_tables(old_parts)
        n_old = len(old)
        old_keys = old.select(self._key)
        new_keys = rows.select(self._key)
        keys = pa.concat_tables([old_keys, new_keys])
        codes = row_codes(keys, self._key)
        of_old = codes[:n_old]
        of_new = codes[n_old:]
        is_replaced = np.isin(of_old, of_new)
        replaces = np.isin(of_new, of_old)
        kinds = [
            *np.where(is_replaced, "update_preimage", "delete"),
            *np.where(replaces, "update_postimage", "insert"),
        ]
        feed = pa.concat_tables([old, rows.cast(old.schema)])
        feed = feed.append_column("_change_type", pa.array(kinds, pa.string()))
        name = f"_change_data/cdc-{uuid.uuid4()}.parquet"
        add = add_file(self._table, name, feed, bounded=())["add"]
        cdc = {
            "path": add["path"],
            "partitionValues": {},
            "size": add["size"],
            "dataChange": False,
        }
        return {"cdc": cdc}

    def _old_rows(self, dying: Dying) -> pa.Table:
        index = self._cache.index_of(dying.file)
        indices = pa.array(dying.rows)
        rows = index.rows.take(indices)
        return rows.cast(self._columns)

    def _below(self, file: DataFile, is_below: IsBelow, names: Sequence[str]) -> NDArray[np.int64]:
        """Return which rows of a file's index a TRUNCATE deletes, judged by some columns."""
        columns = [self._columns.field(name) for name in names]
        rows = read_file(
            self._table,
            file,
            pa.schema(columns),
            live=False,
        )
        below = is_below(rows)
        index = self._cache.index_of(file)
        return np.flatnonzero(below[index.positions])


def with_vectors(snapshot: Snapshot) -> list[Action]:
    """Return the actions that let a table have deletion vectors; none if it may have them."""
    property_ = "delta.enableDeletionVectors"
    feature = "deletionVectors"
    features = snapshot.protocol.get("writerFeatures") or ()
    setting = snapshot.configuration.get(property_, "false")
    is_on = setting.lower() == "true"
    if is_on and feature in features:
        return []
    configuration = {**snapshot.configuration, property_: "true"}
    metadata = {**snapshot.metadata, "configuration": configuration}
    protocol = with_feature(snapshot.protocol, feature)
    return [
        {"protocol": protocol},
        {"metaData": metadata},
    ]


def _may_hold(file: DataFile, wanted: pa.Table, column: str) -> bool:
    """Return whether a file may hold one of some keys, by its statistics of the first of the key's columns."""
    if not len(wanted):
        return False
    least = file.least(column)
    greatest = file.greatest(column)
    values = wanted[column]
    if not pa.types.is_integer(values.type):
        return True
    if type(least) is not int or type(greatest) is not int:
        return True
    if values.null_count:  # bounds say nothing of nulls
        return True
    ends = pc.min_max(values).as_py()
    begins_before_end = ends["min"] <= greatest
    ends_after_begin = least <= ends["max"]
    return bool(begins_before_end and ends_after_begin)


def _numbers(rows: BitMap64) -> NDArray[np.int64]:
    return np.fromiter(rows, np.int64, len(rows))
