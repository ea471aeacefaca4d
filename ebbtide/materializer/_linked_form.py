"""The large form: a key's rows as linked nodes. Every operation takes constant time.

| raw state | per key and | holds |
|---|---|---|
| `history` | | the head `(node number, node, next chain number, length or None)`: the newest node is kept here, not in `nodes` |
| `rows` | a row's equality key | its chain `(chain number, first, last)`: the places in it of the oldest and the newest equal row |
| `nodes` | `(chain number, place)`, a node's number | the node `(row, stamp_ms, number of the one before, of the one after)` |

Equal rows of a chain are removed oldest first, so its places have no holes and need no links. With the newest node
in the head, an operation reads at most 5 times and writes at most 3 times (FLIP-544: 7 and 3), removals not counted. A TTL adds
one read, and the reads of expired rows. ADAPTIVE counts the length, which adds a write of the head.

An expired row is dropped when an operation meets it: as the newest, or as the oldest of its chain.

Source: FLIP-544, "Proposed Changes".
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ebbtide.keyed_state import Entry, Store
from ebbtide.materializer._element import Element, Identify, Removed, Row, lives

Number = tuple[int, int]


class Chain(NamedTuple):
    """The equal rows of a history, oldest first: their nodes are `(name, first)` to `(name, last)`."""

    name: int
    first: int
    last: int

    @property
    def oldest(self) -> Number:
        """The node of the oldest of them."""
        return self.name, self.first

    def without(self, number: Number) -> Chain:
        """Return the chain without the node at one of its ends."""
        # Equal rows leave oldest first: the places in between stay without holes.
        if number == self.oldest:
            return Chain(
                self.name,
                self.first + 1,
                self.last,
            )
        return Chain(
            self.name,
            self.first,
            self.last - 1,
        )


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


class Nodes:
    """The raw states of linked histories: reads and writes, without rules.

    The newest node is kept in the head and never in `nodes`.

    Args:
        store: Holds the raw states.
    """

    def __init__(self, store: Store) -> None:
        self._heads = store.state("history")
        self._chains = store.state("rows")
        self._nodes = store.state("nodes")

    def put_head(self, key: Hashable, head: Head | None) -> None:
        """Write a head; an empty history leaves nothing."""
        if head is None:
            self._heads.remove(key, None)
        else:
            self._heads.put(key, None, Entry(head))

    def chains(self, key: Hashable) -> dict[Hashable, Chain]:
        """Return the chains of a key by equality key."""
        entries = self._chains.entries(key)
        return {equality: Chain(*entry.value) for equality, entry in entries}

    def chain(self, key: Hashable, equality: Hashable) -> Chain | None:
        """Return the chain of the rows with an equality key; None if there are none."""
        entry = self._chains.get(key, equality)
        if entry is None:
            return None
        return Chain(*entry.value)

    def put_chain(self, key: Hashable, equality: Hashable, chain: Chain) -> None:
        """Write a chain; one without rows is removed."""
        if chain.first > chain.last:
            self._chains.remove(key, equality)
        else:
            self._chains.put(key, equality, Entry(chain))

    def stored(self, key: Hashable, number: Number) -> Node:
        """Return a node that is not the newest."""
        entry = self._nodes.get(key, number)
        return Node(*entry.value)  # type: ignore[union-attr] # a link leads to a node

    def node(self, key: Hashable, head: Head, number: Number) -> Node:
        """Return any node."""
        return head.newest if number == head.number else self.stored(key, number)

    def put(self, key: Hashable, number: Number, node: Node) -> None:
        """Write a node that is not the newest."""
        self._nodes.put(key, number, Entry(node))

    def with_node(self, key: Hashable, head: Head, number: Number, node: Node) -> Head:
        """Write any node; return the head, which has it if it is the newest."""
        if number == head.number:
            return head._replace(newest=node)
        self.put(key, number, node)
        return head

    def remove(self, key: Hashable, number: Number) -> None:
        """Remove a node that is not the newest."""
        self._nodes.remove(key, number)

    def clear(self, key: Hashable) -> None:
        """Remove all of a key but its head."""
        self._chains.clear(key)
        self._nodes.clear(key)


class LinkedForm:
    """Histories as linked nodes.

    Args:
        store: Holds the raw states.
        identify: Returns a row's equality key: a retraction matches the rows with an equal one.
        replaces: An added row takes the place of one with its equality key.
        ttl_ms: Time to live of each row; None: it never expires.
        counts: Keep the length.
    """

    def __init__(
        self,
        store: Store,
        identify: Identify,
        *,
        replaces: bool,
        ttl_ms: int | None,
        counts: bool,
    ) -> None:
        self._nodes = Nodes(store)
        self._identify = identify
        self._replaces = replaces
        self._ttl_ms = ttl_ms
        self._counts = counts

    def elements(self, key: Hashable, entry: Entry | None, now_ms: int) -> list[Element]:
        """Return the live elements, oldest first; time with their number."""
        head = _head(entry)
        node = head.newest if head else None
        newest_first: list[Element] = []
        while node is not None:
            element = Element(node.row, node.stamp_ms)
            newest_first.append(element)
            before = node.before
            node = None if before is None else self._nodes.stored(key, before)
        oldest_first = reversed(newest_first)
        return [element for element in oldest_first if lives(element.stamp_ms, self._ttl_ms, now_ms)]

    def add(
        self,
        key: Hashable,
        entry: Entry | None,
        element: Element,
        now_ms: int,
    ) -> tuple[bool, int]:
        """See `ListForm.add`; the length is 0 if it is not counted."""
        equality = self._identify(element.row)
        head = self._usable_head(key, entry, now_ms)
        if head is None:
            first = self._appended(key, None, equality, None, element)
            return True, self._store(key, first)
        if self._replaces:
            # An expired row is not replaced: it counts as absent.
            head, chain = self._without_expired_oldest(key, head, equality, now_ms)
        else:
            chain = self._nodes.chain(key, equality)
        if self._replaces and chain is not None:
            head = self._replaced(key, head, chain.oldest, element)
        else:
            head = self._appended(key, head, equality, chain, element)
        return False, self._store(key, head)

    def remove(
        self,
        key: Hashable,
        entry: Entry | None,
        row: Row,
        now_ms: int,
    ) -> tuple[Removed | None, int]:
        """See `ListForm.remove`; the length is 0 if it is not counted."""
        stored = _head(entry)
        # Expired rows are removed first: at the newest end, then at the front of the chain that the retraction matches.
        head = self._usable_head(key, entry, now_ms)
        if head is None:
            return None, self._store(key, None)
        equality = self._identify(row)
        head, chain = self._without_expired_oldest(key, head, equality, now_ms)
        if chain is None:
            return None, self._store(key, head, stored)
        # Equal rows leave oldest first: the retraction removes the newest row only if it is its chain's oldest.
        was_last = chain.oldest == head.number
        rest = self._unlinked(key, head, chain.oldest, chain)
        rest = self._without_expired_newest(key, rest, now_ms)
        last = rest.newest.row if rest else None
        length = self._store(key, rest, stored)
        return Removed(was_last, last), length

    def sweep(self, key: Hashable, entry: Entry, now_ms: int) -> tuple[int, int]:
        """Unlink the expired end of a history, and the expired front of each of its chains.

        The FLIP unlinks from the oldest row on, so a row that was replaced, and so renewed, keeps all rows behind it. By chains,
        it keeps only equal ones.

        Returns:
            The number of rows unlinked, and the history's new length, 0 if it is not counted.
        """
        n_before = self._n_rows(key)
        stored = _head(entry)
        head = self._usable_head(key, entry, now_ms)
        for equality in self._nodes.chains(key):
            if head is not None:
                head, _ = self._without_expired_oldest(key, head, equality, now_ms)
        length = self._store(key, head, stored)
        return n_before - self._n_rows(key), length

    def _n_rows(self, key: Hashable) -> int:
        chains = self._nodes.chains(key).values()
        return sum(chain.last - chain.first + 1 for chain in chains)

    def store(self, key: Hashable, elements: list[Element], now_ms: int) -> None:
        """Write the nodes of a history that has none."""
        # Appended one by one, in order: the links follow from the order of insertion.
        head: Head | None = None
        for element in elements:
            equality = self._identify(element.row)
            chain = self._nodes.chain(key, equality)
            head = self._appended(key, head, equality, chain, element)
        self._store(key, head)

    def clear_nodes(self, key: Hashable) -> None:
        """Remove all of a key but its head; the list is written in the head's place."""
        self._nodes.clear(key)

    def _usable_head(self, key: Hashable, entry: Entry | None, now_ms: int) -> Head | None:
        """Return the head, its length counted, whose newest row is alive; None if the history is empty."""
        head = _head(entry)
        counted = self._counted(key, head)
        return self._without_expired_newest(key, counted, now_ms)

    def _appended(
        self,
        key: Hashable,
        head: Head | None,
        equality: Hashable,
        chain: Chain | None,
        element: Element,
    ) -> Head:
        """Make a row the newest: at the end of its chain, or as the first of a new one."""
        next_chain = head.next_chain if head else 0
        if chain is None:
            chain = Chain(next_chain, 0, 0)
            next_chain += 1
        else:
            chain = Chain(
                chain.name,
                chain.first,
                chain.last + 1,
            )
        self._nodes.put_chain(key, equality, chain)
        number = (chain.name, chain.last)
        before = None
        length = 1
        if head is not None:
            # The node that was newest until now leaves the head for its own place.
            previous = head.newest._replace(after=number)
            self._nodes.put(key, head.number, previous)
            before = head.number
            length += head.length or 0
        newest = Node(element.row, element.stamp_ms, before, None)
        return Head(
            number,
            newest,
            next_chain,
            length if self._counts else None,
        )

    def _replaced(self, key: Hashable, head: Head, number: Number, element: Element) -> Head:
        """Put a row in the place of a node; its neighbours stay."""
        old = self._nodes.node(key, head, number)
        node = old._replace(row=element.row, stamp_ms=element.stamp_ms)
        return self._nodes.with_node(key, head, number, node)

    def _unlinked(
        self,
        key: Hashable,
        head: Head,
        number: Number,
        chain: Chain | None = None,
    ) -> Head | None:
        """Remove the newest node, or the oldest of its chain; link its neighbours to each other."""
        node = self._nodes.node(key, head, number)
        equality = self._identify(node.row)
        if chain is None:
            chain = self._nodes.chain(key, equality)
        self._nodes.put_chain(key, equality, chain.without(number))  # type: ignore[union-attr] # a node has a chain
        if head.length is not None:
            head = head._replace(length=head.length - 1)
        if node.after is None:
            return self._without_newest(key, head, node)
        self._nodes.remove(key, number)
        if node.before is not None:
            before = self._nodes.stored(key, node.before)
            self._nodes.put(
                key,
                node.before,
                before._replace(after=node.after),
            )
        after = self._nodes.node(key, head, node.after)
        return self._nodes.with_node(
            key,
            head,
            node.after,
            after._replace(before=node.before),
        )

    def _without_newest(self, key: Hashable, head: Head, newest: Node) -> Head | None:
        """Move the node before the newest into the head; None if there is none."""
        number = newest.before
        if number is None:
            return None
        before = self._nodes.stored(key, number)
        self._nodes.remove(key, number)
        return head._replace(
            number=number,
            newest=before._replace(after=None),
        )

    def _without_expired_newest(self, key: Hashable, head: Head | None, now_ms: int) -> Head | None:
        """Drop the expired end of a history."""
        while head is not None:
            is_alive = lives(head.newest.stamp_ms, self._ttl_ms, now_ms)
            if is_alive:
                break
            head = self._unlinked(key, head, head.number)
        return head

    def _without_expired_oldest(
        self,
        key: Hashable,
        head: Head,
        equality: Hashable,
        now_ms: int,
    ) -> tuple[Head, Chain | None]:
        """Drop the expired front of a chain. The newest node is alive, so at least one stays."""
        chain = self._nodes.chain(key, equality)
        # Equal rows are in order of insertion, not of their stamps, so only the front is checked.
        while chain is not None and self._ttl_ms is not None:
            number = chain.oldest
            node = self._nodes.node(key, head, number)
            if lives(node.stamp_ms, self._ttl_ms, now_ms):
                break
            head = self._unlinked(key, head, number, chain) or head
            chain = self._nodes.chain(key, equality)
        return head, chain

    def _counted(self, key: Hashable, head: Head | None) -> Head | None:
        """Count a history that was written without its length."""
        if head is None:
            return None
        needs_count = self._counts and head.length is None
        if not needs_count:
            return head
        entry = Entry(head)
        all_elements = self.elements(key, entry, now_ms=0)
        return head._replace(length=len(all_elements))

    def _store(self, key: Hashable, head: Head | None, stored: Head | None = None) -> int:
        """Write the head if it changed; return the length, 0 if it is not counted."""
        if head is None or head != stored:
            self._nodes.put_head(key, head)
        if head is None:
            return 0
        return head.length or 0


def _head(entry: Entry | None) -> Head | None:
    if entry is None:
        return None
    number, newest, next_chain, length = entry.value
    node = Node(*newest)
    return Head(number, node, next_chain, length)
