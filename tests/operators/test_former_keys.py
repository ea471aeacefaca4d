"""Rows that came from an erased key: without its name they decide as before on all that still comes."""

import copy
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from frame.thinned import thinned
from oracles.arrival_orders import History, blinding, parsed, random_history, sent_and_shown

from ebbtide.operators import FormerKeys

KEY = ["id"]


class Erasure:
    """The erasure of a key once some records of a history have come.

    Args:
        history: The history.
        erased: The key.
        cuts: Rows of other keys are to name it no more; else they still do.
    """

    def __init__(self, history, erased, *, cuts):
        self._erased, self._cuts = erased, cuts
        kept = [changes.filter(pa.array(~self.is_erased(changes))) for changes in history._changes]
        self.later = copy.copy(history)
        self.later._changes = (
            [FormerKeys(KEY, self.is_erased).cut_changes(changes) for changes in kept] if cuts else kept
        )

    def is_erased(self, keys):
        return np.array([key == self._erased for key in keys["id"].to_pylist()], bool)

    def named(self, rows):
        return int(FormerKeys(KEY, self.is_erased).named(rows).sum())

    def after(self, arrived, numbers):
        """Return the rows at once, and after each record more; and how many entries name the key in the end."""
        entries = arrived.entries.filter(pa.array(~self.is_erased(arrived.entries)))
        if self._cuts:
            entries = FormerKeys(KEY, self.is_erased).cut_entries(entries)
        sink = {key: row for key, row in arrived.sink.items() if key != self._erased}
        arrived = replace(arrived, entries=entries, sink=sink)
        shown = [arrived.rows]
        for number in numbers:
            if len(self.later._changes[number]):
                arrived = self.later.after(arrived, (number,))
                shown.append(arrived.rows)
        return shown, self.named(arrived.entries)


def came_through(ops, erased):
    """The sequence up to which a record may reach a row through the erased key: of the last change to it from another one."""
    return max((lsn for lsn, op in enumerate(ops, start=1) if op.new_key == erased), default=0)


def without_truncate(chance, most_records):
    """Make a history without a TRUNCATE: one that comes late does not reach values from an erased key."""
    text = "t"
    while "t" in text:
        text = random_history(chance, most_records)
    return text


def lsn_of(changes):
    return max((row["_lsn"] for row in changes["_sequence"].to_pylist()), default=0)


def hold(text, chance):
    """Erase a key of a history after each prefix of a random order of arrival; return how many times its name went."""
    ops = parsed(text)
    erased = chance.choice([op.key for op in ops if op.kind in "mk"])
    history = History(sent_and_shown(ops)[0], blinding(ops))
    with_name, without_name = (Erasure(history, erased, cuts=cuts) for cuts in (False, True))
    order = chance.sample(range(len(history)), len(history))
    arrived = history.empty
    n_cut = 0
    for n_before, number in enumerate(order, start=1):
        arrived = history.after(arrived, (number,))
        later = order[n_before:]
        n_named = without_name.named(arrived.entries) + sum(
            without_name.named(history._changes[each]) for each in later
        )
        is_reached = any(lsn_of(history._changes[each]) <= came_through(ops, erased) for each in later)
        if is_reached or not n_named:
            continue
        # Some records come once more.
        later = later + chance.sample(order, 2)
        want, _ = with_name.after(arrived, later)
        shown, n_left = without_name.after(arrived, later)
        assert shown == want, (ops, erased, order, n_before)
        assert n_left == 0, (ops, erased, order, n_before)
        n_cut += 1
    return n_cut


HISTORIES = [
    "c1 u1:v k1>2 u2:v u2:w",
    "c1 u1:v m1>2 u2:v u2:w",
    "c1 u1:v k1>2 k2>3 u3:v u3:w",
    "c1 u1:v k1>2 c1 u2:v u2:w",
    "c2 u2:v k2>3 c1 u1:v k1>2 u2:w",
    "c1 u1:v k1>2 u2:v k2>3 c2 u2:w",
    "c2 u2:v k2>1 k1>3 c1 u3:v u3:w",
]
"""In each a value comes from a former key, and a later one of it may arrive after one of the row's last change."""


@pytest.mark.parametrize("text", thinned(HISTORIES, 3))
def test_rows_without_the_name_of_an_erased_key_decide_as_with_it(text):
    chance = random.Random(text)
    assert sum(hold(text, chance) for _ in range(2)) > 0


@pytest.mark.grid
@pytest.mark.parametrize("text", HISTORIES)
def test_rows_without_the_name_of_an_erased_key_decide_as_with_it_in_many_orders(text):
    chance = random.Random(text)
    for _ in range(100):
        hold(text, chance)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(20))
def test_rows_of_random_histories_without_the_name_of_an_erased_key_decide_as_with_it(seed):
    chance = random.Random(seed)
    assert sum(hold(without_truncate(chance, 8), chance) for _ in range(30)) > 10
