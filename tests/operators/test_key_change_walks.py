"""Keys that change, are swapped and rotate, values left out, rows known from snapshots alone: what the sink shows, by order of arrival.

In the order of the log, and in each key's own order, the sink is the database's table wherever steps are cut. In any other order a
value that it lacks is null and waits; no row ever ends with another row's value.
"""

import random

import pytest
from oracles.arrival_orders import TEXTS, History, arrivals, in_log_order, parsed, sent_and_shown
from oracles.walks import merged, steps_of, walk

READ_ONLY = [
    "r1 m1>2",
    "r1 k1>2",
    "r1 m1>2 r2",
    "r1 u1:v m1>2",
    "r1 m1>2 u2:v r2",
    "r1 r1 m1>2 c1",
]
"""Histories of rows that only snapshots have shown, of at most 4 records."""
READ_AND_MOVED = [
    "r1 m1>2 c1 r1",
    "r1 m1>2 m2>3",
    "r1 m1>2 r2 m2>3 r3",
    "r1 k1>2 k2>1 r1",
    "r1 d1 c1 m1>2 r2",
    "r1 r2 k1>9 k2>1 k9>2",
    "r1 r2 k1>9 k2>1 k9>2 r1 r2",
    "r1 r2 m1>9 m2>1 m9>2",
    "r1 k1>2 r2 k2>3 c2 r3",
    "r1 m1>2 c1 m1>3 r3",
    "r1 u1:v r1 k1>2 c1 u2:w",
]
"""Histories of at most 8 records."""
ROTATIONS = [
    "c1 c2 c3 k1>9 k2>1 k3>2 k9>3",
    "r1 r2 r3 k1>9 k2>1 k3>2 k9>3",
    "c1 c2 k1>9 k2>1 k9>2 k1>9 k2>1 k9>2",
    "r1 r2 k1>9 k2>1 k9>2 k1>9 k2>1 k9>2",
]
ROTATIONS_OF_FOUR = [
    "c1 c2 c3 c4 k1>9 k2>1 k3>2 k4>3 k9>4",
    "r1 r2 r3 r4 k1>9 k2>1 k3>2 k4>3 k9>4",
]
LONG_ROTATIONS = [
    "c1 c2 c3 m1>9 m2>1 m3>2 m9>3",
    "r1 r2 r3 m1>9 m2>1 m3>2 m9>3",
    "c1 c2 c3 c4 m1>9 m2>1 m3>2 m4>3 m9>4",
    "r1 r2 r3 r4 m1>9 m2>1 m3>2 m4>3 m9>4 r1 r2 r3 r4",
    "r1 r2 r3 m1>9 m2>1 m3>2 m9>3 m1>9 m2>1 m3>2 m9>3 m1>9 m2>1 m3>2 m9>3",
]


def refuse_strange_values(arrived, rows, of):
    """A cell has the database's value, or it is null and its row waits."""
    assert arrived.rows.keys() == rows.keys(), (of, arrived.order)
    for key, row in arrived.rows.items():
        for name in TEXTS:
            is_right = row[name] == rows[key][name]
            is_waiting = row[name] is None and key in arrived.waiting
            assert is_right or is_waiting, (of, arrived.order, key, row, rows[key])


def refuse_strange_values_in_every_order(text, most_at_once):
    records, rows = sent_and_shown(parsed(text))
    for came, arrived in arrivals(History(records, set()), most_at_once=most_at_once):
        if len(came) == len(records):
            refuse_strange_values(arrived, rows, text)


def refuse_unlike_database_in_log_order(text, most_at_once):
    records, rows = sent_and_shown(parsed(text))
    for arrived in in_log_order(History(records, set()), most_at_once=most_at_once):
        assert (arrived.rows, arrived.waiting) == (rows, set()), (text, arrived.order)


@pytest.mark.parametrize("text", [READ_ONLY[0], READ_ONLY[4], ROTATIONS[1], LONG_ROTATIONS[1]])
def test_rows_in_the_order_of_the_log_are_the_database_s_wherever_steps_are_cut(text):
    refuse_unlike_database_in_log_order(text, most_at_once=2)


@pytest.mark.grid
@pytest.mark.parametrize("text", [*READ_ONLY, *READ_AND_MOVED, *ROTATIONS, *ROTATIONS_OF_FOUR, *LONG_ROTATIONS])
def test_rows_of_long_histories_in_the_order_of_the_log_are_the_database_s(text):
    refuse_unlike_database_in_log_order(text, most_at_once=len(text))


@pytest.mark.parametrize("text", READ_ONLY[:3])
def test_no_row_ends_with_another_row_s_value_in_any_order_of_arrival(text):
    refuse_strange_values_in_every_order(text, most_at_once=3)


@pytest.mark.grid
@pytest.mark.parametrize("text", [*READ_ONLY, *READ_AND_MOVED, *ROTATIONS[:2]])
def test_no_row_of_long_histories_ends_with_another_row_s_value(text):
    refuse_strange_values_in_every_order(text, most_at_once=1)


@pytest.mark.grid
@pytest.mark.parametrize("text", [*READ_ONLY, *READ_AND_MOVED[:5]])
def test_no_row_ends_with_another_row_s_value_wherever_steps_are_cut(text):
    refuse_strange_values_in_every_order(text, most_at_once=4)


def play(history, steps):
    arrived = history.empty
    for step in steps:
        arrived = history.after(arrived, step)
    return arrived


@pytest.mark.grid
@pytest.mark.parametrize("text", [*ROTATIONS[2:], *ROTATIONS_OF_FOUR, *LONG_ROTATIONS])
def test_no_row_of_rotations_ends_with_another_row_s_value_in_many_orders(text):
    """All orders lead to too many states: some of them, however cut."""
    chance = random.Random(text)
    records, rows = sent_and_shown(parsed(text))
    history = History(records, set())
    numbers = range(len(records))
    for _ in range(200):
        arrived = play(history, steps_of(chance, chance.sample(numbers, len(numbers))))
        refuse_strange_values(arrived, rows, text)


def refuse_wrong_walk(seed, n_acts):
    """Play a walk in the order of the log, in each key's own order, and shuffled."""
    chance = random.Random(seed)
    reads = seed % 2 == 1
    walked = walk(chance, n_acts, forms=("m", "k", "mk")[seed % 3], reads=reads)
    history = History(walked.records, set())
    numbers = range(len(walked.records))
    in_order = play(history, steps_of(chance, numbers))
    assert in_order.rows == walked.rows, (walked.text, in_order.order)
    shuffled = play(history, steps_of(chance, chance.sample(numbers, len(numbers))))
    refuse_strange_values(shuffled, walked.rows, walked.text)
    by_key = play(history, steps_of(chance, merged(chance, walked.ops)))
    if {op.kind for op in walked.ops}.isdisjoint("k"):
        assert by_key.rows == walked.rows, (walked.text, by_key.order)
    refuse_strange_values(by_key, walked.rows, walked.text)


@pytest.mark.parametrize("seed", range(3))
def test_walk_of_a_table_ends_with_its_rows(seed):
    refuse_wrong_walk(seed, n_acts=5)


@pytest.mark.grid
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_long_walks_of_a_table_end_with_its_rows(first):
    for seed in range(first, first + 20):
        refuse_wrong_walk(seed, n_acts=10)
