"""The columnar strategy: the histories of many keys in one pass over dense integer codes, in constant time per record.

The same loop runs over arrays when compiled and over lists otherwise.

Source: FLIP-544. It emits the same records as strategy LEGACY.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbtide.columns import Codes, CompiledLoop, Mask, count_codes

NOTHING, INSERT, UPDATE, DELETE, UNMATCHED, CANCELLED = range(6)
"""Outcomes of a record: it emits nothing, +I, +U or -D, finds no row to retract, or is cancelled by an earlier retraction."""
NONE = -1


class Result(NamedTuple):
    """The outcome of n events; an element is named by the event that created it.

    Args:
        outcome: (n,) one of the constants above.
        source: (n,) for an event that emitted: the event whose row is emitted.
        alive: (n,) the event created an element that is in its history at the end, or is a retraction still waiting for its row.
        content: (n,) for an element: the event that last wrote its row.
        shown: (keys,) the element that the sink must show; -1: none.
        last_emitting_event: (keys,) the key's last event that emitted; -1: none did.
        visible_row: (keys,) the element that is newest (with `first`: oldest) at the end; -1: none.
    """

    outcome: NDArray[np.int8]
    source: Codes
    alive: Mask
    content: Codes
    shown: Codes
    last_emitting_event: Codes
    visible_row: Codes


def materialize(
    key: Codes,
    match_code: Codes,
    adds: Mask,
    *,
    n_stored: int = 0,
    replaces: bool = False,
    keep_unmatched: bool = False,
    first: bool = False,
) -> Result:
    """Apply events in order.

    Args:
        key: (n,) dense codes of the keys.
        match_code: (n,) dense codes by which a retraction finds its row: codes of the rows, or of key and upsert key. Events with
            equal match codes have equal keys.
        adds: (n,) whether an event adds its row; else it retracts it.
        n_stored: Number of leading events that replay stored rows: they emit nothing.
        replaces: An upsert key exists: an added row replaces the one that it matches.
        keep_unmatched: An unmatched retraction waits and cancels the next equal row that is added.
        first: The sink shows the oldest row instead of the newest.

    Example:
        >>> result = materialize(np.array([0, 0, 0]), np.array([0, 1, 1]), np.array([True, True, False]))
        >>> result.outcome.tolist(), result.source.tolist(), result.shown.tolist()
        ([1, 2, 2], [0, 1, 0], [0])
    """
    arrays = _empty_arrays(
        n_events=len(key),
        n_keys=count_codes(key),
        n_matches=count_codes(match_code),
    )
    events: tuple[Any, ...] = (key, match_code, adds)
    options: tuple[Any, ...] = (n_stored, replaces, keep_unmatched, first)
    if CompiledLoop.pays(len(key)):
        loop: Any = CompiledLoop(_loop).code
        loop(*events, *options, *arrays.values())
    else:
        # Python reads and writes lists several times faster than the single elements of arrays.
        events = tuple(codes.tolist() for codes in events)
        arrays = {name: array.tolist() for name, array in arrays.items()}
        _loop(*events, *options, *arrays.values())
    results: dict[str, Any] = {}
    for name in Result._fields:
        type_ = _TYPES.get(name, np.int64)
        results[name] = np.asarray(arrays[name], type_)
    return Result(**results)


_TYPES = {"outcome": np.int8, "alive": np.bool_, "size": np.int64}
"""Arrays that start as zeros; all other arrays hold 64-bit indices and start as `NONE`."""


def _empty_arrays(n_events: int, n_keys: int, n_matches: int) -> dict[str, Any]:
    """Return the arrays that the loop fills, in the order of its arguments."""
    sizes = {
        "outcome": n_events,
        "source": n_events,
        "alive": n_events,
        "content": n_events,
        "link": n_events,
        "following": n_events,
        "shown": n_keys,
        "last_emitting_event": n_keys,
        "visible_row": n_keys,
        "tail": n_keys,
        "size": n_keys,
        "oldest": n_matches,
        "newest": n_matches,
    }
    arrays: dict[str, Any] = {}
    for name, size in sizes.items():
        if name in _TYPES:
            arrays[name] = np.zeros(size, _TYPES[name])
        else:
            arrays[name] = np.full(size, NONE, np.int64)
    return arrays


def _loop(
    key: Any,
    match_code: Any,
    adds: Any,
    n_stored: int,
    replaces: bool,  # noqa: FBT001
    keep_unmatched: bool,  # noqa: FBT001
    first: bool,  # noqa: FBT001
    outcome: Any,
    source: Any,
    alive: Any,
    content: Any,
    link: Any,
    following: Any,
    shown: Any,
    last_emitting_event: Any,
    visible_row: Any,
    tail: Any,
    size: Any,
    oldest: Any,
    newest: Any,
) -> None:
    """Fill the arrays after `first`.

    Equal elements form a queue from `oldest` to `newest`, linked by `following`. A retraction takes the oldest, so the queue has
    no holes. It holds rows or waiting retractions, never both, since they cancel each other.

    A key's elements are linked from `visible_row` to the one before (with `first`: the one after). The sink shows the visible row
    unless an older one was replaced. Dead elements stay linked and are stepped over once each, so the pass takes linear time.
    """
    # Short names for index expressions: t an event, k its key, m its match code, e an element.
    for t in range(len(key)):
        k = key[t]
        m = match_code[t]
        e = oldest[m]
        emitted = -1  # the element whose row this event emits
        joins_queue = False
        if adds[t]:
            if e >= 0 and not adds[e]:
                # A retraction waits for this row: both are removed.
                oldest[m] = following[e]
                alive[e] = False
                outcome[t] = CANCELLED
            elif e >= 0 and replaces:
                # The row replaces the one it matches, which may differ from the visible one.
                content[e] = t
                if not first or visible_row[k] == e:
                    outcome[t] = UPDATE
                    emitted = e
            else:
                joins_queue = True
                content[t] = t
                if first and size[k] > 0:
                    # The oldest stays visible; the row is linked behind the newest and emits nothing.
                    link[tail[k]] = t
                else:
                    link[t] = visible_row[k]
                    visible_row[k] = t
                    outcome[t] = INSERT if size[k] == 0 else UPDATE
                    emitted = t
                tail[k] = t
                size[k] += 1
        elif e < 0 or not adds[e]:
            # No row matches: the queue is empty or holds only waiting retractions.
            outcome[t] = UNMATCHED
            joins_queue = keep_unmatched
        else:
            # The oldest matching row is removed.
            oldest[m] = following[e]
            alive[e] = False
            size[k] -= 1
            if size[k] == 0:
                visible_row[k] = -1
                outcome[t] = DELETE
                source[t] = t
                if t >= n_stored:
                    shown[k] = -1
                    last_emitting_event[k] = t
            elif visible_row[k] == e:
                # The visible row left: step over dead elements to the next live one. Each is passed once.
                while not alive[e]:
                    e = link[e]
                visible_row[k] = e
                outcome[t] = UPDATE
                emitted = e
        if joins_queue:
            if oldest[m] < 0:
                oldest[m] = t
            else:
                following[newest[m]] = t
            newest[m] = t
            alive[t] = True
        if emitted >= 0:
            source[t] = content[emitted]
            # Stored rows are replayed without emitting: only changes of this step decide what the sink shows.
            if t >= n_stored:
                shown[k] = emitted
                last_emitting_event[k] = t
