"""Changes of one key at one sequence: which are the same change again, and which of different ones counts.

Two changes with the same operation and content are one change, delivered twice. A retraction (-U of a changelog sequenced by
a column of the user's) takes back the row with its own content. Where more than one content is left, the sequence does
not tell their order: the greater digest counts, which no order of arrival can change, and the conflict is reported. Values
that were not sent are left out of the comparison.
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
from ebbtide.model.equality import equality_key

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Contents:
    """What events say, as far as it is needed to compare them.

    Args:
        rows: (n,) the user's columns.
        unsent: Column to (n,) events that did not carry its value.
        is_retraction: (n,) events that take their content back.
        retracted: Entry to the digests of the contents that were taken back at its sequence.
        is_forgotten: (n,) entries of which the digest is all that is stored: the last of `retracted`.
    """

    rows: pa.Table
    unsent: dict[str, Mask]
    is_retraction: Mask
    retracted: dict[int, list[int]]
    is_forgotten: Mask

    def of(self, events: Codes, groups: Codes) -> pa.Table:
        """Return the rows of some events, without the values that are unsent in any of a group.

        Args:
            events: (m,) indices, at least one.
            groups: (m,) dense numbers of their groups.
        """
        columns: dict[str, pa.ChunkedArray] = {}
        n_groups = int(groups.max()) + 1
        for name in self.rows.column_names:
            hidden = np.zeros(n_groups, dtype=bool)
            if name in self.unsent:
                hidden[groups[self.unsent[name][events]]] = True
            columns[name] = self.rows[name].take(pa.array(events, mask=hidden[groups]))
        return pa.table(columns)


RETRACTED, RETRACTION, LIVE = 0, 1, 2
"""Weights of what stands at one sequence: a content that was taken back, what took it back, a content that is left."""


@dataclass(frozen=True)
class Ties:
    """How events that are tied compare.

    Args:
        weight: (n,) `RETRACTED`, `RETRACTION`, `LIVE`; the greater counts.
        digest: (n,) what orders different contents of one weight; 0 where all contents are the same.
        conflicting: (m,) events that stand at one sequence with others of another content that is left.
        n_conflicts: Contents left beyond the first, over all groups.
        taken_back: Event to the digests of the contents that were taken back at its sequence, where digests were made.
    """

    weight: Codes
    digest: Codes
    conflicting: Codes
    n_conflicts: int
    taken_back: dict[int, list[int]]


def compare(events: Codes, groups: Codes, contents: Contents) -> Ties:
    """Compare the events of each group, all of one key, sequence and operation.

    Contents are compared exactly, in columns; digests, a Python call each, are made only for groups that have several contents,
    or of which a content that was taken back is stored.

    Args:
        events: (m,) indices of the tied events, group after group.
        groups: (m,) ascending numbers of their groups.
        contents: What they say.
    """
    n = len(contents.is_retraction)
    weight, digest = np.where(contents.is_retraction, RETRACTION, LIVE), np.zeros(n, np.int64)
    if not len(events):
        return Ties(weight, digest, events, 0, {})
    groups = np.unique(groups, return_inverse=True)[1]
    rows = contents.of(events, groups)
    codes = row_codes(rows, rows.column_names)
    n_groups = int(groups[-1]) + 1
    first = np.searchsorted(groups, np.arange(n_groups))
    is_mixed = np.zeros(n_groups, dtype=bool)
    is_mixed[groups[codes != codes[first[groups]]]] = True
    is_mixed[groups[np.isin(events, list(contents.retracted))]] = True
    takes_back = np.zeros(n_groups, dtype=bool)
    takes_back[groups[contents.is_retraction[events]]] = True
    has_left = (takes_back & ~is_mixed)[groups] & ~contents.is_retraction[events]
    weight[events[has_left]] = RETRACTED
    mixed = np.flatnonzero(is_mixed[groups])
    digest[events[mixed]] = _digests_of(events[mixed], rows.take(pa.array(mixed)), contents)
    taken_back = _taken_back(events[mixed], groups[mixed], digest, contents)
    for event in events[mixed].tolist():
        if weight[event] == LIVE and digest[event] in taken_back.get(event, ()):
            weight[event] = RETRACTED
    live = mixed[weight[events[mixed]] == LIVE]
    pairs = np.unique(np.stack([groups[live], digest[events[live]]]), axis=1)
    n_contents = np.bincount(pairs[0], minlength=n_groups)
    conflicting = events[(n_contents > 1)[groups]]
    return Ties(weight, digest, conflicting, int(np.maximum(n_contents - 1, 0).sum()), taken_back)


def _digests_of(events: Codes, rows: pa.Table, contents: Contents) -> Codes:
    """Return the digests of rows, and of those that are forgotten the one stored."""
    made = digests(rows)
    for at in np.flatnonzero(contents.is_forgotten[events]).tolist():
        made[at] = contents.retracted[int(events[at])][-1]
    return made


def _taken_back(events: Codes, groups: Codes, digest: Codes, contents: Contents) -> dict[int, list[int]]:
    """Map each event to what was taken back in its group; lists are shared by a group."""
    of_group: dict[int, set[int]] = {}
    for event, group in zip(events.tolist(), groups.tolist(), strict=True):
        found = of_group.setdefault(group, set())
        found.update(contents.retracted.get(event, ()))
        if contents.is_retraction[event]:
            found.add(int(digest[event]))
    lists = {group: sorted(found) for group, found in of_group.items() if found}
    return {e: lists[g] for e, g in zip(events.tolist(), groups.tolist(), strict=True) if g in lists}


def digests(rows: pa.Table) -> Codes:
    """Return a number from 1 for each row's content, the same in every process."""
    columns = [rows[name].to_pylist(maps_as_pydicts="strict") for name in rows.column_names]
    return np.array([_digest(values) for values in zip(*columns, strict=True)], dtype=np.int64)


def _digest(values: Sequence[Any]) -> int:
    text = repr(equality_key(values)).encode()
    whole = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (whole >> 1) | 1
