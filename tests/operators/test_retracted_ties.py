"""Valid changelogs whose contents stand at one sequence: the sink ends with their row in every order of arrival and every cut.

Each order and cut of a changelog is a key of its own, so that the operator plays thousands of them in a few steps.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from ebbtide.entries import Step
from ebbtide.operators import SequenceOperator

Event = tuple[str, str, int]
"""Kind, content, sequence."""
Log = tuple[Event, ...]
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.int64()), ("v", pa.string())])
OPERATOR = SequenceOperator(COLUMNS, ("id",), ("at",))


@dataclass(frozen=True)
class Run:
    """One arrival of a changelog: its events in steps."""

    log: Log
    steps: tuple[Log, ...]


@dataclass(frozen=True)
class Shown:
    """What is left of a key: its row, whether it is reported."""

    row: tuple[str, int] | None
    is_undecided: bool


def fold(log: Log) -> tuple[str, int] | None:
    """Return the row at the end of a changelog, in the order of its source."""
    row = None
    for kind, content, at in log:
        row = (content, at) if kind in ("+I", "+U") else None
    return row


def valid_logs(length: int, contents: str, sequences: int) -> Iterator[Log]:
    """Yield the changelogs of a length: a row is added where there is none, and taken back or deleted where there is one.

    Sequences do not fall, and behind a delete they rise. Contents come first in the order of the alphabet: others are the same
    but for names.
    """

    def go(log: Log, live: Event | None, at: int, names: int) -> Iterator[Log]:
        if len(log) == length:
            yield log
        elif live is not None:
            _, content, sequence = live
            yield from go((*log, ("-U", content, sequence)), None, at, names)
            yield from go((*log, ("-D", content, sequence)), None, at + 1, names)
        else:
            for sequence in range(at, sequences):
                for number in range(min(names + 1, len(contents))):
                    added = ("+U" if log else "+I", contents[number], sequence)
                    yield from go((*log, added), added, sequence, max(names, number + 1))

    yield from go((), None, 0, 0)


def at_last_sequence(log: Log) -> Log:
    last = max(at for _, _, at in log)
    return tuple(event for event in log if event[2] == last)


def comes_back(log: Log) -> bool:
    """Whether the last row had been taken back at its sequence before: it is the same change again."""
    row = fold(log)
    return row is not None and ("-U", *row) in log


def is_all_taken_back(log: Log) -> bool:
    """Whether several contents were taken back at the last sequence, and none is left that was not."""
    last = at_last_sequence(log)
    taken = {content for kind, content, _ in last if kind == "-U"}
    added = {content for kind, content, _ in last if kind in ("+I", "+U")}
    is_deleted = any(kind == "-D" for kind, _, _ in last)
    return len(taken) > 1 and added <= taken and not is_deleted


def wanted(log: Log) -> Shown:
    if is_all_taken_back(log):
        return Shown(None, is_undecided=True)
    return Shown(None if comes_back(log) else fold(log), is_undecided=False)


def changes_of(number: int, events: Iterable[tuple[int, Event]]) -> pa.Table:
    rows = [
        {"id": key, "at": at, "v": content, "_kind": kind, "_op": kind, "_sequence": {"at": at}}
        | {"_order": {"step": number, "part": 0, "position": place}, "_event_ms": 0}
        for place, (key, (kind, content, at)) in enumerate(events)
    ]
    return pa.Table.from_pylist(rows, OPERATOR.changes)


def play(runs: list[Run]) -> list[Shown]:
    """Play runs, each under a key of its own; the sink takes what steps decide, one after the other."""
    state = OPERATOR.schema.empty_table()
    sink: dict[int, tuple[str, int]] = {}
    changed_by: dict[int, tuple[int, ...]] = {}
    undecided: set[int] = set()
    counted = 0
    for number in range(1, max(len(run.steps) for run in runs) + 1):
        events = [
            (key, event) for key, run in enumerate(runs) if number <= len(run.steps) for event in run.steps[number - 1]
        ]
        result = OPERATOR.apply(changes_of(number, events), state, Step(number, 0))
        state = pa.concat_tables([state, result.entries])
        counted += result.metrics["conflicts"]
        for entry in result.entries.to_pylist():
            key = entry["id"]
            order = tuple(entry["_changed_by"].values())
            if entry["_change"]:
                assert order > changed_by.get(key, ())
                changed_by[key] = order
            if entry["_change"] in ("I", "U"):
                assert (key in sink) == (entry["_change"] == "U")
                sink[key] = (entry["v"], entry["at"])
            elif entry["_change"] == "D":
                del sink[key]
            (undecided.add if entry["_conflict"] else undecided.discard)(key)
    assert counted or not undecided
    return [Shown(sink.get(key), key in undecided) for key in range(len(runs))]


def cuts_of(events: Log, chosen: Iterable[int]) -> Iterator[tuple[Log, ...]]:
    """Yield the events in steps: bit n of a number says that one begins behind event n."""
    for number in chosen:
        places = [0, *(n for n in range(1, len(events)) if number >> (n - 1) & 1), len(events)]
        yield tuple(events[a:b] for a, b in itertools.pairwise(places))


def every_run(log: Log) -> Iterator[Run]:
    for order in sorted(set(itertools.permutations(log))):
        for steps in cuts_of(order, range(2 ** (len(log) - 1))):
            yield Run(log, steps)


def some_runs(log: Log, count: int, rng: random.Random) -> Iterator[Run]:
    """Yield random runs, in half of them with events that come again."""
    for number in range(count):
        events = [*log, *rng.choices(log, k=rng.randint(1, 3) if number % 2 else 0)]
        rng.shuffle(events)
        [steps] = cuts_of(tuple(events), [rng.randrange(2 ** (len(events) - 1))])
        yield Run(log, steps)


def check(runs: Iterable[Run], batch: int = 20_000) -> None:
    remaining = iter(runs)
    while some := list(itertools.islice(remaining, batch)):
        for run, got in zip(some, play(some), strict=True):
            assert got == wanted(run.log), run


def logs_up_to(length: int, contents: str = "abc", sequences: int = 2) -> list[Log]:
    return [log for n in range(1, length + 1) for log in valid_logs(n, contents, sequences)]


def test_conflict_leaves_the_row_that_is_not_taken_back_in_every_order_and_cut():
    for shown, hidden in itertools.permutations("abcd", 2):
        log = (("+U", hidden, 5), ("-U", hidden, 5), ("+U", shown, 5))
        assert {got.row for got in play(list(every_run(log)))} == {(shown, 5)}


def test_short_changelogs_end_with_their_row_in_every_order_and_cut():
    check(run for log in logs_up_to(4, "ab") for run in every_run(log))


def test_changelogs_end_with_their_row_in_some_orders_and_cuts():
    rng = random.Random(7)
    check(run for log in logs_up_to(6) for run in some_runs(log, 4, rng))


@pytest.mark.grid
def test_changelogs_of_five_changes_end_with_their_row_in_every_order_and_cut():
    check(run for log in logs_up_to(5) for run in every_run(log))


@pytest.mark.grid
def test_changelogs_of_seven_changes_end_with_their_row_in_many_orders_and_cuts():
    rng = random.Random(11)
    logs = [*valid_logs(6, "abc", 2), *valid_logs(7, "abc", 2)]
    check(run for log in logs for run in some_runs(log, 200, rng))
