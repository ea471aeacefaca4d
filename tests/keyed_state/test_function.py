"""A function's states and timers, as a run binds them to a store."""

import random
from datetime import timedelta

import pytest

from ebbtide.changelog import RowKind
from ebbtide.keyed_state import (
    TIMERS,
    Change,
    CleanupConfig,
    FunctionRun,
    StatefulFunction,
    StateTtlConfig,
    TimeCharacteristic,
    ValueStateDescriptor,
)
from ebbtide.stores import HeapStore


def ttl(**cleanup):
    return StateTtlConfig(ttl=timedelta(milliseconds=10), cleanup=CleanupConfig(**cleanup))


class Quiet(StatefulFunction):
    output = "n BIGINT"

    def process(self, key, rows, ctx):
        return ()


def filled(function):
    """A run whose states have three keys, all expired."""
    run = FunctionRun(function, HeapStore())
    for number in range(3):
        run.context.key = (number,)
        for state in run.states.values():
            state.update(number)
    run.context.now_ms = 10
    return run


def stored(run):
    return {name: len(list(state.raw.all_keys())) for name, state in run.states.items()}


def test_subclass_has_the_states_of_its_base_and_may_declare_them_again():
    class Base(Quiet):
        kept = ValueStateDescriptor("BIGINT")
        again = ValueStateDescriptor("BIGINT")

    class Sub(Base):
        again = ValueStateDescriptor("STRING")
        own = ValueStateDescriptor("DATE")

    assert {name: each.of for name, each in Sub.descriptors().items()} == {
        "kept": "BIGINT",
        "again": "STRING",
        "own": "DATE",
    }


@pytest.mark.demand("ttl-defaults", "ttl-config")
def test_each_state_of_a_function_has_its_own_time_to_live():
    class Several(Quiet):
        short = ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=5)))
        longer = ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=20)))
        ever = ValueStateDescriptor("BIGINT")

    run = FunctionRun(Several(), HeapStore())
    run.context.key = ("a",)
    for state in run.states.values():
        state.update(1)
    read = {}
    for run.context.now_ms in (4, 5, 19, 20):
        read[run.context.now_ms] = [state.get() for state in run.states.values()]
    assert read == {4: [1, 1, 1], 5: [None, 1, 1], 19: [None, 1, 1], 20: [None, None, 1]}


class ByHand(StatefulFunction):
    """Keeps a value for 10 ms after its last write, as users do without a time to live: a stamp, and a timer per write."""

    output = "n BIGINT"
    n = ValueStateDescriptor("BIGINT")
    written = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        for change in rows:
            self.n.update((self.n.get() or 0) + change.row["n"])
            self.written.update(ctx.now_ms)
            ctx.timers.register(ctx.now_ms + 10)
        yield {"n": self.n.get()}

    def on_timer(self, key, time_ms, ctx):
        if self.written.get() == time_ms - 10:
            self.n.clear()
            self.written.clear()
        return ()


class ByTtl(StatefulFunction):
    """Does the same by a time to live."""

    output = "n BIGINT"
    n = ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=10)))

    def process(self, key, rows, ctx):
        for change in rows:
            self.n.update((self.n.get() or 0) + change.row["n"])
        yield {"n": self.n.get()}


@pytest.mark.demand("ttl-no-worse")
def test_time_to_live_does_as_a_function_with_timers_and_stores_less():
    chance = random.Random(1)
    stores, most = [HeapStore(), HeapStore()], [0, 0]
    runs = [FunctionRun(function, store) for function, store in zip((ByHand(), ByTtl()), stores, strict=True)]
    for _ in range(500):
        moves, key, change = chance.randrange(4), (chance.randrange(5),), Change(RowKind.INSERT, {"n": 1})
        given = []
        for run in runs:
            run.context.now_ms += moves
            list(run.advance())
            given.append(list(run.process(key, [change])))
        assert given[0] == given[1]
        for number, run in enumerate(runs):
            states = [stores[number].state(name) for name in (*run.states, TIMERS)]
            stored = sum(len(list(state.entries(key))) for state in states for key in state.all_keys())
            most[number] = max(most[number], stored)
    assert most == [most[0], 5], "an entry per key"
    assert most[0] >= 15, "beside each value its stamp, and its timers"


@pytest.mark.demand("ttl-background")
def test_access_cleans_by_the_default_of_the_store_unless_background_is_off():
    class Both(Quiet):
        cleaned = ValueStateDescriptor("BIGINT", ttl())
        left = ValueStateDescriptor("BIGINT", ttl(background=False))

    run = filled(Both())
    run.context.key = ("another",)
    for state in run.states.values():
        state.get()
    assert stored(run) == {"cleaned": 0, "left": 3}


def test_timers_clean_each_of_several_states():
    class Timed(Quiet):
        one = ValueStateDescriptor("BIGINT", ttl(timers=True, background=False))
        other = ValueStateDescriptor("BIGINT", ttl(timers=True, background=False))

    run = filled(Timed())
    assert list(run.advance()) == []
    assert stored(run) == {"one": 0, "other": 0}


def test_timer_fires_once_with_its_key_and_the_event_time_that_it_waited_for():
    class Rings(StatefulFunction):
        output = "at BIGINT"

        def process(self, key, rows, ctx):
            ctx.timers.register(7)
            ctx.timers.register(5, TimeCharacteristic.EVENT_TIME)
            return ()

        def on_timer(self, key, time_ms, ctx):
            yield {"key": key, "at": time_ms, "event": ctx.event_ms}

    run = FunctionRun(Rings(), HeapStore())
    list(run.process(("a",), []))
    run.context.now_ms = run.context.watermark_ms = 10
    want = [{"key": ("a",), "at": 5, "event": 5}, {"key": ("a",), "at": 7, "event": None}]
    assert list(run.advance()) == want
    assert list(run.advance()) == []


def test_event_time_is_that_of_the_row_taken_last_and_none_before():
    class Asks(StatefulFunction):
        output = "event BIGINT"

        def process(self, key, rows, ctx):
            yield {"event": ctx.event_ms}
            for _ in rows:
                yield {"event": ctx.event_ms}

    run = FunctionRun(Asks(), HeapStore())
    for event_ms in (5, 6):
        told = run.process(("a",), [Change(RowKind.INSERT, {}, event_ms)])
        assert [row["event"] for row in told] == [None, event_ms]
