"""Rows that changed their key: where a value that an update did not carry may still be found.

An update that changes a row's key arrives as a delete under the old key and an insert under the new one, and a column that
it left out (an unavailable value) is still known under the old key, or under the keys before that: a chain of moves. A
row that waits for such a value keeps its chain in its entry (`_moved_from`, see `ebbtide.model.operators.sequence`).
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.model.codes import Codes

Mask = NDArray[np.bool_]
UNKNOWN = -1
"""No event, or no lsn."""


class Move(NamedTuple):
    """An update that changed a row's key: where it stands in the log, the old key as JSON, its arrival in this step."""

    lsn: int
    old_key: str
    arrival: int


class Moves:
    """The moves among one step's events: stored entries first, then changes in order of arrival.

    Args:
        events: (n,) the key's columns and `_moved_from`.
        key: Names of the key's columns.
        code: (n,) dense codes of the keys.
        lsn: (n,) where each event stands in the log.
        arrival: (n,) place in this step, -1 for entries.
        is_delete: (n,) deletes and tombstones.
        valid: (n,) events that count.
        order: Those, by (code, lsn, rank, arrival).
        base: (codes,) lsn of each key's newest delete, at least the floor.
        floor: lsn below which everything is dead.
    """

    def __init__(
        self,
        events: pa.Table,
        key: tuple[str, ...],
        *,
        code: Codes,
        lsn: Codes,
        arrival: Codes,
        is_delete: Mask,
        valid: Mask,
        order: Codes,
        base: Codes,
        floor: int,
    ) -> None:
        self.events, self.key, self.code, self.lsn, self.arrival = events, key, code, lsn, arrival
        self.is_delete, self.valid, self.order, self.base, self.floor = is_delete, valid, order, base, floor

    @cached_property
    def since(self) -> Codes:
        """Give each key the lsn from which on a value of its own may fill its row: the last delete, or the last move to it."""
        since = self.base.copy()
        for key in self._of_key:
            if (code := self._code_of_key.get(key)) is not None and (move := self._last(key)):
                since[code] = move.lsn
        return since

    def value(self, row: int, absent: Mask, stored: dict[int, int]) -> tuple[int, int]:
        """Look for a column's value under the keys that a row had before; there it counts as known at the move.

        Args:
            row: The event that shows the row.
            absent: (n,) events that did not carry the column.
            stored: Entry to the lsn at which its value was last known, where that is older than the entry.

        Returns:
            (event, lsn), each -1 if there is none.
        """
        key = self._key_texts[row]
        move = self._last(key)
        if move is None:
            return UNKNOWN, UNKNOWN
        event = self._known_under(move, absent, stored)
        if event >= 0:
            return event, move.lsn
        event = self._snapshot(self._known(key, math.inf, absent, stored), self._deleted(key), math.inf)
        return event, min(event, 0)

    def open(self, row: int) -> str | None:
        """Write, as `_moved_from`, where a row that waits may still find its values."""
        chain: list[dict[str, Any]] = []
        move = self._last(self._key_texts[row])
        while move:
            chain.append({"lsn": move.lsn, "key": json.loads(move.old_key)})
            move = self._last(move.old_key, move.lsn)
        return json.dumps(chain) if chain else None

    @cached_property
    def _of_key(self) -> dict[str, dict[int, Move]]:
        """Map a key, as JSON, to the updates that gave a row this key, by their lsn."""
        moved = self.events["_moved_from"]
        found: dict[str, dict[int, Move]] = {}
        for i in np.flatnonzero(moved.is_valid().to_numpy() & self.valid).tolist():
            key, moves = self._key_texts[i], json.loads(moved[i].as_py())
            for move in moves if isinstance(moves, list) else [moves]:
                first = Move(move["lsn"], json.dumps(move["key"]), int(self.arrival[i]))
                found.setdefault(key, {}).setdefault(first.lsn, first)
                key = first.old_key
        return found

    @cached_property
    def _key_texts(self) -> list[str]:
        return key_texts(self.events, self.key)

    @cached_property
    def _code_of_key(self) -> dict[str, int]:
        return dict(zip(self._key_texts, self.code.tolist(), strict=True))

    def _last(self, key: str, below: float = math.inf) -> Move | None:
        """Return the last move to a key below a position, unless the row was deleted since."""
        deleted = self._deleted(key, below)
        return max([m for lsn, m in self._of_key.get(key, {}).items() if deleted <= lsn < below], default=None)

    def _deleted(self, key: str, below: float = math.inf) -> int:
        """Return the lsn of a key's last delete below a position, at least the floor."""
        code = self._code_of_key.get(key)
        if code is None or self.base[code] < below:
            return self.floor if code is None else int(self.base[code])
        return max([int(self.lsn[i]) for i in self._events(key, below) if self.is_delete[i]], default=self.floor)

    def _events(self, key: str, below: float = math.inf) -> list[int]:
        code = self._code_of_key.get(key, UNKNOWN)
        start, end = np.searchsorted(self.code[self.order], [code, code + 1])
        return [int(i) for i in self.order[start:end] if self.lsn[i] < below]

    def _known_under(self, until: Move, absent: Mask, stored: dict[int, int]) -> int:
        """Find the event with the last value under the key that a row moved on from, or under the keys before that."""
        snapshots, at = [UNKNOWN], cast("Move | None", until)
        while at:
            moved, deleted = self._last(at.old_key, at.lsn), self._deleted(at.old_key, at.lsn)
            known = self._known(at.old_key, at.lsn, absent, stored)
            best = max([each for each in known if each[0] >= max(deleted, moved.lsn if moved else 1)], default=None)
            if best:
                return best[1]
            snapshots.append(self._snapshot(known, deleted, at.arrival))
            at = moved
        return next((event for event in reversed(snapshots) if event >= 0), UNKNOWN)

    def _known(self, key: str, below: float, absent: Mask, stored: dict[int, int]) -> list[tuple[int, int]]:
        """List (lsn at which the value was known, event) of a key's rows below a position."""
        events = [i for i in self._events(key, below) if not self.is_delete[i] and not absent[i]]
        return [(stored.get(i, int(self.lsn[i])), i) for i in events]

    def _snapshot(self, known: list[tuple[int, int]], deleted: int, arrival: float) -> int:
        """Pick a snapshot row, which has no lsn: the last choice, and none if it was read after the row had moved on."""
        return max([i for at, i in known if at == 0 and deleted <= 0 and self.arrival[i] < arrival], default=UNKNOWN)


def key_texts(table: pa.Table, key: tuple[str, ...]) -> list[str]:
    """Return each row's key as a JSON list."""
    columns = [table[name].to_pylist() for name in key]
    return [json.dumps(list(values), default=str) for values in zip(*columns, strict=True)]
