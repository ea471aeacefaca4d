"""The contract of a store: entries by key and sub-key. Stores know nothing of time.

| state | sub-key |
|---|---|
| value | None |
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
        value: The user's; None is a value in a map only.
        stamp_ms: Its last access, epoch ms; None where nothing expires.
        ttl_ms: Its own time to live; None: that of its state.
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
        """Store an entry in place of what was there."""

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """Remove an entry, if it is there; a key without entries is gone."""

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
        background: The incremental cleanup that a state gets where its configuration names none; None: none.
        thresholds: From how many rows on an adaptive history is linked nodes, and down to how many it stays so:
            where the two cost the same, by measurement (docs/decisions/0009).
    """

    background: IncrementalCleanup | None
    thresholds: tuple[int, int]

    def state(self, name: str) -> RawState:
        """Return a state, empty if nothing was ever put there."""
