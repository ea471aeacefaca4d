"""The small form: a key's rows as one list, read and written as a whole. Each operation takes time linear in its length.

The raw state `history` holds, per key, `[[row, stamp_ms], ...]`, oldest first. The entry's stamp is the list's last
write.
"""

from __future__ import annotations

from collections.abc import Hashable

from ebbtide.keyed_state import Entry, Store
from ebbtide.materializer._element import Element, Identify, Removed, Row, lives


class ListForm:
    """Histories as lists.

    Args:
        store: Holds the histories.
        identify: Returns a row's equality key: a retraction matches the rows with an equal one.
        replaces: An added row takes the place of one with its equality key.
        ttl_ms: Time to live; None: it never expires.
        one_clock: The list expires as a whole, by its last write.
    """

    def __init__(
        self,
        store: Store,
        identify: Identify,
        *,
        replaces: bool,
        ttl_ms: int | None,
        one_clock: bool,
    ) -> None:
        self._history = store.state("history")
        self._identify = identify
        self._replaces = replaces
        self._ttl_ms = ttl_ms
        self._one_clock = one_clock

    def elements(
        self,
        key: Hashable,
        entry: Entry | None,
        now_ms: int,
    ) -> list[Element]:
        """Return the live elements of a stored list, oldest first."""
        if entry is None:
            return []
        elements = [Element(row, stamp_ms) for row, stamp_ms in entry.value]
        # LEGACY: the whole list lives from its last write, as in Flink. Else each element has its own stamp.
        if not self._one_clock:
            return [element for element in elements if lives(element.stamp_ms, self._ttl_ms, now_ms)]
        last_write_ms = entry.stamp_ms or 0
        is_alive = lives(last_write_ms, self._ttl_ms, now_ms)
        return elements if is_alive else []

    def add(
        self,
        key: Hashable,
        entry: Entry | None,
        element: Element,
        now_ms: int,
    ) -> tuple[bool, int]:
        """Append a row, or put it in the place of the row that it matches.

        Returns:
            Whether the history was empty, and its length now.
        """
        elements = self.elements(key, entry, now_ms)
        was_empty = not elements
        index = None
        if self._replaces:
            index = self._find(elements, element.row)
        if index is None:
            elements.append(element)
        else:
            elements[index] = element
        self.store(key, elements, now_ms)
        return was_empty, len(elements)

    def remove(
        self,
        key: Hashable,
        entry: Entry | None,
        row: Row,
        now_ms: int,
    ) -> tuple[Removed | None, int]:
        """Remove the oldest row with the equality key of `row`.

        Returns:
            The effect, None if there is no such row; the history's new length.
        """
        elements = self.elements(key, entry, now_ms)
        index = self._find(elements, row)
        if index is None:
            stored_length = 0 if entry is None else len(entry.value)
            has_expired = len(elements) < stored_length
            if has_expired:
                self.store(key, elements, now_ms)
            return None, len(elements)
        last_index = len(elements) - 1
        was_last = index == last_index
        del elements[index]
        self.store(key, elements, now_ms)
        last = elements[-1].row if elements else None
        return Removed(was_last, last), len(elements)

    def sweep(self, key: Hashable, entry: Entry, now_ms: int) -> tuple[int, int]:
        """Drop the expired elements of a stored list.

        Returns:
            Their number, and the history's new length.
        """
        elements = self.elements(key, entry, now_ms)
        n_expired = len(entry.value) - len(elements)
        if n_expired:
            last_write_ms = entry.stamp_ms or 0  # a sweep is no write
            self.store(key, elements, last_write_ms)
        return n_expired, len(elements)

    def store(
        self,
        key: Hashable,
        elements: list[Element],
        now_ms: int,
    ) -> None:
        """Write a list; an empty one leaves nothing."""
        if not elements:
            self._history.remove(key, None)
            return
        rows = [list(element) for element in elements]
        entry = Entry(rows, now_ms)
        self._history.put(key, None, entry)

    def _find(self, elements: list[Element], row: Row) -> int | None:
        wanted = self._identify(row)
        for index, element in enumerate(elements):
            equality = self._identify(element.row)
            if equality == wanted:
                return index
        return None
