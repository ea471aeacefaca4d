"""The ordered multiset: per key, rows in order of insertion, equal rows kept apart, in one of two forms.

| strategy | form | good for |
|---|---|---|
| LEGACY | a list; with a time to live the whole list has one clock, as in Flink | histories under about 100 rows |
| VALUE | a list; each row has its own clock | the same |
| MAP | linked nodes: every operation takes constant time | long histories |
| ADAPTIVE | a list up to `threshold_high` rows, linked nodes from there down to `threshold_low` | histories of unknown length |

Stored in the raw states `history` (a key's list, or the head of its nodes), `rows` and `nodes`; see `_list_form` and
`_linked_form`. Both forms hold the same, and each strategy reads both: the strategy may be changed at any time, and
each key is converted at its next change. A key without rows leaves nothing stored.

Source: FLIP-544, "Proposed Changes" and "Switching the algorithm dynamically"; Flink 2.3's `SequencedMultiSetState`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from enum import StrEnum

from ebbtide.columns import equality_key
from ebbtide.keyed_state import Entry, Store
from ebbtide.materializer._element import Element, Identify, Removed, Row
from ebbtide.materializer._linked_form import LinkedForm
from ebbtide.materializer._list_form import ListForm

_Form = ListForm | LinkedForm


class Strategy(StrEnum):
    """Storage of a key's rows; the names are FLIP-544's."""

    LEGACY = "LEGACY"
    VALUE = "VALUE"
    MAP = "MAP"
    ADAPTIVE = "ADAPTIVE"


class OrderedMultiset:
    """The rows of many keys.

    Args:
        store: Where the rows are stored.
        strategy: How they are stored.
        identify: Returns a row's equality key: a retraction matches the rows with an equal one.
        replaces: An added row takes the place of one with its equality key, as with an upsert key.
        ttl_ms: Time to live, from when a row was written; None: it never expires.
        high: `threshold_high` of ADAPTIVE. Default: the store's.
        low: `threshold_low` of ADAPTIVE. Default: the store's.

    Raises:
        ValueError: `low` is not below `high`.

    Example:
        >>> from ebbtide.stores._heap import HeapStore
        >>> rows = OrderedMultiset(HeapStore(), Strategy.MAP)
        >>> rows.add("k", ("a",)), rows.add("k", ("b",)), rows.remove("k", ("b",))
        (True, False, Removed(was_last=True, last=('a',)))
    """

    def __init__(
        self,
        store: Store,
        strategy: Strategy = Strategy.ADAPTIVE,
        *,
        identify: Identify = equality_key,
        replaces: bool = False,
        ttl_ms: int | None = None,
        high: int | None = None,
        low: int | None = None,
    ) -> None:
        self._history = store.state("history")
        self._strategy = strategy
        self._high, self._low = _thresholds(store, strategy, high, low)
        self._list = ListForm(
            store,
            identify,
            replaces=replaces,
            ttl_ms=ttl_ms,
            one_clock=strategy is Strategy.LEGACY,
        )
        self._nodes = LinkedForm(
            store,
            identify,
            replaces=replaces,
            ttl_ms=ttl_ms,
            counts=strategy is Strategy.ADAPTIVE,
        )

    def add(
        self,
        key: Hashable,
        row: Row,
        *,
        stamp_ms: int = 0,
        now_ms: int = 0,
    ) -> bool:
        """Append a row, or put it in the place of the row that it matches.

        Returns:
            Whether the history was empty.
        """
        entry = self._history.get(key, None)
        form = self._form(entry)
        element = Element(row, stamp_ms)
        was_empty, length = form.add(key, entry, element, now_ms)
        self._settle(key, form, length, now_ms)
        return was_empty

    def remove(
        self,
        key: Hashable,
        row: Row,
        *,
        now_ms: int = 0,
    ) -> Removed | None:
        """Remove the oldest row with the equality key of `row`; None if there is none."""
        entry = self._history.get(key, None)
        form = self._form(entry)
        removed, length = form.remove(key, entry, row, now_ms)
        self._settle(key, form, length, now_ms)
        return removed

    def elements(self, key: Hashable, *, now_ms: int = 0) -> list[Element]:
        """Return a key's live rows, oldest first."""
        entry = self._history.get(key, None)
        form = self._form(entry)
        return form.elements(key, entry, now_ms)

    def sweep(self, *, now_ms: int) -> int:
        """Unlink what has expired, of all keys; return the number of rows.

        Operations drop the expired rows that they meet, and never return one. Rows of keys that nothing comes for any more stay
        until a sweep: call it every few seconds or minutes. It looks at each key.

        Args:
            now_ms: The time that rows expire by, epoch ms.

        Example:
            >>> from ebbtide.stores._heap import HeapStore
            >>> rows = OrderedMultiset(HeapStore(), Strategy.MAP, ttl_ms=10)
            >>> for key, stamp_ms in [("a", 0), ("a", 5), ("b", 0)]:
            ...     _ = rows.add(key, (stamp_ms,), stamp_ms=stamp_ms)
            >>> rows.sweep(now_ms=10), rows.sweep(now_ms=10), rows.elements("a", now_ms=10)
            (2, 0, [Element(row=(5,), stamp_ms=5)])

        Source: FLIP-544, "TTL support".
        """
        n_expired = 0
        for key in self._history.all_keys():
            entry = self._history.get(key, None)
            if entry is None:
                continue
            form = self._form(entry)
            n_of_key, length = form.sweep(key, entry, now_ms)
            n_expired += n_of_key
            if n_of_key:
                self._settle(key, form, length, now_ms)
        return n_expired

    def _form(self, entry: Entry | None) -> _Form:
        """Return the form of a stored history, or of a new one."""
        if entry is None:
            begins_linked = self._strategy is Strategy.MAP
            return self._nodes if begins_linked else self._list
        is_list = isinstance(entry.value, list)
        return self._list if is_list else self._nodes

    def _settle(
        self,
        key: Hashable,
        form: _Form,
        length: int,
        now_ms: int,
    ) -> None:
        """Rewrite a key in the other form if its length has crossed a threshold."""
        other: _Form
        # The thresholds lie apart, so that a key whose length varies between them is not rewritten at each change.
        if form is self._list:
            other = self._nodes
            is_misplaced = length >= self._high
        else:
            other = self._list
            is_misplaced = length <= self._low
        if is_misplaced:
            self._move(key, form, other, now_ms)

    def _move(
        self,
        key: Hashable,
        source: _Form,
        target: _Form,
        now_ms: int,
    ) -> None:
        """Write a key's rows in the other form."""
        entry = self._history.get(key, None)
        elements = source.elements(key, entry, now_ms)
        if source is self._nodes:
            self._nodes.clear_nodes(key)
        target.store(key, elements, now_ms)


def _thresholds(
    store: Store,
    strategy: Strategy,
    high: int | None,
    low: int | None,
) -> tuple[float, float]:
    """Return the lengths at which a list becomes nodes, and at which nodes become a list."""
    if strategy is Strategy.MAP:
        return 1, -1
    if strategy is not Strategy.ADAPTIVE:
        return math.inf, math.inf
    default_high, default_low = store.thresholds
    high = default_high if high is None else high
    low = default_low if low is None else low
    if not 0 <= low < high:
        raise ValueError(
            f"threshold_low must be below threshold_high; got low {low}, high {high}; allowed: 0 <= low < high"
        )
    return high, low
