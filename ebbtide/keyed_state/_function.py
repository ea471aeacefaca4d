"""A user's stateful function: the states it declares, and the code that runs per key.

Source: FLIP-25, "Setup TTL"; the shape is that of Flink's KeyedProcessFunction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, overload

from ebbtide.changelog import RowKind
from ebbtide.keyed_state._cleanup import IncrementalCleaner, TtlTimers, snapshot
from ebbtide.keyed_state._context import StateContext
from ebbtide.keyed_state._migration import migrated
from ebbtide.keyed_state._raw import Entry, RawState, Store
from ebbtide.keyed_state._states import (
    AggregateFunction,
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    SnapshotTransformer,
    ValueState,
)
from ebbtide.keyed_state._timers import Timer, Timers
from ebbtide.keyed_state._ttl import TIMERS, IncrementalCleanup, StateTtlConfig, TimeCharacteristic


@dataclass(frozen=True)
class StateDescriptor:
    """Declares a state of a function: a class attribute that becomes the state itself while the function runs.

    Args:
        of: Type of the value, the list's element or the map's value, as Spark DDL: `BIGINT`, `STRUCT<at: TIMESTAMP, n: INT>`; `*`:
            a struct of the source's columns.
        ttl: Time to live; a spec may give another. None: it never expires.
        snapshot_transformer: Takes the value of each live entry of a full snapshot, and returns the one to keep: the same, another,
            or None to drop the entry. Of a list or map it takes each element, of the other kinds the value or the accumulator.
            In pipelines `ebbtide cleanup` and `ebbtide compact` hand each version of an entry over once. Default: all are kept.

    Source: FLIP-25, "Additional Cleanup Strategies", `StateSnapshotTransformer.filterOrTransform`.
    """

    of: str
    ttl: StateTtlConfig | None = None
    snapshot_transformer: SnapshotTransformer | None = field(default=None, kw_only=True)
    kind: ClassVar[type[KeyedState]]

    def bound(self, raw: RawState, context: StateContext, ttl: StateTtlConfig | None) -> KeyedState:
        """Return the state.

        Args:
            raw: Holds its entries.
            context: The current key and the clocks.
            ttl: Its time to live, which may be another than the declared one.
        """
        return self.kind(raw, context, ttl)

    @property
    def has_source_rows(self) -> bool:
        """Return whether its values are structs of the source's columns."""
        return self.of == "*"

    def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
        """Return the descriptor, from the class. A running function has the state in its place."""
        if function is not None:
            raise RuntimeError("the states of a function can be used only while it runs")
        return self


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor):
    """Declares a `ValueState`."""

    kind = ValueState

    if TYPE_CHECKING:

        @overload
        def __get__(self, function: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, function: StatefulFunction, owner: type | None = None) -> ValueState: ...
        def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
            """See `StateDescriptor`."""


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor):
    """Declares a `ListState`."""

    kind = ListState

    if TYPE_CHECKING:

        @overload
        def __get__(self, function: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, function: StatefulFunction, owner: type | None = None) -> ListState: ...
        def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
            """See `StateDescriptor`."""


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor):
    """Declares a `MapState`.

    Args:
        key_type: Of the map's keys, as Spark DDL; no FLOAT, DOUBLE, ARRAY, MAP, STRUCT.
    """

    key_type: str = "STRING"
    kind = MapState

    if TYPE_CHECKING:

        @overload
        def __get__(self, function: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, function: StatefulFunction, owner: type | None = None) -> MapState: ...
        def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
            """See `StateDescriptor`."""


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor):
    """Declares a `ReducingState`.

    Args:
        reduce: Combines the present value and an added one: `max`, `operator.add`, a function of yours.
    """

    reduce: Callable[[Any, Any], Any] = field(kw_only=True)
    kind = ReducingState

    def bound(self, raw: RawState, context: StateContext, ttl: StateTtlConfig | None) -> ReducingState:
        """See `StateDescriptor`."""
        return ReducingState(raw, context, ttl, reduce=self.reduce)

    if TYPE_CHECKING:

        @overload
        def __get__(self, function: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, function: StatefulFunction, owner: type | None = None) -> ReducingState: ...
        def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
            """See `StateDescriptor`."""


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor):
    """Declares an `AggregatingState`; `of` is the type of its accumulator.

    Args:
        aggregate: Has `create_accumulator()`, `add(value, accumulator)` and `get_result(accumulator)`.
    """

    aggregate: AggregateFunction = field(kw_only=True)
    kind = AggregatingState

    def bound(self, raw: RawState, context: StateContext, ttl: StateTtlConfig | None) -> AggregatingState:
        """See `StateDescriptor`."""
        return AggregatingState(raw, context, ttl, aggregate=self.aggregate)

    if TYPE_CHECKING:

        @overload
        def __get__(self, function: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, function: StatefulFunction, owner: type | None = None) -> AggregatingState: ...
        def __get__(self, function: StatefulFunction | None, owner: type | None = None) -> Any:
            """See `StateDescriptor`."""


