"""The ordered multiset: rows in order of insertion, equal rows kept apart; every operation takes constant time.

Source: FLIP-544, "Ordered multiset"; the behaviour is that of Flink's strategy LEGACY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

R = TypeVar("R", bound=Hashable)


class Element(NamedTuple, Generic[R]):
    """A row in the multiset and its place, which grows with insertion."""

    row: R
    position: int


class OrderedMultiset(Generic[R]):
    """One key's live rows.

    Args:
        elements: The rows to start from, positions ascending.
        next_position: The first place to give out; above every place ever used that may still be stored.

    Example:
        >>> rows = OrderedMultiset([Element("a", 0), Element("b", 1), Element("a", 2)], next_position=3)
        >>> rows.retract("a")
        Element(row='a', position=0)
        >>> rows.add("c"), rows.last
        (Element(row='c', position=3), Element(row='c', position=3))
        >>> rows.retract("x") is None
        True
    """

    def __init__(self, elements: Iterable[Element[R]] = (), *, next_position: int = 0) -> None:
        self._rows: dict[int, R] = {}  # by position, ascending
        self._places: dict[R, deque[int]] = {}
        self._tail: list[int] = []  # positions, ascending; at its end possibly some that are gone
        self._next = next_position
        for element in elements:
            self._append(element)

    def __iter__(self) -> Iterator[Element[R]]:
        return (Element(row, position) for position, row in self._rows.items())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def last(self) -> Element[R] | None:
        """The row inserted last, which the sink shows; None when empty."""
        while self._tail and self._tail[-1] not in self._rows:
            self._tail.pop()
        return Element(self._rows[self._tail[-1]], self._tail[-1]) if self._tail else None

    def add(self, row: R) -> Element[R]:
        """Append a row, equal ones or not."""
        element = Element(row, self._next)
        self._next += 1
        self._append(element)
        return element

    def retract(self, row: R) -> Element[R] | None:
        """Remove and return the oldest equal row; None when there is none."""
        places = self._places.get(row)
        if not places:
            return None
        position = places.popleft()
        if not places:
            del self._places[row]
        return Element(self._rows.pop(position), position)

    def _append(self, element: Element[R]) -> None:
        self._rows[element.position] = element.row
        self._places.setdefault(element.row, deque()).append(element.position)
        self._tail.append(element.position)
