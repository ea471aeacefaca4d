"""Changes of keys that leave values out: the sink is the database's table, in whatever order the records of a history come."""

import random

import pytest
from oracles.arrival_orders import History, arrivals, blinding, parsed, random_history, sent_and_shown

SHORT = [
    "c1 u1:v m1>2",
    "c1 u1:v u1:w k1>2",
    "c1 k1>2 u2:v k2>1",
    "c1 t c1 k1>2",
    "c1 m1>2 c1 d2",
    "c1 u1:v k1>2 c1 d1",
]
"""Histories of at most 5 records; see `arrival_orders.parsed`."""
LONG = [
    "c1 u1:v m1>2 m2>3",
    "c1 m1>2:v u2:w m2>3",
    "c1 u1:v k1>2 u2:w k2>3",
    "c1 u1:v m1>2 u2:v u2:w",
    "c1 u1:v k1>2 u2:w k2>3 u3:",
    "c1 k1>2 k2>3 k3>1 u1:v",
    "c1 m1>2 m2>1",
    "c1 u1:w m1>2 m2>1",
    "c1 c2 k1>3 k2>1 k3>2",
    "c1 c2 u1:v k1>3 k2>1 k3>2",
    "c1 c2 u1:v u2:w k1>3 k2>1 k3>2",
    "c1 c2 u1:v m1>3 k2>1",
    "c1 u1:v m1>2 c3 d3",
    "c1 u1:v m1>2 d2 c2",
    "c1 u1:v m1>2 c1 d1",
    "c1 u1:v m1>2 c1 u1:w",
    "c1 u1:v k1>2 c1 u1:w",
    "c1 u1:v k1>2 c1 k1>3 c1",
    "c1 u1:v k1>2 c1 u1:v k1>3 c1",
    "c1 k1>2 u2:v k2>3 c2 u2:w",
    "c1 u1:v k1>2 c1 u1:w k1>2",
    "c1 d1 c1 u1:v m1>2",
    "c1 u1:v m1>2 c1 m1>3",
    "c1 k1>2 c1 k1>3 c1 u2:v",
    "c1 u1:v m1>2 t",
    "c1 u1:v t c1 m1>2",
    "c1 t c1 u1:v m1>2",
    "c1 k1>2 t c2 u2:v k2>1",
]
"""Histories of at most 7 records."""


def refuse_unlike_database(text, most_at_once):
    """Read a history in every order of arrival, and in steps of up to so many records; each must end with the database's rows.

    Where a record came before one that it must not come before, see `blinding`, a row that has another value must wait.
    """
    ops = parsed(text)
    records, rows = sent_and_shown(ops)
    history = History(records, blinding(ops))
    for came, arrived in arrivals(history, most_at_once=most_at_once):
        without_value = {key for key, row in arrived.rows.items() if None in row.values()}
        assert without_value <= arrived.waiting, (text, arrived.order)
        if len(came) < len(records):
            continue
        ends = [arrived, *(history.after(arrived, (number,)) for number in range(len(records)))]
        for end in ends:
            waiting = end.waiting if arrived.is_blind else set()
            wrong = {key for key, row in end.rows.items() if row != rows.get(key)}
            assert end.rows.keys() == rows.keys(), (text, end.order)
            assert wrong <= waiting == end.waiting, (text, end.order)


@pytest.mark.parametrize("text", SHORT[:2])
def test_sink_is_the_database_s_table_in_every_order_of_arrival(text):
    refuse_unlike_database(text, most_at_once=1)


@pytest.mark.parametrize("text", SHORT[:1])
def test_sink_is_the_database_s_table_wherever_steps_are_cut(text):
    refuse_unlike_database(text, most_at_once=4)


@pytest.mark.grid
@pytest.mark.parametrize("text", [*SHORT[2:], *LONG])
def test_sink_is_the_database_s_table_in_every_order_of_arrival_of_long_histories(text):
    refuse_unlike_database(text, most_at_once=1)


@pytest.mark.grid
@pytest.mark.parametrize("text", [*SHORT, *LONG[:6], *LONG[18:21]])
def test_sink_is_the_database_s_table_wherever_steps_of_long_histories_are_cut(text):
    refuse_unlike_database(text, most_at_once=3)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(40))
def test_sink_is_the_database_s_table_in_every_order_of_arrival_of_random_histories(seed):
    refuse_unlike_database(random_history(random.Random(seed), most_records=7), most_at_once=1)
