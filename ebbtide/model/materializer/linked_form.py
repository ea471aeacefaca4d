"""The large form: a key's rows as linked nodes; every operation takes constant time.

| raw state | per key and | holds |
|---|---|---|
| `history` | | the head `(node number, node, next chain number, length or None)`: the newest node stands here, not in `nodes` |
| `rows` | a row's equality key | its chain `(chain number, first, last)`: the places in it of the oldest and the newest equal row |
| `nodes` | `(chain number, place)`, a node's number | the node `(row, stamp_ms, number of the one before, of the one after)` |

The equal rows of a chain leave oldest first, so that the places in it have no holes and need no links of their own; with the newest
node in the head, an operation reads at most 5 times and writes at most 3 times (FLIP-544: 7 and 3), removals not counted; with a time
to live it reads once more, besides what it finds expired; a
history whose length is counted, as ADAPTIVE needs, writes its head besides.

An expired row is dropped when an operation meets it: as the newest, or as the oldest of its chain.

Source: FLIP-544, "Proposed Changes".
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ebbtide.model.materializer.element import Element, Identify, Removed, Row, lives
from ebbtide.model.state.raw import Entry, Store

Number = tuple[int, int]
Chain = tuple[int, int, int]


class Node(NamedTuple):
    """A row between its neighbours."""

    row: Row
    stamp_ms: int
    before: Number | None
    after: Number | None


class Head(NamedTuple):
    """The newest node, and what the next one needs."""

    number: Number
    newest: Node
    next_chain: int
    length: int | None


class LinkedForm:
    """Histories as linked nodes.

    Args:
        store: Where the raw states are.
        identify: What two rows have in common exactly if they are the same for a retraction.
        replaces: An added row takes the place of one with its equality key.
        ttl_ms: Time to live of each row; None: for ever.
        counts: Keep the length.
    """

    def __init__(self, store: Store, identify: Identify, *, replaces: bool, ttl_ms: int | None, counts: bool) -> None:
        self._heads, self._rows, self._nodes = store.state("history"), store.state("rows"), store.state("nodes")
        self._identify, self._replaces, self._ttl_ms, self._counts = identify, replaces, ttl_ms, counts

    def elements(self, key: Hashable, found: Entry | None, now_ms: int) -> list[Element]:
        """Return the live elements, oldest first; time with their number."""
        head = _head(found)
        node: Node | None = head.newest if head else None
        newest_first = []
        while node is not None:
            newest_first.append(Element(node.row, node.stamp_ms))
            node = self._node(key, node.before) if node.before is not None else None
        return [each for each in reversed(newest_first) if lives(each.stamp_ms, self._ttl_ms, now_ms)]

    def add(self, key: Hashable, found: Entry | None, element: Element, now_ms: int) -> tuple[bool, int]:
        """See `ListForm.add`; the length is 0 if it is not counted."""
        head = self._without_expired_newest(key, self._counted(key, _head(found)), now_ms)
        was_empty = head is None
        like = self._identify(element.row)
        chain = None
        if head is not None and self._replaces:
            head, chain = self._without_expired_oldest(key, head, like, now_ms)
        elif head is not None:
            chain = self._chain(key, like)
        if head is not None and chain is not None and self._replaces:
            return was_empty, self._store(key, self._replaced(key, head, (chain[0], chain[1]), element))
        return was_empty, self._store(key, self._appended(key, head, like, chain, element))

    def remove(self, key: Hashable, found: Entry | None, row: Row, now_ms: int) -> tuple[Removed | None, int]:
        """See `ListForm.remove`; the length is 0 if it is not counted."""
        head = self._without_expired_newest(key, self._counted(key, _head(found)), now_ms)
        like, removed, chain = self._identify(row), None, None
        if head is not None:
            head, chain = self._without_expired_oldest(key, head, like, now_ms)
        if head is not None and chain is not None:
            number = (chain[0], chain[1])
            was_last = number == head.number
            head = self._without_expired_newest(key, self._unlinked(key, head, number, chain), now_ms)
            removed = Removed(was_last, head.newest.row if head else None)
        return removed, self._store(key, head, _head(found))

    def store(self, key: Hashable, elements: list[Element], now_ms: int) -> None:
        """Write the nodes of a history that has none."""
        head: Head | None = None
        for each in elements:
            like = self._identify(each.row)
            head = self._appended(key, head, like, self._chain(key, like), each)
        self._store(key, head)

    def clear(self, key: Hashable) -> None:
        """Remove a key's rows."""
        for raw in (self._heads, self._rows, self._nodes):
            raw.clear(key)

    def _appended(
        self, key: Hashable, head: Head | None, like: Hashable, chain: Chain | None, element: Element
    ) -> Head:
        next_chain = head.next_chain if head else 0
        number, first = (next_chain, 0), 0
        if chain is None:
            next_chain += 1
        else:
            number, first = (chain[0], chain[2] + 1), chain[1]
        self._rows.put(key, like, Entry((number[0], first, number[1])))
        if head is not None:
            self._nodes.put(key, head.number, Entry(head.newest._replace(after=number)))
        node = Node(element.row, element.stamp_ms, head.number if head else None, None)
        length = (head.length or 0) + 1 if head else 1
        return Head(number, node, next_chain, length if self._counts else None)

    def _replaced(self, key: Hashable, head: Head, number: Number, element: Element) -> Head:
        if number == head.number:
            return head._replace(newest=Node(*element, *head.newest[2:]))
        self._nodes.put(key, number, Entry(Node(*element, *self._node(key, number)[2:])))
        return head

    def _unlinked(self, key: Hashable, head: Head, number: Number, chain: Chain | None = None) -> Head | None:
        """Remove the newest node, or the oldest of its chain; tie its neighbours to each other."""
        node = head.newest if number == head.number else self._node(key, number)
        like = self._identify(node.row)
        self._shorten(key, like, number, chain or self._rows.get(key, like).value)  # type: ignore[union-attr] # a node has a chain
        length = None if head.length is None else head.length - 1
        if node.after is None:
            if node.before is None:
                return None
            newest = self._node(key, node.before)._replace(after=None)
            self._nodes.remove(key, node.before)
            return head._replace(number=node.before, newest=newest, length=length)
        self._nodes.remove(key, number)
        if node.before is not None:
            self._nodes.put(key, node.before, Entry(self._node(key, node.before)._replace(after=node.after)))
        if node.after == head.number:
            return head._replace(newest=head.newest._replace(before=node.before), length=length)
        self._nodes.put(key, node.after, Entry(self._node(key, node.after)._replace(before=node.before)))
        return head._replace(length=length)

    def _shorten(self, key: Hashable, like: Hashable, number: Number, chain: Chain) -> None:
        """Take a node's place out of its chain."""
        name, first, last = chain
        if first == last:
            self._rows.remove(key, like)
        else:
            at_front = number[1] == first
            self._rows.put(key, like, Entry((name, first + at_front, last - (not at_front))))

    def _without_expired_newest(self, key: Hashable, head: Head | None, now_ms: int) -> Head | None:
        while head is not None and not lives(head.newest.stamp_ms, self._ttl_ms, now_ms):
            head = self._unlinked(key, head, head.number)
        return head

    def _without_expired_oldest(
        self, key: Hashable, head: Head, like: Hashable, now_ms: int
    ) -> tuple[Head, Chain | None]:
        """Drop the expired front of a chain; the newest node is alive, so one stays."""
        chain = self._chain(key, like)
        while chain is not None and self._ttl_ms is not None:
            number = (chain[0], chain[1])
            node = head.newest if number == head.number else self._node(key, number)
            if lives(node.stamp_ms, self._ttl_ms, now_ms):
                break
            head = self._unlinked(key, head, number, chain) or head
            chain = self._chain(key, like)
        return head, chain

    def _counted(self, key: Hashable, head: Head | None) -> Head | None:
        """Count a history that was written without its length."""
        if head is None or not self._counts or head.length is not None:
            return head
        return head._replace(length=len(self.elements(key, Entry(head), 0)))

    def _store(self, key: Hashable, head: Head | None, stored: Head | None = None) -> int:
        """Write the head if it changed; an empty history leaves nothing."""
        if head is None:
            self._heads.remove(key, None)
            return 0
        if head != stored:
            self._heads.put(key, None, Entry(head))
        return head.length or 0

    def _chain(self, key: Hashable, like: Hashable) -> Chain | None:
        found = self._rows.get(key, like)
        return None if found is None else found.value

    def _node(self, key: Hashable, number: Number) -> Node:
        return Node(*self._nodes.get(key, number).value)  # type: ignore[union-attr] # a link leads to a node


def _head(found: Entry | None) -> Head | None:
    if found is None:
        return None
    number, newest, next_chain, length = found.value
    return Head(number, Node(*newest), next_chain, length)
