"""Deletes records from the quarantine, known by their `order`: by deletion vectors, or with a file that has no record left.

A step's actions are part of its decision, and are committed to the quarantine after it. Another client may have joined files in
between: then the same records are looked up in the files of the newest version.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.changelog import ORDER
from ebbtide.columns import Mask, row_codes
from ebbtide.delta import Action, DataFile, LostRows, Snapshot

ORDERS = pa.schema([("order", ORDER)])
"""The key of a record: no two of a quarantine have the same `order`."""


def removal(snapshot: Snapshot, gone: pa.Table) -> list[Action]:
    """Return the actions that delete records from a version; a record that it does not have needs none.

    Args:
        snapshot: A version of the quarantine.
        gone: Their `ORDERS`.
    """
    lost = losses(snapshot, gone)
    return snapshot.deleting(lost)


def losses(snapshot: Snapshot, gone: pa.Table) -> list[LostRows]:
    """Return the files of a version that lose records, and the rows that they then lack; arguments as `removal`."""
    table = snapshot.table
    found = []
    for file in snapshot.files.values():
        stored = file.read(table, ORDERS, live=False)
        is_gone = _is_in(stored, gone)
        positions = np.flatnonzero(is_gone)
        known = BitMap64()
        if file.vector is not None:
            known = file.deleted_rows(table)
        # A new vector has the old positions too. Equal: the file loses nothing, and its removal could only conflict.
        dead = known | BitMap64(positions.tolist())
        if dead == known:
            continue
        is_whole = len(dead) == len(stored)
        lost = LostRows(file, dead, is_whole)
        found.append(lost)
    return found


def rebased(actions: Sequence[Action], found: Snapshot) -> list[Action]:
    """Return a step's actions for a version that may be newer than the one they were made for.

    Args:
        actions: Actions of the step: those of `removal`, and files that it adds.
        found: The newer version.
    """
    # Files that are all there have not changed: an update of a vector gives a file another id.
    removed = _files(actions, "remove")
    ids = {file.id for file in removed}
    if ids <= found.files.keys():
        return list(actions)
    # New records keep their file. A file with a removed one's path only has a new vector for a deleted file: it is written again.
    old_paths = {file.path for file in removed}
    added = _files(actions, "add")
    new_files = [file for file in added if file.path not in old_paths]
    own: list[Action] = [{"add": file.add} for file in new_files]
    gone = _gone(found.table, actions)
    removed_again = removal(found, gone)
    return [*own, *removed_again]


def _gone(table: str, actions: Sequence[Action]) -> pa.Table:
    """Read the `ORDERS` of the records that actions delete: those of a removed file without those that it keeps."""
    after = {file.path: file for file in _files(actions, "add")}
    parts = [ORDERS.empty_table()]
    for before in _files(actions, "remove"):
        rows = before.read(table, ORDERS)
        if before.path in after:
            kept = after[before.path].read(table, ORDERS)
            is_gone = ~_is_in(rows, kept)
            rows = rows.filter(pa.array(is_gone))
        parts.append(rows)
    return pa.concat_tables(parts)


def _files(actions: Sequence[Action], kind: str) -> list[DataFile]:
    """Return the data files that actions of one kind name."""
    named = [action[kind] for action in actions if kind in action]
    return [DataFile(file) for file in named]


def _is_in(rows: pa.Table, wanted: pa.Table) -> Mask:
    """Mark the rows whose `order` is among the wanted ones."""
    n_rows = len(rows)
    both = pa.concat_tables([rows, wanted])
    codes = row_codes(both, ["order"])
    own, of_wanted = codes[:n_rows], codes[n_rows:]
    return np.isin(own, of_wanted)