class Change(NamedTuple):
    """A row of the changelog.

    Args:
        kind: +I, -U, +U or -D.
        row: Column to value.
        event_ms: Event time, epoch ms; None if it has none.
    """

    kind: RowKind
    row: Mapping[str, Any]
    event_ms: int | None = None


class ExpiredEntry(NamedTuple):
    """An entry that has expired and is no longer stored.

    Args:
        state: Name of its state.
        value: The value, the accumulator, the element, the map's value.
        user_key: The map's key; None for other kinds.
        ended_ms: When its time ended, ms by the clock that it ages by.
    """

    state: str
    value: Any
    user_key: Any
    ended_ms: int


class StatefulFunction:
    """Base of a function that runs per key. Subclasses declare states as class attributes and override `process`.

    Example:
        >>> class Count(StatefulFunction):
        ...     output = "n BIGINT"
        ...     n = ValueStateDescriptor("BIGINT")
        ...     def process(self, key, rows, ctx):
        ...         total = (self.n.get() or 0) + sum(1 for change in rows if change.kind == "+I")
        ...         self.n.update(total)
        ...         yield {"n": total}
        >>> from ebbtide.stores._heap import HeapStore
        >>> run = FunctionRun(Count(), HeapStore())
        >>> click = Change(RowKind.INSERT, {"user": "ann"})
        >>> list(run.process(("ann",), [click, click])), list(run.process(("ann",), [click]))
        ([{'n': 2}], [{'n': 3}])
    """

    output: ClassVar[str]
    """Columns of the yielded rows, as Spark DDL; the key's columns are added. `*`: the source's columns. `*, NAME *`: also a
    struct of the source's columns named NAME."""

    def process(
        self,
        key: tuple[Any, ...],
        rows: Iterator[Change],
        ctx: FunctionContext,
    ) -> Iterable[Mapping[str, Any]]:
        """Take one key's rows of a step.

        Args:
            key: Values of the key's columns.
            rows: The key's rows in order. The event-time clock follows the last row taken.
            ctx: Clocks and timers.

        Returns:
            Rows of the sink. If several have the same key, the last one counts; `ctx.delete(row)` deletes.
        """
        raise NotImplementedError

    def on_timer(
        self,
        key: tuple[Any, ...],
        time_ms: int,
        ctx: FunctionContext,
    ) -> Iterable[Mapping[str, Any]]:
        """Handle a timer that is due; return rows as `process` does.

        Args:
            key: Values of the key's columns.
            time_ms: The time that the timer was registered for, epoch ms.
            ctx: Clocks and timers.
        """
        return ()

    def on_expire(
        self,
        key: tuple[Any, ...],
        entry: ExpiredEntry,
        ctx: FunctionContext,
    ) -> Iterable[Mapping[str, Any]]:
        """Handle an entry that has expired; return rows as `process` does. Each is handed over once, and is no longer stored.

        A function that overrides this gets a key's expired entries before its timers and rows. An entry that a function clears
        itself, or that was never stored since it came too late, is not handed over.

        Args:
            key: Values of the key's columns.
            entry: The entry.
            ctx: Clocks and timers.

        Source: FLIP-25, "Future work": a callback upon expiration.
        """
        return ()

    @classmethod
    def handles_expiry(cls) -> bool:
        """Return whether it overrides `on_expire`."""
        return cls.on_expire is not StatefulFunction.on_expire

    @classmethod
    def transformed(cls) -> frozenset[str]:
        """Return the names of the states with a `snapshot_transformer`."""
        states = cls.descriptors().items()
        return frozenset(name for name, state in states if state.snapshot_transformer is not None)

    @classmethod
    def descriptors(cls) -> dict[str, StateDescriptor]:
        """Return the states declared, by name."""
        declared: dict[str, StateDescriptor] = {}
        # Base classes come first, so that a subclass may redeclare their states.
        for owner in reversed(cls.__mro__):
            attributes = vars(owner).items()
            own = {name: attribute for name, attribute in attributes if isinstance(attribute, StateDescriptor)}
            declared |= own
        return declared


