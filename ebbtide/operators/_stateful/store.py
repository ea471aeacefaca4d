"""The entries of a stateful step's keys in dicts. A function's states read and write them before they become rows again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebbtide.keyed_state import Entry, IncrementalCleanup, KeyedState, StateTtlConfig
from ebbtide.stores import HeapState


@dataclass(frozen=True)
class StateSpec:
    """A declared state, its types resolved.

    Args:
        kind: Class of the state.
        value: Type of the value, the accumulator, the element, the map's value.
        key: Type of a map's keys; None for other kinds.
        ttl: Time to live, not DISABLED; None: it never expires.
    """

    kind: type[KeyedState]
    value: pa.DataType
    key: pa.DataType | None = None
    ttl: StateTtlConfig | None = None


class WorkingState(HeapState):
    """One state's entries of a step's keys. It remembers the loaded entries to find the changed ones."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[tuple[Hashable, Any], Entry | None] = {}

    def reset(self) -> None:
        """Forget all entries and changes."""
        self._keys.clear()
        self._before.clear()

    def load(
        self,
        key: Hashable,
        sub: Any,
        entry: Entry,
    ) -> None:
        """Take a stored entry."""
        super().put(key, sub, entry)

    def put(
        self,
        key: Hashable,
        sub: Hashable,
        entry: Entry,
    ) -> None:
        """See `RawState`."""
        self._remember(key, sub)
        super().put(key, sub, entry)

    def remove(
        self,
        key: Hashable,
        sub: Hashable,
    ) -> None:
        """See `RawState`."""
        self._remember(key, sub)
        super().remove(key, sub)

    def clear(self, key: Hashable) -> None:
        """See `RawState`."""
        for sub, _ in self.entries(key):
            self._remember(key, sub)
        super().clear(key)

    def changes(self) -> Iterator[tuple[Hashable, Any, Entry | None]]:
        """Yield (key, sub-key, entry or None if removed) of all entries that changed since loading."""
        for (key, sub), before in self._before.items():
            entry = self.get(key, sub)
            if entry is None:
                if before is not None:
                    yield key, sub, None
                continue
            # A function may have changed a list or dict in place: then before and entry hold the same object.
            is_mutable = isinstance(entry.value, list | dict)
            if is_mutable or entry != before:
                yield key, sub, entry

    def _remember(
        self,
        key: Hashable,
        sub: Any,
    ) -> None:
        if (key, sub) not in self._before:
            self._before[key, sub] = self.get(key, sub)


class WorkingMap(WorkingState):
    """A map's entries of a step's keys; accepts only keys of the declared type.

    A key of another type could become equal to an existing key when stored in its column.

    Args:
        name: The state's name, for errors.
        type_: The declared type of the map's keys.
    """

    def __init__(
        self,
        name: str,
        type_: pa.DataType,
    ) -> None:
        super().__init__()
        self._name = name
        self._type = type_
        self._is_key = next(is_key for is_type, is_key in _MAP_KEYS if is_type(type_))

    def get(
        self,
        key: Hashable,
        sub: Hashable,
    ) -> Entry | None:
        """See `RawState`."""
        return super().get(key, self._checked(sub))

    def put(
        self,
        key: Hashable,
        sub: Hashable,
        entry: Entry,
    ) -> None:
        """See `RawState`."""
        super().put(key, self._checked(sub), entry)

    def remove(
        self,
        key: Hashable,
        sub: Hashable,
    ) -> None:
        """See `RawState`."""
        super().remove(key, self._checked(sub))

    def _checked(self, sub: Any) -> Hashable:
        is_key = sub is None or self._is_key(sub, self._type)
        if not is_key:
            got = type(sub).__name__
            raise TypeError(
                f"map '{self._name}' has no key {sub!r}; got {got}; allowed: what fits {self._type}, or None",
            )
        return sub  # type: ignore[no-any-return]


IsType = Callable[[pa.DataType], bool]
IsKey = Callable[[Any, pa.DataType], bool]


def _of_type(wanted: type, *but: type) -> IsKey:
    return lambda sub, _: isinstance(sub, wanted) and not isinstance(sub, but)


def _is_time(sub: Any, type_: pa.TimestampType) -> bool:
    if not isinstance(sub, datetime):
        return False
    is_naive = sub.tzinfo is None
    has_no_zone = type_.tz is None
    return is_naive == has_no_zone


_MAP_KEYS: list[tuple[IsType, IsKey]] = [
    (pa.types.is_boolean, _of_type(bool)),
    (pa.types.is_integer, _of_type(int, bool)),
    (pa.types.is_decimal, _of_type(Decimal)),
    (pa.types.is_string, _of_type(str)),
    (pa.types.is_binary, _of_type(bytes)),
    (pa.types.is_date, _of_type(date, datetime)),
    (pa.types.is_timestamp, _is_time),
]
"""Test of a declared type, and test of its keys."""


class WorkingStore:
    """A step's states, by name.

    Args:
        states: The states declared.
    """

    background: IncrementalCleanup | None = None
    thresholds = (10, 6)

    def __init__(self, states: dict[str, StateSpec]) -> None:
        self._specs = states
        self.states: dict[str, WorkingState] = {}

    def state(self, name: str) -> WorkingState:
        """See `Store`."""
        if name not in self.states:
            self.states[name] = self._new_state(name)
        return self.states[name]

    def _new_state(self, name: str) -> WorkingState:
        spec = self._specs.get(name)
        if spec is None or spec.key is None:
            return WorkingState()
        return WorkingMap(name, spec.key)
