"""The batches of a run, over a checkpoint in files and a source that the test holds."""

import json
import threading
from types import SimpleNamespace

import pytest

from ebbtide.delta import Writer
from ebbtide.ledger import Checkpoint
from ebbtide.runtime._batches import Query
from ebbtide.runtime._following import Following


class CountedCheckpoint(Checkpoint):
    """A checkpoint that counts how often its folder is searched for the last batch."""

    looks: int

    def last_planned(self):
        object.__setattr__(self, "looks", self.looks + 1)
        return super().last_planned()


class Source:
    """Plans batches up to what the test says is there."""

    def __init__(self, end=0):
        self.end = end

    def after(self, before):
        return {"end": self.end}


@pytest.fixture
def checkpoint(tmp_path):
    counted = CountedCheckpoint(str(tmp_path / "checkpoint"))
    object.__setattr__(counted, "looks", 0)
    return counted


def query(checkpoint, source, step, between=None):
    """A run that goes on where `between` is given, and ends where it sets `stop`."""
    stop = threading.Event()
    following = None
    if between is not None:
        following = Following(interval_ms=0)
    plan = SimpleNamespace(checkpoint=checkpoint)
    return Query(plan, source, step, stop, lambda: 7, following, lambda: between(stop))


def ends(checkpoint):
    return [checkpoint.offsets(batch).source["end"] for batch in range(checkpoint.last_planned() + 1)]


def test_run_lists_the_checkpoint_once_however_many_batches_it_makes(checkpoint):
    source = Source(1)
    rounds = []

    def between(stop):
        rounds.append(checkpoint.looks)
        if len(rounds) == 5:
            source.end = 2
        if len(rounds) == 10:
            stop.set()

    made = query(checkpoint, source, lambda batch: None, between).made()
    assert list(made) == [0, 1]
    assert rounds == [1] * 10
    assert ends(checkpoint) == [1, 2]


def test_batch_that_was_planned_by_a_process_that_died_is_made_by_the_next(checkpoint):
    def die(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(query(checkpoint, Source(1), die).made())
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (0, None)
    made = []
    list(query(checkpoint, Source(5), made.append).made())
    assert made == [0, 1]
    assert ends(checkpoint) == [1, 5], "the open batch is made as it was planned"


def test_batch_of_another_process_that_went_on_is_not_planned_otherwise(checkpoint):
    """A step checks the lease, and is refused then; what the other process has planned stands."""
    source = Source(1)
    asked = []

    def between(stop):
        Checkpoint(checkpoint.path).plan(Writer(), 1, 9, json.dumps({"end": 2}))
        source.end = 3
        stop.is_set = lambda: bool(asked[1:])

    list(query(checkpoint, source, asked.append, between).made())
    assert asked == [0, 1]
    assert ends(checkpoint) == [1, 2]
