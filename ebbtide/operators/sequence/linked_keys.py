"""Keys that are linked by changes of the key: from entries and changes to the log that is played, and back to entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ebbtide.model.codes import Codes
from ebbtide.model.entries import is_set
from ebbtide.model.sequences import UNKNOWN
from ebbtide.operators.sequence.events import Events
from ebbtide.operators.sequence.key_changes import Kept, KeyChange, Played, chain, play
from ebbtide.operators.sequence.linked_log import LinkedLog
from ebbtide.operators.sequence.ties import Mask

KeyChanges = tuple[KeyChange, ...]


class KeptLink(NamedTuple):
    """A row that is kept, and the changes of the key that it went through, as far as they are needed; newest first."""

    row: Kept
    moved_from: KeyChanges


@dataclass(frozen=True)
class Link:
    """How a key's row is linked to other rows, by ranks and codes.

    Args:
        moved_from: Changes of the key that the row went through since its oldest value is known, newest first.
        kept: The last rows that had the key before, while a change of the key has yet to take them elsewhere; the oldest first.
        is_pending: The row, or one that is kept, lacks a value that may be found under an old key.
    """

    moved_from: KeyChanges = ()
    kept: tuple[KeptLink, ...] = ()
    is_pending: bool = False

    @property
    def all_moves(self) -> list[KeyChange]:
        """All changes of the key, in the order in which they are stored."""
        moves = list(self.moved_from)
        for kept in self.kept:
            moves += kept.moved_from
        return moves

    @property
    def equality_key(self) -> tuple[Any, Any]:
        """What two links have in common exactly if they are equal."""
        moved_from = [(change.sequence, change.old_key) for change in self.all_moves]
        kept = []
        for row, moves in self.kept:
            since = sorted((name, known.since) for name, known in row.values.items())
            kept.append((row.sequence, row.until, row.has_left, row.started, since, len(moves)))
        return moved_from, kept


NO_LINK = Link()


class LinkedKeys:
    """The keys among a step's events that changes of the key concern.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events

    def values(self, winner: Codes, name: str) -> Iterator[tuple[int, int, int]]:
        """Yield what is known from the log of a column under the keys that are linked.

        Args:
            winner: (m,) the event that shows each key's row.
            name: The column.

        Yields:
            Index in `winner`; the event that carries the value, `UNKNOWN` if none does; the rank since when it is known, or
            `UNKNOWN`.
        """
        for i, event, code in self._linked(winner):
            if self.events.is_delete[event]:
                continue
            row = self.played.rows.get(code)
            if row is None or name not in row.values:
                yield i, self._entry_of_same_row(code, name), UNKNOWN
                continue
            known = row.values[name]
            yield i, known.event, known.since

    def _entry_of_same_row(self, code: int, name: str) -> int:
        """Return the entry of a key if its row is the one that the key has now, and a value is stored that is not known since when.

        Older entries hold such values: found under an old key whose delete had yet to arrive.
        """
        events = self.events
        entry = int(events.entry_of[code])
        if entry == UNKNOWN or events.is_delete[entry]:
            return UNKNOWN
        if events.known_since.get(entry, {}).get(name) != UNKNOWN:
            return UNKNOWN
        has_same_since = events.since[code] == events.stored_since[entry]
        has_same_base = events.base[code] == max(events.stored_base[entry], events.floor)
        return entry if has_same_since and has_same_base else UNKNOWN

    def links(self, winner: Codes, known_at: Mapping[str, Codes]) -> dict[int, Link]:
        """Return how the rows under linked keys are linked to others, by index in `winner`.

        Args:
            winner: (m,) the event that shows each key's row.
            known_at: Column to (m,) rank since when its value is known.
        """
        links: dict[int, Link] = {}
        for i, event, code in self._linked(winner):
            kept = [self._kept_link(row) for row in self.played.kept.get(code, ())]
            row = self.played.rows.get(code)
            ranks: list[int] = []
            moved_from: KeyChanges = ()
            if row is not None and not self.events.is_delete[event]:
                ranks = [known_since[i] for known_since in known_at.values()]
                moved_from = _needed(row.change, ranks)
            lacks_value = bool(moved_from) and UNKNOWN in ranks
            links[i] = Link(
                moved_from=moved_from,
                kept=tuple(kept),
                is_pending=lacks_value or any(self._is_pending(each) for each in kept),
            )
        return links

    def _kept_link(self, row: Kept) -> KeptLink:
        return KeptLink(row, _needed(row.change, self._ranks_of(row)))

    def _is_pending(self, kept: KeptLink) -> bool:
        return bool(kept.moved_from) and UNKNOWN in self._ranks_of(kept.row)

    def _ranks_of(self, row: Kept) -> list[int]:
        """Return since when the values of a kept row are known; `UNKNOWN` where they are not."""
        since = {name: known.since for name, known in row.values.items()}
        return [since.get(name, UNKNOWN) for name in self.events.may_be_unsent]

    def is_news(self, entry: int, link: Link) -> bool:
        """Whether an entry remembers other links than these."""
        links = self.events.links
        log = self._log
        kept = []
        for number in links.kept_of(int(links.row[entry])):
            names = links.kept[number]["known"].as_py() or ()
            since = sorted(zip(names, links.kept_since[number], strict=True))
            n_moved = log.n_moved(entry, number)
            ranks = links.kept_ranks[number], links.kept_until[number]
            kept.append((*ranks, log.has_left(entry, number), links.kept_started[number], since, n_moved))
        moved_from = log.moves_of_entry(entry)
        return link.equality_key != (moved_from, kept)

    def moved_from(self, links: list[Link]) -> pa.Array:
        """Write links as `_moved_from`."""
        schema = self.events.op.schema
        type_ = schema.field("_moved_from").type
        lists = [self._key_changes(link) for link in links]
        return pa.array(lists, type_)

    def _key_changes(self, link: Link) -> list[dict[str, Any]] | None:
        key_changes = []
        for change in link.all_moves:
            item = self._item_of_old_key.get(change.old_key, UNKNOWN)
            old_key = None if change.old_key == UNKNOWN else self.events.links.old_keys[item].as_py()
            key_changes.append({"sequence": self.events.sequence_of(change.sequence), "key": old_key})
        return key_changes or None

    @cached_property
    def _item_of_old_key(self) -> dict[int, int]:
        """Code of an old key to an item that has it."""
        return {code: item for item, code in enumerate(self.events.old_code)}

    def kept(self, links: list[Link]) -> dict[str, pa.Array]:
        """Write links as `_kept` and `_kept_before`."""
        schema = self.events.op.schema
        newest: list[dict[str, Any] | None] = []
        before: list[list[dict[str, Any]] | None] = []
        for link in links:
            rows = [self._kept_row(kept) for kept in link.kept]
            newest.append(rows[-1] if rows else None)
            before.append(rows[:-1] or None)
        return {
            "_kept": pa.array(newest, schema.field("_kept").type),
            "_kept_before": pa.array(before, schema.field("_kept_before").type),
        }

    def _kept_row(self, link: KeptLink) -> dict[str, Any]:
        events = self.events
        kept = link.row
        row: dict[str, Any] = {}
        for name, known in kept.values.items():
            values = events.values(name)
            row[name] = values[known.event].as_py()
        names = sorted(row)
        return {
            "sequence": events.sequence_of(kept.sequence),
            "until": events.sequence_of(kept.until),
            "known": names,
            "row": row,
            "since": [events.sequence_of(kept.values[name].since) for name in names],
            "has_left": kept.has_left,
            "n_moved": len(link.moved_from),
            "started": events.sequence_of(kept.started),
        }

    def _linked(self, winner: Codes) -> list[tuple[int, int, int]]:
        """Return the index in `winner`, the event and the key's code of the keys that are linked."""
        if not self.is_played.any():
            return []
        codes = self.events.code[winner]
        linked = np.flatnonzero(self.is_played[codes])
        triples = zip(
            linked.tolist(),
            winner[linked].tolist(),
            codes[linked].tolist(),
            strict=True,
        )
        return list(triples)

    @cached_property
    def is_played(self) -> Mask:
        """Mark the keys that a change of the key concerns, or may yet concern."""
        events = self.events
        entry_keys = events.code[: events.n_state]
        change_keys = events.code[events.n_state :]
        waits_for_value = is_set(events.state, "_moved_from")
        has_kept_row = is_set(events.state, "_kept")
        is_linked_entry = waits_for_value | has_kept_row
        is_key_change = is_set(events.changes, "_moved_from")
        keys_of_before = events.code[self._rows_of_before]
        # Both ends of a change of the key: the old key's row may hold what the new key's lacks.
        concerned = np.zeros(events.n_codes, dtype=bool)
        concerned[[code for code in events.old_code if code != UNKNOWN]] = True
        concerned[entry_keys[is_linked_entry]] = True
        concerned[change_keys[is_key_change]] = True
        concerned[keys_of_before] = True
        return concerned

    @cached_property
    def _rows_of_before(self) -> Codes:
        """Find the rows that had their key before another row got it, and are not known to have left.

        Such a row may have gone to another key, in a change that has yet to arrive without all its values.
        """
        events = self.events
        if not events.may_be_unsent:
            return np.empty(0, np.int64)
        is_delete = events.is_delete[events.order]
        event = events.order[~is_delete]
        key = events.code[event]
        sequence = events.sequence[event]
        since = events.since[key]
        base = events.base[key]
        # Snapshot rows stand below all changes: where they stood in the log is not known.
        is_in_log = sequence >= events.snapshot_ranks
        is_before = is_in_log & (sequence < since)
        # A delete between the two rows is how the earlier one left; one above both ended the later one too.
        has_no_later_delete = base < sequence
        rows: Codes = event[is_before & has_no_later_delete]
        return rows

    @cached_property
    def played(self) -> Played:
        """What is known of those keys at the end of their log."""
        return play(list(self._log), self._log.forgets)

    @cached_property
    def _log(self) -> LinkedLog:
        return LinkedLog(self.events, self.is_played)


def _needed(change: KeyChange | None, ranks: Sequence[int]) -> KeyChanges:
    """Return the changes of the key that a row went through since its oldest value is known.

    What happened before that, under whatever key, has no part in it.

    Args:
        change: The last one.
        ranks: Of the sequences since when its values are known.
    """
    if not ranks:
        return ()  # its values are all its own
    oldest = min(ranks)
    return tuple(each for each in chain(change) if each.sequence > oldest)
