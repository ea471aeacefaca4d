"""State in dicts: within a step, in tests, in notebooks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from ebbtide.keyed_state import Entry, IncrementalCleanup

Entries = dict[Any, Entry]
"""The entries of one key, by sub-key."""


class HeapState:
    """One state in dicts: key to sub-key to entry."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, Entries] = {}

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """See `RawState`."""
        entries = self._keys.get(key)
        if entries is None:
            return None
        return entries.get(sub)

    def put(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        """See `RawState`."""
        entries = self._keys.get(key)
        if entries is None:
            self._keys[key] = {sub: entry}
        else:
            entries[sub] = entry

    def remove(self, key: Hashable, sub: Hashable) -> None:
        """See `RawState`."""
        entries = self._keys.get(key)
        if entries is None:
            return
        entries.pop(sub, None)
        if not entries:
            del self._keys[key]

    def clear(self, key: Hashable) -> None:
        """See `RawState`."""
        self._keys.pop(key, None)

    def entries(self, key: Hashable) -> Iterator[tuple[Any, Entry]]:
        """See `RawState`."""
        entries = self._keys.get(key, {})
        copied = list(entries.items())  # the state may change on the way
        return iter(copied)

    def last(self, key: Hashable) -> Any:
        """See `RawState`."""
        entries = self._keys.get(key, {})
        newest_first = reversed(entries)
        return next(newest_first, None)

    def all_keys(self) -> Iterator[Any]:
        """See `RawState`."""
        return iter(list(self._keys))  # a copy, as above


class HeapStore:
    """States in dicts, by name."""

    background: IncrementalCleanup | None = IncrementalCleanup()
    thresholds = (12, 8)

    def __init__(self) -> None:
        self._states: dict[str, HeapState] = {}

    def state(self, name: str) -> HeapState:
        """See `Store`."""
        if name not in self._states:
            self._states[name] = HeapState()
        return self._states[name]
