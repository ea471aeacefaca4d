"""Changes of one key at one sequence: which are the same change again, and which of different ones counts.

Two changes with the same operation and content are one change, delivered twice. Where contents differ, the sequence does
not tell their order: the greater digest counts, which no order of arrival can change, and the conflict is reported. A
retraction (-U of a changelog sequenced by a column of the user's) takes back the row with its own content, no other.
Values that were not sent are left out of the comparison.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.identity import identity

Mask = NDArray[np.bool_]
NO_DIGEST = 0


@dataclass(frozen=True)
class Contents:
    """What events say, as far as it is needed to compare them.

    Args:
        rows: (n,) the user's columns.
        unsent: Column to (n,) events that did not carry its value.
        digests: (n,) the stored digest of an event whose row is no longer stored; `NO_DIGEST` elsewhere.
    """

    rows: pa.Table
    unsent: dict[str, Mask]
    digests: Codes

    def of(self, events: Codes, groups: Codes) -> pa.Table:
        """Return the rows of some events, without the values that are unsent in any of a group.

        Args:
            events: (m,) indices.
            groups: (m,) dense numbers of their groups.
        """
        columns: dict[str, pa.ChunkedArray] = {}
        n_groups = int(groups.max(initial=-1)) + 1
        for name in self.rows.column_names:
            hidden = np.zeros(n_groups, dtype=bool)
            if name in self.unsent:
                hidden[groups[self.unsent[name][events]]] = True
            columns[name] = self.rows[name].take(pa.array(events, mask=hidden[groups]))
        return pa.table(columns)


@dataclass(frozen=True)
class Ties:
    """How events that are tied compare.

    Args:
        digest: (n,) what orders different contents at one sequence; 0 where all contents are the same.
        conflicting: (m,) events that stand at one sequence with others of another content.
        n_conflicts: Contents beyond the first, over all groups.
    """

    digest: Codes
    conflicting: Codes
    n_conflicts: int


def compare(events: Codes, groups: Codes, contents: Contents) -> Ties:
    """Compare the events of each group, all of one key, sequence and operation.

    Contents are compared exactly, in columns; digests, a Python call each, are made only for groups that have several contents,
    or one that is no longer stored.

    Args:
        events: (m,) indices of the tied events, group after group.
        groups: (m,) ascending numbers of their groups.
        contents: What they say.
    """
    digest = np.zeros(len(contents.digests), np.int64)
    if not len(events):
        return Ties(digest, events, 0)
    groups = np.unique(groups, return_inverse=True)[1]
    rows = contents.of(events, groups)
    codes = row_codes(rows, rows.column_names)
    n_groups = int(groups[-1]) + 1
    unlike = np.zeros(n_groups, dtype=bool)
    first = np.searchsorted(groups, np.arange(n_groups))
    unlike[groups[codes != codes[first[groups]]]] = True
    forgotten = contents.digests[events] != NO_DIGEST
    unlike[groups[forgotten]] = True
    differing = np.flatnonzero(unlike[groups])
    stored = contents.digests[events[differing]]
    made = digests(rows.take(pa.array(differing)))
    digest[events[differing]] = np.where(stored != NO_DIGEST, stored, made)
    pairs = np.unique(np.stack([groups[differing], digest[events[differing]]]), axis=1)
    n_contents = np.bincount(pairs[0], minlength=n_groups)
    conflicting = events[(n_contents > 1)[groups]]
    return Ties(digest, conflicting, int(np.maximum(n_contents - 1, 0).sum()))


def digests(rows: pa.Table) -> Codes:
    """Return a number from 1 for each row's content, the same in every process."""
    columns = [rows[name].to_pylist(maps_as_pydicts="strict") for name in rows.column_names]
    return np.array([_digest(values) for values in zip(*columns, strict=True)], dtype=np.int64)


def _digest(values: Sequence[Any]) -> int:
    text = repr(identity(values)).encode("utf-8", "surrogatepass")
    whole = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (whole >> 1) | 1
