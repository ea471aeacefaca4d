"""Links from rows to other keys, made by key changes: as a step decides them, and as entries store them.

Few entries are linked. Their stored links are read once, into plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask, is_set

StoredKeyChange = tuple[int, int, int | None]
"""A key change: (rank of its sequence, code of the old key, commit time). The code is `UNKNOWN` if the row is cut off from that
key. The time is epoch ms, None if unknown."""
KeyChanges = tuple[StoredKeyChange, ...]
"""A row's key changes, the newest first."""


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A former row of a key. A key change that has not arrived yet may move it to another key.

    Args:
        sequence: Rank of its last sequence; `UNKNOWN` if none is known.
        until: Rank of the sequence at which it was deleted or replaced by another row.
        has_left: It was deleted and continues under another key; false if another row replaced it.
        started: Rank of the sequence at which it got the key, or `UNKNOWN`.
        key_changes: Its key changes, as far as they are needed.
        since: Known column to the rank from which its value is known.
        carriers: Known column to the event that carries the value. Not compared: equal links may have different events.
    """

    sequence: int
    until: int
    has_left: bool
    started: int
    key_changes: KeyChanges
    since: Mapping[str, int]
    carriers: Mapping[str, int] = field(compare=False)


class Link(NamedTuple):
    """Links of a key's row to other rows.

    Args:
        key_changes: The row's key changes since its oldest value is known.
        kept: Former rows of the key that wait for a key change, the oldest first.
    """

    key_changes: KeyChanges = ()
    kept: tuple[KeptRow, ...] = ()

    @property
    def all_key_changes(self) -> list[StoredKeyChange]:
        """All key changes, in stored order."""
        key_changes = list(self.key_changes)
        for row in self.kept:
            key_changes += row.key_changes
        return key_changes


NO_LINK = Link()


def is_waiting(entries: pa.Table) -> Mask:
    """Mark the entries that wait for a value from an old key, or for a key change that moves a kept row."""
    known = in_one_piece(entries["_columns"])
    is_unknown = known.items.is_null().to_numpy(zero_copy_only=False)
    # The items of all entries form one array. The difference of a running count at both ends of an entry's items is its number
    # of unknown items.
    running_count = np.concatenate([[0], np.cumsum(is_unknown)])
    count_at = running_count[known.offsets.to_numpy()]
    n_unknown = np.diff(count_at)
    lacks_value = n_unknown > 0
    waits_for_value = is_set(entries, "_moved_from") & lacks_value
    awaits_departure = is_set(entries, "_kept")
    return np.asarray(waits_for_value | awaits_departure)


@dataclass(frozen=True)
class StoredLinks:
    """Links to other keys in entries and key changes, as Arrow lists.

    Args:
        moved: (entries + changes,) `_moved_from`.
        kept: The kept rows: (entries,) `_kept`, then the items of `_kept_before`.
        kept_before: (entries,) `_kept_before`.
        moved_ms: (entries,) `_moved_ms`.
    """

    moved: pa.ListArray
    kept: pa.StructArray
    kept_before: pa.ListArray
    moved_ms: pa.ListArray

    @classmethod
    def of(
        cls,
        entries: pa.Table,
        changes: pa.Table,
    ) -> Self:
        """Read the linked entries of a step, and its changes."""
        moved = [in_one_piece(rows["_moved_from"]) for rows in (entries, changes)]
        kept_before = in_one_piece(entries["_kept_before"])
        kept = [in_one_piece(entries["_kept"]), kept_before.values]
        return cls(
            pa.concat_arrays(moved),
            pa.concat_arrays(kept),
            kept_before,
            in_one_piece(entries["_moved_ms"]),
        )

    @property
    def sequences(self) -> list[pa.StructArray]:
        """All sequences of the links; `read` takes their ranks in this order."""
        since = pc.struct_field(self.kept, "since")
        return [
            pc.struct_field(self.moved.values, "sequence"),
            pc.struct_field(self.kept, "sequence"),
            pc.struct_field(self.kept, "until"),
            pc.struct_field(self.kept, "started"),
            since.values,
        ]

    @property
    def old_keys(self) -> pa.StructArray:
        """The old key of each item of `moved`; null if the row is cut off from it."""
        return pc.struct_field(self.moved.values, "key")

    def read(
        self,
        ranks: Sequence[Sequence[int]],
        old_codes: Sequence[int],
        is_deleted: Sequence[bool],
        deleted_at: Sequence[int],
        first_kept: int,
    ) -> list[Link]:
        """Return the links of the entries; fields that older versions did not write get their defaults.

        Args:
            ranks: Ranks of `sequences`.
            old_codes: Codes of `old_keys`.
            is_deleted: (entries,) true for tombstones.
            deleted_at: (entries,) rank of each entry's newest delete.
            first_kept: Index of the first kept row's event.
        """
        moved_at, kept_at, until, started, since = ranks
        times = self.moved_ms.to_pylist()
        known = self._known(kept_at, since)
        has_left = pc.struct_field(self.kept, "has_left").to_pylist()
        n_moved = pc.struct_field(self.kept, "n_moved").to_pylist()
        # Row by row: linked entries are few, and each has at most a few kept rows.
        links = []
        for entry in range(len(self.kept_before)):
            items = _items_of(self.moved, entry)
            event_ms = times[entry] or [None] * len(items)  # older releases did not write them
            own_key_changes = tuple(
                (moved_at[item], old_codes[item], ms) for item, ms in zip(items, event_ms, strict=True)
            )
            kept: list[KeptRow] = []
            # The kept rows' key changes follow those of the entry's row, in the order of the rows, so the list is read
            # from the end.
            for number in reversed(self._kept_of(entry)):
                # Older releases kept one row and stored neither field. It had left if the entry's delete ended it. A
                # tombstone's key changes belonged to the kept row.
                left = has_left[number]
                n_own = n_moved[number]
                if left is None:
                    left = deleted_at[entry] == until[number]
                if n_own is None:
                    n_own = len(own_key_changes) if is_deleted[entry] else 0
                n_rest = len(own_key_changes) - n_own
                row = KeptRow(
                    sequence=kept_at[number],
                    until=until[number],
                    has_left=left,
                    started=started[number],
                    key_changes=own_key_changes[n_rest:],
                    since=known[number],
                    carriers=dict.fromkeys(known[number], first_kept + number),
                )
                kept.insert(0, row)
                own_key_changes = own_key_changes[:n_rest]
            links.append(Link(own_key_changes, tuple(kept)))
        return links

    def _kept_of(self, entry: int) -> list[int]:
        """Return the indices in `kept` of an entry's rows, the oldest first."""
        n_entries = len(self.kept_before)
        own_items = _items_of(self.kept_before, entry)
        # `kept` begins with one place per entry for its newest kept row, or null; all earlier rows follow.
        places = [n_entries + item for item in own_items]
        if self.kept[entry].is_valid:
            places.append(entry)
        return places

    def _known(
        self,
        kept_at: Sequence[int],
        since: Sequence[int],
    ) -> list[dict[str, int]]:
        """Map the known columns of each kept row to ranks; in older releases the row's rank applied to all."""
        names_of = pc.struct_field(self.kept, "known").to_pylist()
        since_of = pc.struct_field(self.kept, "since")
        known = []
        for number, names in enumerate(names_of):
            ranks = [since[item] for item in _items_of(since_of, number)]
            if not since_of[number].is_valid:
                ranks = [kept_at[number]] * len(names or ())
            known.append(dict(zip(names or (), ranks, strict=True)))
        return known


def _items_of(lists: pa.ListArray, row: int) -> range:
    """Return the indices of one list's items among the items of all lists."""
    first, end = lists.offsets[row : row + 2].to_pylist()
    return range(first, end)


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array whose nested values start at 0."""
    return column.combine_chunks()