class Deletion(dict[str, Any]):
    """A row whose key the sink must no longer have."""


@dataclass
class FunctionContext:
    """The step as a function sees it.

    Args:
        state: The current key and the clocks.
        timers: The current key's.
    """

    state: StateContext
    timers: Timers

    @property
    def now_ms(self) -> int:
        """Processing time of the step, epoch ms."""
        return self.state.now_ms

    @property
    def watermark_ms(self) -> int:
        """The watermark, epoch ms; the least long before the first event."""
        return self.state.watermark_ms

    @property
    def event_ms(self) -> int | None:
        """Event time of the row taken last, epoch ms."""
        return self.state.event_ms

    @property
    def output_key(self) -> tuple[str, ...]:
        """Columns of the sink's key; empty without a sink."""
        return self.state.output_key

    def count(self, name: str, n: int = 1) -> None:
        """Add to one of the step's counts, which are reported with it."""
        self.state.counts[name] += n

    def delete(self, row: Mapping[str, Any]) -> Deletion:
        """Make a row that deletes the one with its key from the sink."""
        return Deletion(row)


class FunctionRun:
    """A function with its states bound to a store.

    Args:
        function: The user's function.
        store: Holds the states.
        ttl: Time to live by state, replacing the declared one.
    """

    def __init__(
        self,
        function: StatefulFunction,
        store: Store,
        ttl: Mapping[str, StateTtlConfig | None] | None = None,
    ) -> None:
        self.function = function
        self.context = StateContext()
        self.states: dict[str, KeyedState] = {}
        self.ttl_timers: dict[str, TtlTimers] = {}
        self._expired: deque[tuple[str, Any, Any, Entry]] = deque()
        """Entries to be handed over: state, key, sub-key, entry."""
        self._every_record: list[IncrementalCleaner] = []
        given = ttl or {}
        declared = type(function).descriptors()
        for name, descriptor in declared.items():
            raw = store.state(name)
            state_ttl = given.get(name, descriptor.ttl)
            state = descriptor.bound(raw, self.context, state_ttl)
            state.snapshot_transformer = descriptor.snapshot_transformer
            setattr(function, name, state)
            self.states[name] = state
            if function.handles_expiry():
                state.on_expired = partial(self._note_expired, name)
            self._clean(name, state, store.background)
        self._timer_state = store.state(TIMERS)
        self.timers = Timers(self._timer_state, self.context)
        self._ctx = FunctionContext(self.context, self.timers)

    def process(
        self,
        key: tuple[Any, ...],
        rows: Iterable[Change],
    ) -> Iterable[Mapping[str, Any]]:
        """Run the function on one key's rows, in order; on what has expired of it before."""
        yield from self.expire(key)
        self._turn_to(key)
        changes = self._with_event_time(rows)
        yielded = self.function.process(key, changes, self._ctx)
        yield from yielded or ()
        yield from self._hand_over()

    def expire(self, key: tuple[Any, ...]) -> Iterable[Mapping[str, Any]]:
        """Remove one key's expired entries and hand them over, if the function takes them."""
        if not self.function.handles_expiry():
            return
        for state in self.states.values():
            state.purge(key)
        yield from self._hand_over()

    def _note_expired(self, state: str, key: Any, sub: Any, entry: Entry) -> None:
        self._expired.append((state, key, sub, entry))

    def _hand_over(self) -> Iterable[Mapping[str, Any]]:
        """Call `on_expire` for each entry that was removed since it had expired, also those that such a call removes."""
        while self._expired:
            name, key, sub, entry = self._expired.popleft()
            state = self.states[name]
            self._turn_to(key)
            ended_ms = state.end_ms(entry)
            self.context.event_ms = ended_ms if state.ttl is not None and state.ttl.by_event_time else None
            user_key = sub if isinstance(state, MapState) else None
            expired = ExpiredEntry(name, entry.value, user_key, ended_ms)
            yielded = self.function.on_expire(key, expired, self._ctx)
            yield from yielded or ()

    def due(self, key: tuple[Any, ...]) -> list[Timer]:
        """Return one key's timers that are due, the earliest first."""
        self.context.key = key
        return self.timers.due()

    def fire(self, key: tuple[Any, ...]) -> Iterable[Mapping[str, Any]]:
        """Run the function on one key's due timers, including later ones that it registers while running.

        A new timer that is not later than the one firing waits for the next call; otherwise the loop would never end.
        """
        self._turn_to(key)
        waiting: set[Timer] = set()
        while due := self._due_besides(waiting):
            first, *later = due
            time, clock = first
            self.timers.delete(time, clock)
            is_by_event = clock is TimeCharacteristic.EVENT_TIME
            self.context.event_ms = time if is_by_event else None
            yielded = self.function.on_timer(key, time, self._ctx)
            yield from yielded or ()
            # A newly due timer was registered by `on_timer`. If it is not later, it would fire forever, so it waits.
            known = {*waiting, *later}
            registered = self._due_besides(known)
            for timer in registered:
                registered_for, _ = timer
                if registered_for <= time:
                    waiting.add(timer)
        yield from self._hand_over()

    def _due_besides(self, waiting: set[Timer]) -> list[Timer]:
        due = self.timers.due()
        return [timer for timer in due if timer not in waiting]

    def advance(self) -> Iterable[Mapping[str, Any]]:
        """Fire all timers that are due at the clocks of `context`: TTL timers first, what these expire, then the user's, key by key."""
        for timers in self.ttl_timers.values():
            timers.advance()
        yield from self._hand_over()
        keys = list(self._timer_state.all_keys())
        for key in keys:
            yield from self.fire(key)

    def _turn_to(self, key: tuple[Any, ...]) -> None:
        self.context.key = key
        self.context.event_ms = None
        for state in self.states.values():
            state.current_ttl = None
        for clean in self._every_record:
            clean()

    def _with_event_time(self, rows: Iterable[Change]) -> Iterator[Change]:
        for change in rows:
            self.context.event_ms = change.event_ms
            yield change

    def restored(self, store: Store, ttl: Mapping[str, StateTtlConfig | None]) -> FunctionRun:
        """Start the function again over an empty store, from a full snapshot of this run's states and timers.

        Args:
            store: The store.
            ttl: Time to live by state, replacing the declared one; see `migrated` for stored entries under another one.
        """
        run = FunctionRun(self.function, store, ttl)
        for part in fields(StateContext):
            setattr(run.context, part.name, getattr(self.context, part.name))
        for name, state in self.states.items():
            new = run.states[name]
            for key, sub, entry in snapshot(state):
                new.raw.put(key, sub, migrated(entry, new.ttl, self.context.now_ms))
        for timers in run.ttl_timers.values():
            timers.arm_stored()
        for key in self._timer_state.all_keys():
            for sub, entry in self._timer_state.entries(key):
                run._timer_state.put(key, sub, entry)
        run._expired.extend(self._expired)
        return run

    def _clean(
        self,
        name: str,
        state: KeyedState,
        background: IncrementalCleanup | None,
    ) -> None:
        """Attach the configured cleanup to a state; `background` is the store's default."""
        if state.ttl is None:
            return
        cleanup = state.ttl.cleanup
        default = background if cleanup.background else None
        incremental = cleanup.incremental or default
        if incremental is not None:
            cleaner = IncrementalCleaner(state, incremental.cleanup_size)
            state.before_access = cleaner
            if incremental.run_for_every_record:
                self._every_record.append(cleaner)
        if cleanup.timers:
            self.ttl_timers[name] = TtlTimers(state)
