"""The columnar strategy: the histories of many keys in one pass over dense integer codes; constant time a record.

One loop, over arrays when compiled, over lists when not.

Source: FLIP-544; what comes out is what strategy LEGACY emits, record by record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbtide.model import compiled
from ebbtide.model.codes import Codes

NOTHING, INSERT, UPDATE, DELETE, UNMATCHED, CANCELLED = range(6)
"""What a record did: emitted nothing, +I, +U or -D; found no row to retract; was cancelled by a retraction that came before it."""
NONE = -1


class Result(NamedTuple):
    """What became of n events; an element goes by the event that created it.

    Args:
        outcome: (n,) what each event did.
        source: (n,) for an event that emitted: the event whose row is emitted.
        alive: (n,) the event created an element that is in its history at the end, or is a retraction still waiting for its row.
        content: (n,) of an element: the event that wrote its row last.
        shown: (keys,) the element that the sink is to show; -1: none.
        said: (keys,) the key's last event that emitted; -1: none did.
        edge: (keys,) the element that is newest (with `first`: oldest) at the end; -1: none.
    """

    outcome: NDArray[np.int8]
    source: Codes
    alive: NDArray[np.bool_]
    content: Codes
    shown: Codes
    said: Codes
    edge: Codes


def materialize(
    key: Codes,
    like: Codes,
    adds: NDArray[np.bool_],
    *,
    silent: int = 0,
    replaces: bool = False,
    waits: bool = False,
    first: bool = False,
) -> Result:
    """Apply events in order.

    Args:
        key: (n,) dense codes of the keys.
        like: (n,) dense codes of the rows, or of the keys with their upsert keys; equal ones have equal keys.
        adds: (n,) whether an event adds its row; else it retracts it.
        silent: So many events at the start are what is stored: they emit nothing.
        replaces: There is an upsert key: an added row takes the place of its like.
        waits: A retraction without its row waits and cancels the next equal one that is added.
        first: The sink shows the oldest row instead of the newest.

    Example:
        >>> found = materialize(np.array([0, 0, 0]), np.array([0, 1, 1]), np.array([True, True, False]))
        >>> found.outcome.tolist(), found.source.tolist(), found.shown.tolist()
        ([1, 2, 2], [0, 1, 0], [0])
    """
    n, keys, likes = len(key), int(key.max(initial=-1)) + 1, int(like.max(initial=-1)) + 1
    fast = compiled.worth_compiling(n)
    sizes = {"outcome": n, "source": n, "alive": n, "content": n, "link": n, "following": n}
    sizes |= {"shown": keys, "said": keys, "edge": keys, "tail": keys, "size": keys, "oldest": likes, "newest": likes}
    zero = {"outcome": np.int8, "alive": np.bool_, "size": np.int64}
    arrays: dict[str, Any] = {
        name: np.zeros(size, zero[name]) if name in zero else np.full(size, NONE, np.int64)
        for name, size in sizes.items()
    }
    events: tuple[Any, ...] = (key, like, adds)
    if not fast:
        events, arrays = tuple(e.tolist() for e in events), {name: a.tolist() for name, a in arrays.items()}
    loop: Any = compiled.compiled(_loop) if fast else _loop
    loop(*events, silent, replaces, waits, first, *arrays.values())
    return Result(*(np.asarray(arrays[name], zero.get(name, np.int64)) for name in Result._fields))


def _loop(
    key: Any,
    like: Any,
    adds: Any,
    silent: int,
    replaces: bool,  # noqa: FBT001
    waits: bool,  # noqa: FBT001
    first: bool,  # noqa: FBT001
    outcome: Any,
    source: Any,
    alive: Any,
    content: Any,
    link: Any,
    following: Any,
    shown: Any,
    said: Any,
    edge: Any,
    tail: Any,
    size: Any,
    oldest: Any,
    newest: Any,
) -> None:
    """Fill the arrays after `first`.

    Equal elements are chained from `oldest` to `newest` by `following`. A key's elements are linked from `edge`, the one that its
    sink shows unless an older one was replaced: to the one before, or with `first` to the one after; dead ones are stepped over
    when the edge meets them, once each.
    """
    for t in range(len(key)):
        k, i = key[t], like[t]
        e = oldest[i]
        emits = -1
        joins = False
        if adds[t]:
            if e >= 0 and not adds[e]:
                oldest[i] = following[e]
                alive[e] = False
                outcome[t] = CANCELLED
            elif e >= 0 and replaces:
                content[e] = t
                if not first or edge[k] == e:
                    outcome[t] = UPDATE
                    emits = e
            else:
                joins = True
                content[t] = t
                if first and size[k] > 0:
                    link[tail[k]] = t
                else:
                    link[t] = -1 if first else edge[k]
                    edge[k] = t
                    outcome[t] = INSERT if size[k] == 0 else UPDATE
                    emits = t
                tail[k] = t
                size[k] += 1
        elif e < 0 or not adds[e]:
            outcome[t] = UNMATCHED
            joins = waits
        else:
            oldest[i] = following[e]
            alive[e] = False
            size[k] -= 1
            if size[k] == 0:
                edge[k] = -1
                outcome[t] = DELETE
                source[t] = t
                if t >= silent:
                    shown[k] = -1
                    said[k] = t
            elif edge[k] == e:
                while not alive[e]:
                    e = link[e]
                edge[k] = e
                outcome[t] = UPDATE
                emits = e
        if joins:
            if oldest[i] < 0:
                oldest[i] = t
            else:
                following[newest[i]] = t
            newest[i] = t
            alive[t] = True
        if emits >= 0:
            source[t] = content[emits]
            if t >= silent:
                shown[k] = emits
                said[k] = t
