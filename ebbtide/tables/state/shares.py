"""The shares of a step's changes: whole slices of keys, dealt out to the workers that decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ebbtide.model.hashing import key_hashes
from ebbtide.tables.state.staged import StagedFile


@dataclass(frozen=True)
class Share:
    """The part of a step's changes that one worker decides about.

    Args:
        staged: What was staged.
        slices: The slices that it has.
        linked: Keys that are decided on together, once each.
        has_linked: It has the linked keys, of all its slices, and no other key; else all but these.
    """

    staged: tuple[StagedFile, ...]
    slices: tuple[int, ...]
    linked: pa.Table | None = None
    has_linked: bool = False

    def changes(self, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
        """Read the changes.

        Args:
            schema: Their columns.
            key: Names of the key's columns.
        """
        batches: list[pa.RecordBatch] = []
        for file in self.staged:
            batches += file.read(self.slices)
        changes = pa.Table.from_batches(batches, schema)
        if self.linked is None:
            return changes
        # By hash: a key that has the hash of a linked one is decided on with it, which does no harm.
        hashes = key_hashes(changes, key)
        linked_hashes = key_hashes(self.linked, key)
        is_linked = np.isin(hashes, linked_hashes)
        is_own = is_linked == self.has_linked
        return changes.filter(pa.array(is_own))


def balanced(staged: Sequence[StagedFile], n_shares: int) -> list[tuple[int, ...]]:
    """Deal slices out to so many shares of about as many rows each; empty ones are left out.

    Args:
        staged: What was staged.
        n_shares: How many.
    """
    rows_of_slice = _rows_of_slices(staged)
    shares: list[list[int]] = [[] for _ in range(n_shares)]
    sizes = [0] * n_shares
    # The largest first, each to the share that has least.
    for slice_, n_rows in rows_of_slice.most_common():
        least = min(sizes)
        smallest = sizes.index(least)
        shares[smallest].append(slice_)
        sizes[smallest] += n_rows
    with_rows = [share for share in shares if share]
    return [tuple(sorted(share)) for share in with_rows]


def _rows_of_slices(staged: Iterable[StagedFile]) -> Counter[int]:
    """Count the rows of each slice that has some."""
    rows_of_slice: Counter[int] = Counter()
    for file in staged:
        batches = zip(file.slices, file.rows, strict=True)
        for slice_, n_rows in batches:
            rows_of_slice[slice_] += n_rows
    return rows_of_slice
