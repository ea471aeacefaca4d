"""Deletes rows of a state: by vectors if a file loses few, by rewriting it if it loses many or must not keep them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from ebbtide.columns import Mask
from ebbtide.delta import Action, DataFile, LostRows, Snapshot
from ebbtide.entries import Step
from ebbtide.executors import Executor
from ebbtide.operations._maintenance.doomed import Found
from ebbtide.operations._maintenance.judging import Doom
from ebbtide.operators import Operator
from ebbtide.tables import StateTable, StateWriter, Stored

REWRITTEN_SHARE = 0.25
"""Minimum share of deleted rows for rewriting a file."""
UNKNOWN = -1
"""Stands for a stamp that has still to be read."""


@dataclass(frozen=True)
class Expired:
    """Picks the entries that had expired by some time, whether a tick has acted on it or not.

    Args:
        at: The clocks of that time.
    """

    at: Step

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """See `Pick`."""
        return operator.expiry.expired(entries, self.at)


@dataclass(frozen=True)
class Deletion:
    """The files that lose rows, by what becomes of each.

    Args:
        removed: Files that lose all their rows.
        hidden: Files that get a vector, with the bounds of the rows that are left.
        rewritten: Files that are written again without the rows, and those rows as a bitmap.
    """

    removed: Sequence[DataFile]
    hidden: Sequence[LostRows]
    rewritten: Sequence[tuple[DataFile, bytes]]

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self.removed or self.hidden or self.rewritten)

    def actions(
        self,
        executor: Executor,
        snapshot: Snapshot,
        writer: StateWriter,
    ) -> list[Action]:
        """Write new files and vectors; return the actions that delete the rows.

        Args:
            snapshot: The newest version of the state.
            writer: Writes its data files.
        """
        rewritten = [file for file, _ in self.rewritten]
        n_bytes = sum(file.size for file in rewritten)
        left = executor.map(
            writer.without,
            self.rewritten,
            is_little=n_bytes <= Executor.LITTLE_BYTES,
        )
        adds = [add for each in left for add in each]
        actions = DataFile.replacing([*self.removed, *rewritten], adds)
        if self.hidden:
            actions += snapshot.deleting(self.hidden)
            actions += snapshot.with_vectors()
        return actions


def planned(state: StateTable, stored: Stored, found: Found, doom: Doom) -> Deletion:
    """Decide how rows of a state are deleted. Writes nothing.

    Args:
        state: The state.
        stored: Its data files.
        found: The rows that each data file loses.
        doom: Selected them.
    """
    removed = []
    hidden = []
    rewritten = []
    for number, file in enumerate(stored.files):
        lost = found.losses.get(number, BitMap64())
        if not lost and file.vector is None:
            continue
        if len(lost) == file.live_rows:
            removed.append(file)
            continue
        dead = lost
        if file.vector is not None:
            dead = lost | file.deleted_rows(stored.table)
        is_rewritten = bool(lost) and _loses_much(file, len(lost))
        if is_rewritten or _has_purged(state, file, dead, doom):
            rewritten.append((file, lost.serialize()))
        elif lost:
            least_ms = found.left_ms.get(number, UNKNOWN)
            left = narrowed(stored.table, file, dead, least_ms)
            hidden.append(LostRows(left, dead, is_whole=False))
    return Deletion(removed, hidden, rewritten)


def _loses_much(file: DataFile, n_lost: int) -> bool:
    """Return whether a file that loses rows is rewritten for their number, those lost before counted."""
    if file.rows is None or file.live_rows is None:
        return True
    n_dead = file.rows - file.live_rows + n_lost
    return n_dead >= REWRITTEN_SHARE * file.rows


def _has_purged(state: StateTable, file: DataFile, dead: BitMap64, doom: Doom) -> bool:
    """Return whether one of a file's deleted rows may not stay in it."""
    if doom.is_purged is None:
        return False
    # A vector has narrowed the bounds of the stamps to the rows that are left: they say nothing of the hidden ones.
    bounds_hold = file.vector is None
    if bounds_hold and not doom.may_purge(file):
        return False
    rows = state.hidden_entries(file, dead, doom.columns)
    is_purged = doom.is_purged(rows, state.operator)
    return bool(is_purged.any())


def narrowed(table: str, file: DataFile, dead: BitMap64, least_ms: int | None) -> DataFile:
    """Return a file with the least stamp of the rows that are left.

    Bounds may be too wide, but a tick reads each file whose least stamp has expired: with that of a deleted row it would each time.
    """
    if least_ms == UNKNOWN:
        column = pa.schema([pa.field("_stamp_ms", pa.int64())])
        left = file.read_without(table, column, dead)
        least_ms = pc.min(left["_stamp_ms"]).as_py()
    least = dict(file.stats.get("minValues", {}))
    greatest = dict(file.stats.get("maxValues", {}))
    nulls = dict(file.stats.get("nullCount", {}))
    if least_ms is not None:
        least["_stamp_ms"] = least_ms
    else:
        least.pop("_stamp_ms", None)
        greatest.pop("_stamp_ms", None)
        # In a file with a vector, as many nulls as rows means that all remaining values are null.
        nulls["_stamp_ms"] = file.rows
    stats = {
        **file.stats,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }
    add = {
        **file.add,
        "stats": json.dumps(stats),
    }
    return DataFile(add)
