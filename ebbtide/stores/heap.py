"""State in dicts: within a step, in tests, in notebooks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from ebbtide.model.state.raw import Entry
from ebbtide.model.ttl import IncrementalCleanup


class HeapState:
    """One state in dicts: key to sub-key to entry."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, dict[Any, Entry]] = {}

    def get(self, key: Hashable, sub: Hashable) -> Entry | None:
        """See `RawState`."""
        entries = self._keys.get(key)
        return None if entries is None else entries.get(sub)

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
        return iter(list(entries.items()))  # a copy: the state may change on the way

    def last(self, key: Hashable) -> Any:
        """See `RawState`."""
        entries = self._keys.get(key)
        return None if entries is None else next(reversed(entries), None)

    def all_keys(self) -> Iterator[Any]:
        """See `RawState`."""
        return iter(list(self._keys))


class HeapStore:
    """States in dicts, by name."""

    background: IncrementalCleanup | None = IncrementalCleanup()
    thresholds = (12, 8)

    def __init__(self) -> None:
        self._states: dict[str, HeapState] = {}

    def state(self, name: str) -> HeapState:
        """See `Store`."""
        return self._states.setdefault(name, HeapState())
