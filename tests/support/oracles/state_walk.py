"""Walks the real states and the reference side by side, step by step, from a seed."""

from datetime import timedelta
from functools import partial
from itertools import product

from local.states import run_with
from oracles.reference_state import Cell, Reference
from oracles.state_ops import APPENDING, Sevens, alive, expect, operation, perform, reduce

from ebbtide.durations import to_ms
from ebbtide.keyed_state import (
    AggregatingStateDescriptor,
    CleanupConfig,
    IncrementalCleanup,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    UpdateType,
    ValueStateDescriptor,
)
from ebbtide.operators import RowsStore

DESCRIPTORS = {
    "value": ValueStateDescriptor,
    "list": ListStateDescriptor,
    "map": MapStateDescriptor,
    "reducing": partial(ReducingStateDescriptor, reduce=reduce),
    "aggregating": partial(AggregatingStateDescriptor, aggregate=Sevens()),
}
KINDS = {name: descriptor("BIGINT").kind for name, descriptor in DESCRIPTORS.items()}
TIMES = ("PROCESSING_TIME", "EVENT_TIME by WATERMARK", "EVENT_TIME by PROCESSING_TIME")
CLEANUPS = ("none", "incremental", "timers")
COMBINATIONS = tuple(product(UpdateType, StateVisibility, TIMES, KINDS, CLEANUPS))
TTL = timedelta(milliseconds=10)
KEYS = (("a",), ("b",), ("c",))
STAMPS = (-1, 0, 2**63 - 1)


class DifferenceError(AssertionError):
    pass


def walk(combination, store, rng, steps):
    """Make random steps; raise DifferenceError at the first one that the reference does not make alike."""
    update, visibility, time, kind, cleanup = combination
    characteristic, _, clock = time.partition(" by ")
    asked = {
        "none": CleanupConfig(background=False),
        "timers": CleanupConfig(background=False, timers=True),
        "incremental": CleanupConfig(incremental=IncrementalCleanup(cleanup_size=2)),
    }
    cleans = CleanupConfig() if update is UpdateType.DISABLED else asked[cleanup]
    ttl = StateTtlConfig(
        ttl=TTL,
        update_type=update,
        state_visibility=visibility,
        time_characteristic=characteristic,
        expiry_clock=clock or "WATERMARK",
        cleanup=cleans,
    )
    run = run_with(DESCRIPTORS[kind]("BIGINT", ttl), store, kind)
    state, at = run.states[kind], run.context
    at.watermark_ms = 0
    by_event = characteristic == "EVENT_TIME"
    reference = Reference(update.name, "RETURN" in visibility[:6], by_event, clock == "WATERMARK", to_ms(TTL))
    timers = run.ttl_timers.get(kind)
    clean = None
    if kind in APPENDING:
        # What a value is combined with depends on what was cleaned: the reference takes that over before the access.
        clean, state.before_access = state.before_access, None
    for number in range(steps):
        _move_clocks(rng, at, reference)
        if timers is not None:
            timers.advance()
            _compare(state, reference, cleanup, f"step {number}: timers; {combination}")
        name, arguments = operation(rng, kind)
        if clean is not None:
            clean()
            _compare(state, reference, cleanup, f"step {number}: cleanup; {combination}")
        also = alive(reference, kind, at.key, name, arguments)
        got, want = perform(state, kind, name, arguments), expect(reference, kind, at.key, name, arguments)
        if got != want and not (cleanup == "incremental" and _differs_by_the_dead_only(got, want, *also)):
            raise DifferenceError(
                f"step {number}: {name}{arguments} of {at.key!r} gave {got}; expected {want}; {combination}"
            )
        if isinstance(store, RowsStore):
            store.flush()
        _compare(state, reference, cleanup, f"step {number}: after {name}{arguments}; {combination}")


def _compare(state, reference, cleanup, where):
    """What is stored must be alike; a state that cleans may lack what is dead, and the reference then takes that over."""
    stored = {key: dict(state.raw.entries(key)) for key in state.raw.all_keys()}
    got = {k: {s: (e.value, e.stamp_ms, e.ttl_ms) for s, e in entries.items()} for k, entries in stored.items()}
    want = {
        k: {s: (c.value, c.stamp, c.ttl) for s, c in cells.items()} for k, cells in reference.cells.items() if cells
    }
    if got == want:
        return
    if cleanup != "none":
        alive = {k: _alive({s: _cell(each) for s, each in cells.items()}, reference) for k, cells in got.items()}
        known = {k: _alive(cells, reference) for k, cells in reference.cells.items()}
        extra = [
            cell
            for k, cells in got.items()
            for cell in map(_cell, cells.values())
            if cell not in reference.of(k).values()
        ]
        if {k: v for k, v in alive.items() if v} == {k: v for k, v in known.items() if v} and not extra:
            reference.cells = {k: {s: _cell(each) for s, each in cells.items()} for k, cells in got.items()}
            return
    raise DifferenceError(f"{where}: stored {got}; expected {want}")


def _alive(cells, reference):
    """Live cells: of a list in order, wherever they stand, else by sub-key."""
    alive = {sub: cell for sub, cell in cells.items() if not reference.dead(cell)}
    return list(alive.values()) if any(isinstance(sub, int) for sub in alive) else alive


def _cell(parts):
    return Cell(*parts)


def _move_clocks(rng, at, reference):
    at.key = rng.choice(KEYS)
    jump = rng.random()
    if jump < 0.7:
        move = rng.choice((0, 1, 2, 3, 9, 10, 11))
    elif jump < 0.9:
        move = -rng.choice((1, 5, 20))
    else:
        move = rng.choice((100, -100))
    at.now_ms += move
    at.watermark_ms += rng.choice((move, 0))
    at.event_ms = rng.choice((at.watermark_ms, at.watermark_ms + 3, at.watermark_ms - 7, at.watermark_ms - 10, *STAMPS))
    reference.now, reference.watermark, reference.event = at.now_ms, at.watermark_ms, at.event_ms


def _differs_by_the_dead_only(got, want, alive, full):
    if isinstance(got, list):
        return _within(got, full) and (len(got) == len(want) or _within(alive, got))
    return got in alive or (got is None and not alive)


def _within(part, whole):
    """Whether the elements of one list are in another, in the same order."""
    rest = iter(whole)
    return all(each in rest for each in part)
