"""Folds a state in parts: in some ranges of the keys' hashes all versions of each entry become one, in a file each.

The rows of such a range leave all other files: deletion vectors hide them there, and a file without a row left is removed. So a bounded
compaction costs what it writes, and reads the same ranges of all files. Invariant of the base, see `Stored.base`: of an entry in a new file no
other file has a row that counts.

The ranges with the most rows added since the last fold come first. Without added rows nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ebbtide.delta import Action, LostRows, Snapshot
from ebbtide.operations._maintenance.deletion import UNKNOWN, narrowed
from ebbtide.tables import HashRange, RewriteEntries, StoredEntries

if TYPE_CHECKING:
    from ebbtide.executors import Executor


class Merged(NamedTuple):
    """The outcome of a merge.

    Args:
        actions: They add the new files, and take the rows of the ranges out of all further files; none if there is nothing to do.
        left: Ranges that still have added rows: files that later merges write.
    """

    actions: list[Action]
    left: int


@dataclass(frozen=True)
class MergePart:
    """Rewrites one range; runs in workers.

    Args:
        rewrite: Writes the newest versions.
    """

    rewrite: RewriteEntries

    def __call__(self, part: HashRange) -> tuple[list[Action], dict[int, bytes]]:
        """Return the actions that add its file, and by number of each other file the positions of its rows, as a bitmap."""
        adds = self.rewrite(part)
        entries = self.rewrite.entries
        copies = entries.state.copies(entries.operator().key)
        positions = {}
        for number, file in enumerate(entries.state.files):
            if not part.meets(*copies.range_of(file)):
                continue
            index = copies.index_of(file)
            own = index.positions[part.rows_of(index)]
            if len(own):
                bitmap = BitMap64(own.astype(np.uint64))
                positions[number] = bitmap.serialize()
        copies.close()
        return adds, positions


def to_merge(entries: StoredEntries) -> list[HashRange]:
    """Return the ranges that have rows added since the last fold of the whole state, those with the most first."""
    state = entries.state
    parts = entries.parts()
    copies = state.copies(entries.operator().key)
    n_added = [0] * len(parts)
    for file in state.added.values():
        if not state.may_have_rows(file):
            continue
        index = copies.index_of(file)
        # A vector hides the rows of ranges that were merged before.
        counts = file.is_live(state.table, index.positions)
        for number, part in enumerate(parts):
            own = counts[part.rows_of(index)]
            n_added[number] += int(np.count_nonzero(own))
    copies.close()
    with_added = [number for number, n_rows in enumerate(n_added) if n_rows]
    most_first = sorted(with_added, key=n_added.__getitem__, reverse=True)
    return [parts[number] for number in most_first]


def merged(
    executor: Executor,
    snapshot: Snapshot,
    rewrite: RewriteEntries,
    max_files: int,
) -> Merged:
    """Write the files of some ranges; nothing is committed yet.

    Args:
        snapshot: The newest version of the state.
        rewrite: Writes the newest versions of entries, without those that have expired or were dropped.
        max_files: The most files to write.
    """
    entries = rewrite.entries
    parts = to_merge(entries)
    now = parts[:max_files]
    results = executor.map(MergePart(rewrite), now, is_little=entries.is_small, at=HashRange.middle)
    if not results:
        return Merged([], 0)
    adds: list[Action] = []
    merged_rows = []
    for own, positions in results:
        adds += own
        merged_rows.append(positions)
    losses = _losses(entries, merged_rows)
    deletes = snapshot.deleting(losses)
    actions = [*adds, *deletes]
    if not all(loss.is_whole for loss in losses):
        actions += snapshot.with_vectors()
    return Merged(actions, len(parts) - len(now))


def _losses(entries: StoredEntries, merged_rows: Sequence[dict[int, bytes]]) -> list[LostRows]:
    """Return the files that lose rows to the new ones, by the positions of each range."""
    table = entries.state.table
    losses = []
    for number, file in enumerate(entries.state.files):
        known = BitMap64()
        if file.vector is not None:
            known = file.deleted_rows(table)
        dead = known.copy()
        for positions in merged_rows:
            if number in positions:
                dead |= BitMap64.deserialize(positions[number])
        if dead == known:
            continue
        is_whole = len(dead) == file.rows
        # The bounds of the rows that are left: a tick reads each file whose least stamp has expired.
        left = file if is_whole else narrowed(table, file, dead, UNKNOWN)
        losses.append(LostRows(left, dead, is_whole))
    return losses
