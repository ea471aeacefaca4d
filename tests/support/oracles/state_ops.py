"""Operations on states: drawn at random, performed on a state, expected of the reference."""

from contextlib import suppress
from datetime import timedelta
from itertools import islice

SUBS = "pq"
UNWANTED = 13
"""A value that makes an appending state's function return None."""


def reduce(present, added):
    """Not commutative, and bounded; None is no value."""
    return None if added == UNWANTED else (3 * present + added) % 1009


class Sevens:
    """An accumulator of its own type, whose result may be None."""

    def create_accumulator(self):
        return 1

    def add(self, value, accumulator):
        return None if value == UNWANTED else (5 * accumulator + value) % 1013

    def get_result(self, accumulator):
        return None if accumulator % 7 == 0 else accumulator * 2


APPENDING = ("reducing", "aggregating")


def operation(rng, kind, unit=1):
    """A random operation and its arguments; times to live of their own in multiples of `unit` ms."""
    value, ttl = rng.randrange(100), rng.choice((None, None, None, unit, 25 * unit))
    sub = rng.choice(SUBS)
    if kind in APPENDING:
        value = rng.choice((value, value, UNWANTED))
        return rng.choice([("get", ()), ("get", (ttl,)), ("add", (value, ttl)), ("add", (value, ttl)), ("clear", ())])
    return rng.choice(
        {
            "value": [
                ("get", ()),
                ("get", (ttl,)),
                ("update", (value, ttl)),
                ("update", (value, ttl)),
                ("update", (None, ttl)),
                ("clear", ()),
            ],
            "list": [
                ("get", (None,)),
                ("get", (None, ttl)),
                ("get", (rng.randrange(4),)),
                ("add", ((value,), ttl)),
                ("add", ((value, value + 1), ttl)),
                ("update", (tuple(range(rng.randrange(3))), ttl)),
                ("clear", ()),
            ],
            "map": [
                ("get", (sub,)),
                ("get", (sub, ttl)),
                ("contains", (sub,)),
                ("put", (sub, value, ttl)),
                ("put", (sub, None, ttl)),
                ("put_all", (value, ttl)),
                ("remove", (sub,)),
                ("is_empty", ()),
                ("entries", ()),
                ("entries", ()),
                ("drop", (sub,)),
                ("clear", ()),
            ],
        }[kind]
    )


def perform(state, kind, name, arguments):
    """Do it, and return what the state gives."""
    if name == "clear":
        return state.clear()
    if kind in APPENDING:
        return (
            state.get(ttl=_duration(*arguments))
            if name == "get"
            else state.add(arguments[0], ttl=_duration(arguments[1]))
        )
    if kind == "value":
        return (
            state.get(ttl=_duration(*arguments))
            if name == "get"
            else state.update(arguments[0], ttl=_duration(arguments[1]))
        )
    if kind == "list":
        if name == "get":
            n, *ttl = arguments
            return list(islice(state.get(ttl=_duration(*ttl)), n))
        return (state.add_all if name == "add" else state.update)(arguments[0], ttl=_duration(arguments[1]))
    if name == "get":
        sub, *ttl = arguments
        return state.get(sub, ttl=_duration(*ttl))
    if name in ("contains", "remove"):
        return getattr(state, name)(*arguments)
    if name == "put":
        return state.put(arguments[0], arguments[1], ttl=_duration(arguments[2]))
    if name == "put_all":
        return state.put_all(dict.fromkeys(SUBS, arguments[0]), ttl=_duration(arguments[1]))
    if name == "is_empty":
        return state.is_empty()
    found, seen = state.entries(), []
    for sub, value in found:
        seen.append((sub, value))
        if sub in arguments:
            with suppress(RuntimeError):  # it had expired, and was shown
                found.remove()
    return sorted(seen)


def expect(reference, kind, key, name, arguments):
    """Do it on the reference, and return what it gives."""
    if name == "clear":
        reference.cells[key] = {}
        return None
    if kind in APPENDING:
        combine, result = COMBINING[kind]
        if name == "add":
            return reference.combine(key, combine, *arguments)
        found = reference.value_get(key, *arguments)
        return None if found is None else result(found)
    if kind == "value":
        return reference.value_get(key, *arguments) if name == "get" else reference.value_update(key, *arguments)
    if kind == "list":
        return getattr(reference, f"list_{name}")(key, *arguments)
    if name in ("get", "contains"):
        return reference.read(key, *arguments)[name == "get"]
    if name == "put":
        return reference.write(key, *arguments)
    if name == "put_all":
        for sub in SUBS:
            reference.write(key, sub, *arguments)
        return None
    if name == "remove":
        reference.of(key).pop(arguments[0], None)
        return None
    return not reference.of(key) if name == "is_empty" else sorted(reference.map_entries(key, arguments))


def alive(reference, kind, key, name, arguments):
    """What else a state may give that cleans: (what only live entries give, all that is stored)."""
    cells = reference.of(key)
    live = {sub: cell.value for sub, cell in cells.items() if not reference.dead(cell)}
    if name == "get":
        given = [live.get(arguments[0])] if kind == "map" else [*live.values()]
        return given, [cell.value for cell in cells.values()]
    if name in ("contains", "is_empty"):
        return [arguments[0] in live if arguments else not live], []
    return sorted(live.items()), sorted((sub, cell.value) for sub, cell in cells.items())


def _duration(ms=None):
    return None if ms is None else timedelta(milliseconds=ms)


def _reduced(present, added):
    return added if present is None else reduce(present, added)


def _gathered(present, added):
    return Sevens().add(added, 1 if present is None else present)


COMBINING = {"reducing": (_reduced, lambda found: found), "aggregating": (_gathered, Sevens().get_result)}
"""Of the present value, None if there is none, and the added one; and of the stored value to what a read gives."""
