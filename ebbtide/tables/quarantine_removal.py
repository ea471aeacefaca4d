"""Records that leave the quarantine, known by their `order`: they go by deletion vectors, a file without any left whole.

A step's actions are written down in its facts and committed after its decision. Another client may have joined files in between:
then the same records are looked for in the files there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.commit import now_ms
from ebbtide.delta.snapshot import Action, DataFile, Snapshot
from ebbtide.delta.table import read_file
from ebbtide.model.changelog import ORDER
from ebbtide.model.codes import Mask, row_codes

ORDERS = pa.schema([("order", ORDER)])
"""What a record is known by: no two of a quarantine have the same."""


def removal(snapshot: Snapshot, gone: pa.Table) -> list[Action]:
    """Return the actions that take records out of a version; a record that is not there needs none.

    Args:
        snapshot: A version of the quarantine.
        gone: Their `ORDERS`.
    """
    table = snapshot.table
    at_ms = now_ms()
    actions: list[Action] = []
    shortened: list[DataFile] = []
    dead_rows: list[BitMap64] = []
    for file in snapshot.files.values():
        stored = read_file(
            table,
            file,
            ORDERS,
            live=False,
        )
        positions = np.flatnonzero(_is_in(stored, gone))
        known = BitMap64()
        if file.vector is not None:
            known = vectors.read(table, file.vector)
        dead = known | BitMap64(positions.tolist())
        if dead == known:
            continue
        actions.append(file.removed(at_ms, data_change=True))
        if len(dead) < len(stored):
            shortened.append(file)
            dead_rows.append(dead)
    descriptors = vectors.write(table, dead_rows)
    for file, descriptor in zip(shortened, descriptors, strict=True):
        add = file.with_vector(descriptor, data_change=True)
        actions.append(add)
    return actions


def rebased(actions: Sequence[Action], found: Snapshot) -> list[Action]:
    """Return a step's actions as they are in a version that may be newer than the one they were made for.

    Args:
        actions: The step's: `removal` and files that it adds.
        found: The version.
    """
    removed = _files(actions, "remove")
    if all(file.id in found.files for file in removed):
        return list(actions)
    old_paths = {file.path for file in removed}
    added = _files(actions, "add")
    own: list[Action] = [{"add": file.add} for file in added if file.path not in old_paths]
    gone = _gone(found.table, actions)
    return [*own, *removal(found, gone)]


def _gone(table: str, actions: Sequence[Action]) -> pa.Table:
    """Read the `ORDERS` of the records that actions take out."""
    after = {file.path: file for file in _files(actions, "add")}
    parts = [ORDERS.empty_table()]
    for before in _files(actions, "remove"):
        rows = read_file(table, before, ORDERS)
        if before.path in after:
            kept = read_file(table, after[before.path], ORDERS)
            is_gone = ~_is_in(rows, kept)
            rows = rows.filter(pa.array(is_gone))
        parts.append(rows)
    return pa.concat_tables(parts)


def _files(actions: Sequence[Action], kind: str) -> list[DataFile]:
    """Return the data files that actions of one kind name."""
    return [DataFile(action[kind]) for action in actions if kind in action]


def _is_in(rows: pa.Table, others: pa.Table) -> Mask:
    """Mark the rows whose `order` some row of another table has."""
    n_rows = len(rows)
    both = pa.concat_tables([rows, others])
    codes = row_codes(both, ["order"])
    return np.isin(codes[:n_rows], codes[n_rows:])
