"""The batches of a run over a source that the test holds."""

import threading

import pytest

from ebbtide.runtime._batches import Query
from ebbtide.runtime._following import Following


class Source:
    """Plans batches up to what the test says is there."""

    def __init__(self, end=0):
        self.end = end

    def after(self, before):
        return {"end": self.end}


def query(source, step, between=None, *, number=0, read=None):
    """A run that goes on where `between` is given, and ends where it sets `stop`."""
    stop = threading.Event()
    following = None
    if between is not None:
        following = Following(interval_ms=0)
    return Query(None, source, number, read, step, stop, lambda: 7, following, lambda: between(stop))


def test_run_makes_a_batch_whenever_there_is_more_to_read():
    source = Source(1)
    made, looks = [], []

    def between(stop):
        looks.append(len(made))
        if len(looks) == 5:
            source.end = 2
        if len(looks) == 10:
            stop.set()

    numbers = list(query(source, made.append, between).made())
    assert numbers == [0, 1]
    assert [(batch.number, batch.end, batch.planned_ms) for batch in made] == [(0, {"end": 1}, 7), (1, {"end": 2}, 7)]
    assert looks == [1] * 5 + [2] * 5


def test_run_goes_on_behind_the_last_step():
    made = []
    assert list(query(Source(5), made.append, number=3, read={"end": 5}).made()) == []
    assert list(query(Source(6), made.append, number=3, read={"end": 5}).made()) == [3]
    assert [batch.end for batch in made] == [{"end": 6}]


def test_first_batch_is_made_whatever_there_is_to_read():
    made = []
    assert list(query(Source(0), made.append).made()) == [0]


def test_batch_that_fails_is_the_next_one_still():
    def die(batch):
        raise KeyboardInterrupt

    batches = query(Source(1), die)
    with pytest.raises(KeyboardInterrupt):
        list(batches.made())
    assert (batches.number, batches.read) == (0, None)
