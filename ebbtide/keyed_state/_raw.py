"""The contract of a store: entries by key and sub-key. Stores know nothing of time.

| state | sub-key |
|---|---|
| value, reducing, aggregating | None |
| list | the element's position, an integer that grows |
| map | the user's key |
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol

from ebbtide.keyed_state._ttl import IncrementalCleanup


class Entry(NamedTuple):
    """A stored value, list element or map entry.

    Args:
        value: The user's value. Only a map may hold None.
        stamp_ms: Its last access, epoch ms; None if it never expires.
        ttl_ms: Time to live of this entry; None: the state's.
    """

    value: Any
    stamp_ms: int | None = None
    ttl_ms: int | None = None


class RawState(Protocol):
    """One state's entries in a store. Calls may be made while `entries` or `all_keys` is iterated."""

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """Return an entry; None if there is none."""

    def put(
        self,
        key: Hashable,
        sub: Hashable,
        entry: Entry,
    ) -> None:
        """Store an entry, replacing the present one."""

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """Remove an entry, if present; a key without entries no longer exists."""

    def clear(self, key: Hashable) -> None:
        """Remove all entries of a key."""

    def entries(self, key: Hashable) -> Iterator[tuple[Any, Entry]]:
        """Yield (sub-key, entry) of a key; positions ascending."""

    def last(self, key: Hashable) -> Any:
        """Return the greatest position of a key; None if there is none."""

    def all_keys(self) -> Iterator[Any]:
        """Yield all keys."""


class Store(Protocol):
    """Raw states by name.

    Attributes:
        background: Default incremental cleanup of a state that configures none; None: no cleanup.
        thresholds: Lengths at which an adaptive history becomes linked nodes, and a list again. At these lengths both
            forms cost the same, as measured (docs/decisions/0009).
    """

    background: IncrementalCleanup | None
    thresholds: tuple[int, int]

    def state(self, name: str) -> RawState:
        """Return a state; a new one is empty."""
