"""Value, list, map, reducing and aggregating state of the current key: decorators that add time to a raw state.

Every operation behaves as Flink 2.3's; docs/reference/state.md lists them, and the additions to Flink.

Source: FLIP-25, "Wrapping state objects".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any, ClassVar, Protocol

from ebbtide.columns import Long, map_key
from ebbtide.durations import to_ms
from ebbtide.keyed_state._context import StateContext
from ebbtide.keyed_state._raw import Entry, RawState
from ebbtide.keyed_state._ttl import ExpiryClock, StateTtlConfig, StateVisibility, end_ms

SnapshotTransformer = Callable[[Any], Any]
"""Takes a stored value, and returns the one to keep in its place; None drops it. Source: FLIP-25, `StateSnapshotTransformer`."""


class KeyedState:
    """Base of all kinds: one state of the current key, and the rules of time.

    Attributes:
        is_list: Its sub-keys are positions.

    Args:
        raw: Holds its entries.
        context: The current key and the clocks.
        ttl: Its time to live; nothing expires if None or DISABLED.
    """

    is_list: ClassVar[bool] = False

    def __init__(
        self,
        raw: RawState,
        context: StateContext,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        self.raw = raw
        self.context = context
        is_enabled = ttl is not None and ttl.enabled
        self.ttl = ttl if is_enabled else None
        self.before_access: Callable[[], None] | None = None
        """Called at each access: incremental cleanup."""
        self.on_stamp: Callable[[Hashable, int], None] | None = None
        """Called with (key, end of life) when an entry is stamped: exact timers."""
        self.on_expired: Callable[[Hashable, Hashable, Entry], None] | None = None
        """Called with (key, sub-key, entry) when an entry is removed because it has expired: `on_expire` of a function."""
        self.snapshot_transformer: SnapshotTransformer | None = None
        """See `StateDescriptor`."""
        self.current_ttl: timedelta | None = None
        """Time to live of entries written without one, until the current key changes; None: the state's."""
        self._ttl_ms = Long.MAX
        self._by_event = False
        self._by_watermark = False
        self._keeps_stamp = False
        self._renews = False
        self._shows = False
        if self.ttl is not None:
            self._configure(self.ttl)

    def _configure(self, ttl: StateTtlConfig) -> None:
        """Cache the settings that every access needs."""
        update_type = ttl.update_type
        visibility = ttl.state_visibility
        self._ttl_ms = ttl.ttl_ms
        self._by_event = ttl.by_event_time
        compares_with_watermark = ttl.expiry_clock is ExpiryClock.WATERMARK
        self._by_watermark = ttl.by_event_time and compares_with_watermark
        self._keeps_stamp = not update_type.renews_on_write
        self._renews = update_type.renews_on_read
        self._shows = visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def clear(self) -> None:
        """Remove all entries of the current key."""
        self.raw.clear(self.context.key)

    def purge(self, key: Hashable) -> int:
        """Remove a key's expired entries; return their number."""
        entries = self.raw.entries(key)
        expired = [(sub, entry) for sub, entry in entries if self.has_expired(entry)]
        for sub, entry in expired:
            self.remove_expired(key, sub, entry)
        n_expired = len(expired)
        self.context.counts["expired"] += n_expired
        return n_expired

    def remove_expired(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        """Remove an entry that has expired."""
        self.raw.remove(key, sub)
        self._hand_over(key, sub, entry)

    def _hand_over(self, key: Hashable, sub: Hashable, entry: Entry) -> None:
        if self.on_expired is not None:
            self.on_expired(key, sub, entry)

    def transformed(self, entry: Entry) -> Entry | None:
        """Return an entry as its snapshot transformer leaves it, with its stamp; None: it is dropped."""
        if self.snapshot_transformer is None:
            return entry
        # A copy: what the transformer changes in place is not the value that the state goes on with.
        kept = self.snapshot_transformer(deepcopy(entry.value))
        return None if kept is None else entry._replace(value=kept)

    def end_ms(self, entry: Entry) -> int:
        """Return the time at which an entry expires, capped at the largest long; an unstamped entry never expires."""
        if entry.stamp_ms is None:
            return Long.MAX + 1
        own_ttl_ms = entry.ttl_ms
        ttl_ms = self._ttl_ms if own_ttl_ms is None else own_ttl_ms
        return end_ms(entry.stamp_ms, ttl_ms)

    def has_expired(self, entry: Entry) -> bool:
        """Return whether an entry has expired."""
        if self.ttl is None:
            return False
        return self.end_ms(entry) <= self.clock_ms

    @property
    def clock_ms(self) -> int:
        """The clock that entries expire by."""
        if self._by_watermark:
            return self.context.watermark_ms
        return self.context.now_ms

    def _touch(self) -> None:
        """Let incremental cleanup look at a few keys, so that no access pays for all of them."""
        if self.before_access is not None:
            self.before_access()

    def _access_ms(self) -> int:
        """Return the time that an access stamps an entry with."""
        if not self._by_event:
            return self.context.now_ms
        event_ms = self.context.event_ms
        if event_ms is None:
            raise ValueError(
                "the record has no event time; got None; allowed: epoch ms, since state ages by event time"
            )
        return event_ms

    def seen(self, sub: Hashable, entry: Entry | None, ttl: timedelta | None = None) -> Entry | None:
        """Return an entry as a read shows it. An expired entry is removed; a live one is renewed if reads renew.

        Args:
            sub: Its sub-key.
            entry: As it is stored; None: there is none.
            ttl: Time to live that the read gives to a live entry, from its last access on; None: it keeps its own.
        """
        if entry is None:
            return None
        if self.has_expired(entry):
            self.remove_expired(self.context.key, sub, entry)
            self.context.counts["expired"] += 1
            # RETURN_EXPIRED_IF_NOT_CLEANED_UP: the read that removes the entry still returns it, once.
            return entry if self._shows else None
        if self._is_changed_by_reads(ttl):
            return self._renewed(sub, entry, ttl)
        return entry

    def _is_changed_by_reads(self, ttl: timedelta | None) -> bool:
        """Return whether a read writes the live entries that it returns: it renews them, or sets their time to live."""
        return self._renews or (ttl is not None and self.ttl is not None)

    def _renewed(self, sub: Hashable, entry: Entry, ttl: timedelta | None = None) -> Entry:
        """Stamp an entry with the time of the access if reads renew, unless that is before its present stamp; set its time to live."""
        key = self.context.key
        if self._renews:
            stamp = self._access_ms()
            if self._by_event and entry.stamp_ms is not None:
                stamp = max(stamp, entry.stamp_ms)
            entry = entry._replace(stamp_ms=stamp)
        if ttl is not None:
            entry = entry._replace(ttl_ms=to_ms(ttl))
        self.raw.put(key, sub, entry)
        # A timer finds out by itself that an entry lives longer, but not that it ends earlier: by its own time to live, or since the
        # clock went back.
        if self.on_stamp is not None:
            self.on_stamp(key, self.end_ms(entry))
        return entry

    def _write(
        self,
        sub: Hashable,
        value: Any,
        ttl: timedelta | None,
        *,
        create: bool = False,
    ) -> None:
        """Store a value; `create` says that no entry exists yet."""
        key = self.context.key
        if self.ttl is None:
            self.raw.put(key, sub, Entry(value))
            return
        stamp = self._access_ms()
        old = None
        # A write that renews by processing time need not read the entry that it replaces.
        needs_old = self._keeps_stamp or self._by_event or self.on_expired is not None
        if needs_old and not create:
            old = self.raw.get(key, sub)
        if old is not None:
            stamp = self._stamp_over(old, stamp)
            if self.has_expired(old):
                self._hand_over(key, sub, old)
        own_ttl = self.current_ttl if ttl is None else ttl
        own_ttl_ms = None if own_ttl is None else to_ms(own_ttl)
        entry = Entry(value, stamp, own_ttl_ms)
        # By event time a record may arrive after the entry that it writes has expired.
        is_late = self._by_event and self.has_expired(entry)
        if is_late:
            self.context.counts["late"] += 1
            if old is not None:
                self.raw.remove(key, sub)
            return
        self.raw.put(key, sub, entry)
        if self.on_stamp is not None:
            expires_ms = self.end_ms(entry)
            self.on_stamp(key, expires_ms)

    def _stamp_over(self, old: Entry, stamp: int) -> int:
        """Return the stamp of a replacing entry. A live entry may keep its stamp; the stamp never goes back."""
        old_stamp = old.stamp_ms
        # An expired entry counts as absent: the write creates a new one.
        if old_stamp is None or self.has_expired(old):
            return stamp
        if self._keeps_stamp:
            return old_stamp
        return max(stamp, old_stamp)


class ValueState(KeyedState):
    """One value per key.

    Example:
        >>> from ebbtide.stores._heap import HeapStore
        >>> at = StateContext(key="a", now_ms=0)
        >>> state = ValueState(HeapStore().state("seen"), at, StateTtlConfig(ttl="16ms"))
        >>> state.update("x")
        >>> at.now_ms = 15
        >>> state.get()
        'x'
        >>> at.now_ms = 16
        >>> state.get() is None
        True
    """

    def get(self, *, ttl: timedelta | None = None) -> Any:
        """Return the value; None if there is none, or it has expired.

        Args:
            ttl: Time to live that the value has from now on, counted from its last access.
        """
        self._touch()
        stored = self.raw.get(self.context.key, None)
        entry = self.seen(None, stored, ttl)
        if entry is None:
            return None
        return entry.value

    def update(self, value: Any, *, ttl: timedelta | None = None) -> None:
        """Set the value; None clears it.

        Args:
            value: The value.
            ttl: Its own time to live, instead of the state's.
        """
        self._touch()
        if value is None:
            self.raw.clear(self.context.key)
        else:
            self._write(None, value, ttl)

    def clear(self) -> None:
        """Remove the value."""
        super().clear()
        self._touch()


class AppendingState(KeyedState):
    """One value per key that grows by what is added. None is no value: a function that returns it clears the state."""

    def _read(self, ttl: timedelta | None) -> Any:
        """Return the stored value as a read shows it; None: there is none."""
        self._touch()
        stored = self.raw.get(self.context.key, None)
        entry = self.seen(None, stored, ttl)
        return None if entry is None else entry.value

    def _present(self) -> Any:
        """Return the value that an added one is combined with; None: there is none.

        As in Flink this is no read: nothing is renewed. An expired value counts as absent, unless reads would show it.
        """
        entry = self.raw.get(self.context.key, None)
        if entry is None:
            return None
        is_hidden = self.has_expired(entry) and not self._shows
        return None if is_hidden else entry.value

    def add(self, value: Any, *, ttl: timedelta | None = None) -> None:
        """Add a value, which is not None.

        Args:
            value: The value.
            ttl: Time to live of what is stored then, instead of the state's.

        Raises:
            TypeError: the value is None; nothing was changed.
        """
        self._touch()
        if value is None:
            raise TypeError("an added value is None; allowed: any other value")
        grown = self._grown(self._present(), value)
        if grown is None:
            self.raw.clear(self.context.key)
        else:
            self._write(None, grown, ttl)

    def _grown(self, present: Any, value: Any) -> Any:
        """Return what is stored once a value is added to the present one, which is None if there is none."""
        raise NotImplementedError


class ReducingState(AppendingState):
    """One value per key: all that were added, reduced to one of the same type.

    Args:
        raw: Holds its entries.
        context: The current key and the clocks.
        ttl: Its time to live.
        reduce: Combines the present value and an added one.

    Example:
        >>> from ebbtide.stores._heap import HeapStore
        >>> at = StateContext(key="a", now_ms=0)
        >>> state = ReducingState(HeapStore().state("most"), at, StateTtlConfig(ttl="16ms"), reduce=max)
        >>> state.add(7)
        >>> state.add(3)
        >>> state.get()
        7
        >>> at.now_ms = 16  # the maximum has expired, and is forgotten
        >>> state.add(3)
        >>> state.get()
        3
    """

    def __init__(
        self,
        raw: RawState,
        context: StateContext,
        ttl: StateTtlConfig | None = None,
        *,
        reduce: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(raw, context, ttl)
        self._reduce = reduce

    def get(self, *, ttl: timedelta | None = None) -> Any:
        """Return the reduced value; None if nothing was added, or it has expired.

        Args:
            ttl: As of `ValueState.get`.
        """
        return self._read(ttl)

    def _grown(self, present: Any, value: Any) -> Any:
        return value if present is None else self._reduce(present, value)


class AggregateFunction(Protocol):
    """Gathers added values in an accumulator. An accumulator of None is none: the next value begins another one."""

    def create_accumulator(self) -> Any:
        """Return an empty accumulator."""

    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with a value added; it may be changed in place."""

    def get_result(self, accumulator: Any) -> Any:
        """Return the result of an accumulator."""


class AggregatingState(AppendingState):
    """One accumulator per key of what was added; reads return its result.

    Args:
        raw: Holds its entries.
        context: The current key and the clocks.
        ttl: Its time to live.
        aggregate: Gathers the values.
    """

    def __init__(
        self,
        raw: RawState,
        context: StateContext,
        ttl: StateTtlConfig | None = None,
        *,
        aggregate: AggregateFunction,
    ) -> None:
        super().__init__(raw, context, ttl)
        self._aggregate = aggregate

    def get(self, *, ttl: timedelta | None = None) -> Any:
        """Return the result; None if nothing was added, or the accumulator has expired.

        Args:
            ttl: As of `ValueState.get`.
        """
        accumulator = self._read(ttl)
        return None if accumulator is None else self._aggregate.get_result(accumulator)

    def _grown(self, present: Any, value: Any) -> Any:
        accumulator = self._aggregate.create_accumulator() if present is None else present
        return self._aggregate.add(value, accumulator)


class ListState(KeyedState):
    """A list per key; each element has its own time."""

    is_list = True

    def get(self, *, ttl: timedelta | None = None) -> Iterator[Any]:
        """Return the elements, in order.

        Reads that renew do so at once: live elements are renewed, expired ones removed (shown once more where they may be).
        Otherwise expired elements stay stored until an iteration reaches the end without meeting a live one: then the list
        is cleared.

        Args:
            ttl: Time to live that all live elements have from now on, each counted from its last access; set at once, too.
        """
        self._touch()
        key = self.context.key
        entries = list(self.raw.entries(key))
        if self._is_changed_by_reads(ttl):
            self._renew_all(entries, ttl)
        return self._elements(key, entries)

    def _renew_all(self, entries: list[tuple[Any, Entry]], ttl: timedelta | None) -> None:
        """Renew the live ones of the current key's elements and remove the expired ones; if none is live, all stay."""
        live = [(sub, entry) for sub, entry in entries if not self.has_expired(entry)]
        if not live:
            return
        self._clear_expired(self.context.key)
        for sub, entry in live:
            self._renewed(sub, entry, ttl)

    def _clear_expired(self, key: Hashable) -> None:
        """Remove all elements; hand over those that have expired."""
        if self.on_expired is not None:
            for sub, entry in list(self.raw.entries(key)):
                if self.has_expired(entry):
                    self._hand_over(key, sub, entry)
        self.raw.clear(key)

    def _elements(self, key: Hashable, entries: list[tuple[Any, Entry]]) -> Iterator[Any]:
        any_live = False
        for _, entry in entries:
            is_live = not self.has_expired(entry)
            any_live = any_live or is_live
            if is_live or self._shows:
                yield entry.value
        # Since `get` the function may have added elements, which stay.
        if not any_live and all(self.has_expired(entry) for _, entry in self.raw.entries(key)):
            self._clear_expired(key)

    def add(self, value: Any, *, ttl: timedelta | None = None) -> None:
        """Append an element, which is not None."""
        self.add_all([value], ttl=ttl)

    def add_all(self, values: Iterable[Any], *, ttl: timedelta | None = None) -> None:
        """Append elements, none of them None.

        Raises:
            TypeError: an element is None; nothing was changed.
        """
        self._touch()
        self._append(_elements_of(values), ttl)

    def update(self, values: Iterable[Any], *, ttl: timedelta | None = None) -> None:
        """Replace the list; an empty one clears it.

        Raises:
            TypeError: an element is None; nothing was changed.
        """
        self._touch()
        elements = _elements_of(values)
        self.raw.clear(self.context.key)
        self._append(elements, ttl)

    def _append(self, elements: list[Any], ttl: timedelta | None) -> None:
        # New elements go behind the greatest stored position: positions keep the order of insertion.
        last = self.raw.last(self.context.key)
        first_free = 0
        if last is not None:
            first_free = last + 1
        for position, value in enumerate(elements, first_free):
            self._write(position, value, ttl, create=True)


def _elements_of(values: Iterable[Any]) -> list[Any]:
    elements = list(values)
    has_none = any(value is None for value in elements)
    if has_none:
        raise TypeError("a list element is None; allowed: any other value")
    return elements


class MapState(KeyedState):
    """A map per key; each entry has its own time. None is a value.

    Its keys are of one exact type: a float is refused by every operation (TypeError).
    """

    def get(self, user_key: Hashable, *, ttl: timedelta | None = None) -> Any:
        """Return a value; None if there is none, or it has expired.

        Args:
            user_key: Its key.
            ttl: As of `ValueState.get`.
        """
        self._touch()
        entry = self._entry(user_key, ttl)
        if entry is None:
            return None
        return entry.value

    def contains(self, user_key: Hashable) -> bool:
        """Return whether a read would return an entry; it counts as a read."""
        self._touch()
        entry = self._entry(user_key)
        return entry is not None

    def _entry(self, user_key: Hashable, ttl: timedelta | None = None) -> Entry | None:
        sub = map_key(user_key)
        stored = self.raw.get(self.context.key, sub)
        return self.seen(sub, stored, ttl)

    def put(
        self,
        user_key: Hashable,
        value: Any,
        *,
        ttl: timedelta | None = None,
    ) -> None:
        """Set a value.

        Args:
            user_key: Its key.
            value: The value; None is one.
            ttl: Its own time to live, instead of the state's.
        """
        self._touch()
        sub = map_key(user_key)
        self._write(sub, value, ttl)

    def put_all(self, values: Mapping[Any, Any], *, ttl: timedelta | None = None) -> None:
        """Set several values."""
        self._touch()
        for user_key, value in values.items():
            sub = map_key(user_key)
            self._write(sub, value, ttl)

    def remove(self, user_key: Hashable) -> None:
        """Remove an entry."""
        self._touch()
        sub = map_key(user_key)
        self.raw.remove(self.context.key, sub)

    def is_empty(self) -> bool:
        """Return whether nothing is stored; expired entries that are still stored count."""
        self._touch()
        entries = self.raw.entries(self.context.key)
        first = next(entries, None)
        return first is None

    def entries(self) -> MapIterator:
        """Return (user key, value) pairs, looked at one by one as they are passed."""
        self._touch()
        return MapIterator(self)

    def keys(self) -> Iterator[Any]:
        """Return the user keys, as `entries` does."""
        entries = self.entries()
        return (user_key for user_key, _ in entries)

    def values(self) -> Iterator[Any]:
        """Return the values, as `entries` does."""
        entries = self.entries()
        return (value for _, value in entries)


class MapIterator(Iterator[tuple[Any, Any]]):
    """Passes over the entries of a map; what has expired is removed on the way."""

    def __init__(self, state: MapState) -> None:
        self._state = state
        self._raw = state.raw
        self._key = state.context.key
        entries = self._raw.entries(self._key)
        self._user_keys = [user_key for user_key, _ in entries]
        self._user_keys.reverse()  # taken from the end
        self._removable: list[Any] = []
        """The key of the entry returned last, if it is still stored."""

    def __next__(self) -> tuple[Any, Any]:
        self._removable.clear()
        while self._user_keys:
            user_key = self._user_keys.pop()
            # An entry may have been removed since the pass began.
            stored = self._raw.get(self._key, user_key)
            entry = self._state.seen(user_key, stored)
            if entry is not None:
                was_shown_once = self._state.has_expired(entry)
                if not was_shown_once:
                    self._removable.append(user_key)
                return user_key, entry.value
        raise StopIteration

    def remove(self) -> None:
        """Remove the entry returned last.

        Raises:
            RuntimeError: there is none, or it had expired and was shown once: then it is removed already.
        """
        if not self._removable:
            raise RuntimeError("no entry to remove: none was returned, or it had expired and is removed already")
        self._raw.remove(self._key, self._removable.pop())
