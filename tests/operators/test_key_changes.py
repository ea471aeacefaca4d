"""Updates that change a row's key and leave values out, arriving in any order: the values are found under the old keys."""

import itertools
import json
import random

import pytest
from frame.stored_names import OP_DELETE, OP_SNAPSHOT, OP_UPSERT
from frame.thinned import thinned
from local.support import UNAVAILABLE as KEPT
from local.support import OnlyTouchedKeys, envelope, record, spec

from ebbtide.changelog import UNKNOWN
from ebbtide.operators._sequence.log import AwaitedRow, Event, KeyChange, Known, play
from ebbtide.testing import MemoryPipeline

STORED = -1


WHOLE_STATE = pytest.param(MemoryPipeline, marks=pytest.mark.model)
"""With all entries at hand; that with the touched ones alone is the harder case."""
PIPELINES = pytest.mark.parametrize("kind", [WHOLE_STATE, OnlyTouchedKeys])
SPEC = spec("id BIGINT NOT NULL, notes STRING")


def event(op, lsn, key=1, notes=None, *, was=None):
    after = None if op == "d" else {"id": key, "notes": notes}
    before = {"id": key if was is None else was} if op == "d" or was is not None else None
    return record(envelope(op, lsn, before=before, after=after))


def moved(lsn, old, new):
    return event("u", lsn, new, KEPT, was=old)


LOGS = {
    "there and back": ([event("c", 1, 1, "x"), moved(5, 1, 2), moved(6, 2, 1)], {1: "x"}),
    "along four keys": ([event("c", 1, 1, "x"), moved(5, 1, 2), moved(6, 2, 3), moved(7, 3, 4)], {4: "x"}),
    "swapped through a third": (
        [event("c", 1, 1, "one"), event("c", 2, 2, "two"), moved(5, 1, 9), moved(6, 2, 1), moved(7, 9, 2)],
        {1: "two", 2: "one"},
    ),
    "followed by another row": (
        [event("c", 1, 1, "first"), moved(5, 1, 2), event("c", 6, 1, "second")],
        {1: "second", 2: "first"},
    ),
    "changed, then deleted": ([event("c", 1, 1, "x"), moved(5, 1, 2), event("d", 6, 2)], {}),
    "turned around": (
        [
            *(event("c", n, n, name) for n, name in ((1, "a"), (2, "b"), (3, "c"))),
            *(moved(5, 1, 9), moved(6, 2, 1), moved(7, 3, 2), moved(8, 9, 3)),
        ],
        {1: "b", 2: "c", 3: "a"},
    ),
}


def sent_as_two(lsn, old, new, notes=KEPT):
    """Makes a change of the key as a delete and a create, each with a header that names the other key."""
    gone = envelope("d", lsn, before={"id": old})
    come = envelope("c", lsn, after={"id": new, "notes": notes})
    return [
        record(gone, new_key=json.dumps({"id": new})),
        record(come, old_key=json.dumps({"id": old})),
    ]


SENT_AS_TWO = {
    "followed by another row": (
        [event("c", 1, 1, "first"), *sent_as_two(5, 1, 2), event("c", 6, 1, "second")],
        {1: "second", 2: "first"},
    ),
    "there and back": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2), *sent_as_two(6, 2, 1)], {1: "x"}),
    "along three keys": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2), *sent_as_two(7, 2, 3)], {3: "x"}),
    "with its value": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2, "new"), event("u", 6, 2, KEPT)], {2: "new"}),
}


def notes(pipeline):
    assert pipeline.quarantine == []
    return {row["id"]: row["notes"] for row in pipeline.rows()}


def refuse_wrong_rows(kind, events, want, n_orders):
    """Reads events one by one, in about so many of their orders; each must end with the same rows."""
    orders = list(itertools.permutations(events))
    for order in orders[:: max(1, len(orders) // n_orders)]:
        pipeline = kind(SPEC)
        for each in order:
            pipeline.step([each])
        assert notes(pipeline) == want, [json.loads(json.loads(each)["value"]) for each in order]


@PIPELINES
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("n_orders", [3, pytest.param(60, marks=pytest.mark.grid)])
def test_values_left_out_are_found_in_every_order_of_arrival(kind, log, n_orders):
    refuse_wrong_rows(kind, *LOGS[log], n_orders=n_orders)


@PIPELINES
@pytest.mark.parametrize("log", SENT_AS_TWO)
@pytest.mark.parametrize("n_orders", [3, pytest.param(20, marks=pytest.mark.grid)])
def test_values_that_a_create_leaves_out_are_found_in_every_order_of_arrival(kind, log, n_orders):
    refuse_wrong_rows(kind, *SENT_AS_TWO[log], n_orders=n_orders)


def last_entry(pipeline, key):
    found = [entry for entry in pipeline.state.to_pylist() if entry["id"] == key]
    return max(found, key=lambda entry: entry["_step"])


def test_row_that_was_followed_is_kept_until_it_is_known_to_have_left():
    pipeline = MemoryPipeline(SPEC)
    pipeline.step([event("c", 1, 1, "one"), event("c", 2, 2, "two")])
    pipeline.step([moved(6, 2, 1)])
    kept = last_entry(pipeline, 1)["_kept"]
    assert (kept["row"]["notes"], kept["sequence"], kept["until"]) == ("one", {"_lsn": 1}, {"_lsn": 6})
    pipeline.step([event("d", 4, 1)])
    assert (last_entry(pipeline, 1)["_kept"], notes(pipeline)) == (None, {1: "two"})


@pytest.mark.parametrize("place", range(5))
def test_kept_row_is_the_last_that_had_the_key_where_each_key_s_changes_come_in_order(place):
    gone, come = sent_as_two(5, 1, 2)
    of_old_key = [event("c", 1, 1, "a"), event("d", 2, 1), event("c", 3, 1, "b"), gone]
    pipeline = MemoryPipeline(SPEC)
    for each in (*of_old_key[:place], come, *of_old_key[place:]):
        pipeline.step([each])
    assert notes(pipeline) == {2: "b"}


KEYS = (1, 2, 3)


def history(chance, n_changes):
    """Makes a log of creates, updates, deletes and changes of the key; returns each key's records in order, and the last rows."""
    rows, partitions = {}, {key: [] for key in KEYS}
    for lsn in range(1, n_changes + 1):
        key, other = chance.sample(KEYS, 2)
        value = chance.choice([KEPT, f"v{lsn}"])
        operation = chance.choice(["update", "delete", "move", "move"])
        if key not in rows:
            rows[key] = f"v{lsn}"
            partitions[key].append(event("c", lsn, key, rows[key]))
        elif operation == "delete":
            del rows[key]
            partitions[key].append(event("d", lsn, key))
        elif operation == "update":
            rows[key] = rows[key] if value == KEPT else value
            partitions[key].append(event("u", lsn, key, value))
        elif other not in rows:
            was = rows.pop(key)
            rows[other] = was if value == KEPT else value
            gone, come = sent_as_two(lsn, key, other, value)
            partitions[key].append(gone)
            partitions[other].append(come)
    return partitions, rows


@pytest.mark.parametrize("seed", thinned(range(60), 6))
def test_rows_are_right_however_far_the_partitions_of_their_keys_are_read(seed):
    chance = random.Random(seed)
    partitions, rows = history(chance, n_changes=12)
    kind = (MemoryPipeline, OnlyTouchedKeys)[seed // 6 % 2]
    pipeline = kind(SPEC)
    while any(partitions.values()):
        step = []
        for records in partitions.values():
            n_read = chance.choice([0, 0, 1, 2])
            step += records[:n_read]
            del records[:n_read]
        pipeline.step(step)
    assert notes(pipeline) == rows


@pytest.mark.parametrize("late", ["delete", "create"])
def test_deleted_row_is_kept_until_it_has_come_under_its_new_key(late):
    gone, come = sent_as_two(5, 1, 2)
    pipeline = MemoryPipeline(SPEC)
    pipeline.step([event("c", 1, 1, "one")])
    first, last = (gone, come) if late == "create" else (come, gone)
    pipeline.step([first])
    if late == "create":
        kept = last_entry(pipeline, 1)["_kept"]
        assert (kept["row"]["notes"], kept["sequence"], kept["until"]) == ("one", {"_lsn": 1}, {"_lsn": 5})
    pipeline.step([last])
    assert (notes(pipeline), last_entry(pipeline, 1)["_kept"], last_entry(pipeline, 1)["_tombstone"]) == (
        {2: "one"},
        None,
        True,
    )
    for again in ([gone, come], [gone], [come]):
        pipeline.step(again)
        assert (notes(pipeline), last_entry(pipeline, 1)["_kept"]) == ({2: "one"}, None)


@PIPELINES
@pytest.mark.parametrize("ticks", [False, True])
def test_value_found_before_the_delete_stays_where_the_delete_never_comes(kind, ticks):
    pipeline = kind(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([event("c", 1, 1, "one")], now_ms=0)
    _, come = sent_as_two(5, 1, 2)
    pipeline.step([come], now_ms=0)
    assert (notes(pipeline)[2], pipeline.metrics["pending_key_changes"]) == ("one", 0)
    if ticks:
        pipeline.tick(now_ms=100)
    pipeline.step([event("u", 6, 2, KEPT)], now_ms=100)
    pipeline.step([event("u", 7, 2, KEPT)], now_ms=101)
    assert notes(pipeline)[2] == "one"


def test_deleted_row_that_goes_nowhere_is_not_kept():
    pipeline = MemoryPipeline(SPEC)
    pipeline.step([event("c", 1, 1, "one")])
    pipeline.step([event("d", 5, 1)])
    assert last_entry(pipeline, 1)["_kept"] is None


def test_deleted_row_is_kept_no_longer_than_its_tombstone():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([event("c", 1, 1, "one")], now_ms=0)
    gone, come = sent_as_two(5, 1, 2)
    pipeline.step([gone], now_ms=0)
    pipeline.tick(now_ms=100)
    assert last_entry(pipeline, 1)["_removed"]
    pipeline.step([come], now_ms=100)
    assert notes(pipeline) == {2: None}
    assert pipeline.metrics["waiting"] == 1


def test_row_created_again_and_again_without_a_delete_keeps_the_last_rows_only():
    pipeline = MemoryPipeline(SPEC)
    for lsn in range(1, 7):
        pipeline.step([event("c", lsn, 1, f"life {lsn}")])
    entry = last_entry(pipeline, 1)
    assert [row["row"]["notes"] for row in (*entry["_kept_before"], entry["_kept"])] == ["life 3", "life 4", "life 5"]


def test_late_change_of_the_old_key_reaches_a_row_that_has_found_its_value():
    gone, come = sent_as_two(30, 1, 2)
    first, late = event("c", 10, 1, "old"), event("u", 12, 1, "new")
    older, later_row = event("u", 11, 1, "between"), event("c", 40, 1, "another")
    orders = itertools.permutations([first, gone, come])
    afters = itertools.permutations([late, older, later_row])
    for order, after in itertools.islice(itertools.product(orders, afters), 0, None, 5):
        pipeline = OnlyTouchedKeys(SPEC)
        for each in (*order, *after):
            pipeline.step([each])
        assert notes(pipeline) == {1: "another", 2: "new"}


def test_row_is_linked_to_its_old_key_only_while_it_has_a_value_from_there():
    pipeline = MemoryPipeline(SPEC)
    for each in (event("c", 1, 1, "one"), *sent_as_two(5, 1, 2)):
        pipeline.step([each])
    entry = last_entry(pipeline, 2)
    assert (entry["_columns"], len(entry["_moved_from"])) == ([("notes", {"_lsn": 1})], 1)
    pipeline.step([event("u", 6, 2, "own")])
    entry = last_entry(pipeline, 2)
    assert (entry["_columns"], entry["_moved_from"]) == (None, None)


@PIPELINES
def test_row_is_kept_where_the_one_that_follows_it_brings_all_values(kind):
    log = [event("c", 1, 1, "a"), moved(2, 1, 2), event("c", 3, 9, "y"), event("u", 4, 1, "Y", was=9)]
    refuse_wrong_rows(kind, log, {1: "Y", 2: "a"}, n_orders=8)


@PIPELINES
def test_waiting_ends_with_the_time_to_live_and_is_counted(kind):
    pipeline = kind(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([moved(5, 1, 2)], now_ms=0)
    assert (notes(pipeline), pipeline.metrics["pending_key_changes"]) == ({2: None}, 1)
    pipeline.tick(now_ms=99)
    assert (pipeline.metrics["waiting_expired"], last_entry(pipeline, 2)["_moved_from"] is None) == (0, False)
    pipeline.tick(now_ms=100)
    assert (pipeline.metrics["waiting_expired"], last_entry(pipeline, 2)["_moved_from"]) == (1, None)
    pipeline.step([event("c", 1, 1, "late")], now_ms=101)
    assert notes(pipeline)[2] is None


@PIPELINES
def test_waiting_that_has_ended_is_not_read_before_the_tick_either(kind):
    pipeline = kind(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([moved(5, 1, 2)], now_ms=0)
    pipeline.step([event("c", 1, 1, "late")], now_ms=100)
    assert notes(pipeline)[2] is None


def test_sequences_of_two_columns_carry_values_along_too():
    of = spec("id BIGINT NOT NULL, a INT, b STRING, notes STRING", order={"sequence": ["a", "b"]})
    first = record(envelope("c", None, after={"id": 1, "a": 1, "b": "x", "notes": "long"}))
    change = {"before": {"id": 1}, "after": {"id": 2, "a": 1, "b": "y", "notes": KEPT}}
    moved_on = record(envelope("u", None, **change))
    for order in ([first, moved_on], [moved_on, first]):
        for steps in ([order], [[each] for each in order]):
            pipeline = MemoryPipeline(of)
            for step in steps:
                pipeline.step(step)
            assert notes(pipeline) == {2: "long"}


def log_of(n):
    """Return a row that changes its key n times, the value known at the first."""
    events = [Event(0, 3, 0, index=0, columns=("notes",))]
    for at in range(1, n):
        events.append(Event(at, 1, at - 1, is_delete=True, arrival=2 * at))
        events.append(Event(at, 3, at, index=at, arrival=2 * at + 1, old_key=at - 1, is_other_row=True))
    return events


class Counted(Event):
    """An event that counts how often it is looked at."""

    looks = 0

    def __getattribute__(self, name):
        Counted.looks += 1
        return super().__getattribute__(name)


def looks_at(n):
    Counted.looks = 0
    names = ("sequence", "phase", "key", "index", "columns", "arrival", "old_key", "is_other_row", "is_delete")
    played = play([Counted(**{name: getattr(each, name) for name in names}) for each in log_of(n)])
    assert played.rows[n - 1].values["notes"].event == 0
    return Counted.looks


def test_work_over_changed_keys_doubles_with_their_number():
    once, twice = looks_at(2_000), looks_at(4_000)
    assert twice < 2.1 * once


OLD, NEW = 1, 2
MOVED = 5


def of_snapshot(key, index, arrival, read_ms=None):
    return Event(0, OP_SNAPSHOT, key, index, ("v",), arrival, is_snapshot=True, event_ms=read_ms)


def of_create(key, sequence, index=UNKNOWN, arrival=0):
    columns = () if index == UNKNOWN else ("v",)
    return Event(sequence, OP_UPSERT, key, index, columns, arrival, is_other_row=True)


MOVED_MS = 100


def of_move(arrival, event_ms=MOVED_MS):
    """Makes both parts of a change of the key that did not carry `v`: the delete of the old key, and the new one."""
    gone = Event(MOVED, OP_DELETE, OLD, arrival=arrival, is_delete=True, event_ms=event_ms)
    return [
        gone,
        Event(MOVED, OP_UPSERT, NEW, 90, (), arrival, old_key=OLD, is_other_row=True, event_ms=event_ms),
    ]


@pytest.mark.parametrize(
    ("events", "value"),
    [
        ([of_snapshot(OLD, 10, 0), *of_move(1)], Known(10, 0)),
        ([of_snapshot(OLD, 10, 0, 101), *of_move(1)], None),
        ([of_snapshot(OLD, 10, 1), *of_move(0)], None),
        ([of_snapshot(OLD, 10, 1, 99), *of_move(0)], Known(10, 0, 99)),
        ([of_snapshot(OLD, 10, 1, 99), *of_move(0, None)], None),
        ([of_snapshot(OLD, 10, STORED), *of_move(0)], Known(10, 0)),
        ([of_create(OLD, 3, 10), *of_move(STORED)], Known(10, 3)),
        ([of_snapshot(NEW, 20, 0), *of_move(1)], None),
        ([of_snapshot(NEW, 20, 0, 101), *of_move(1)], Known(20, 0, 101, is_unplaced=True)),
        ([of_snapshot(NEW, 20, 0, 101), of_create(OLD, 3, 10), *of_move(1)], Known(10, 3)),
        ([of_snapshot(NEW, 20, 1), *of_move(0)], Known(20, 0)),
        ([of_snapshot(NEW, 20, 1, 99), *of_move(0)], None),
        ([of_create(NEW, 3, 20), *of_move(1)], None),
    ],
    ids=[
        "came before the move",
        "came before the move, read after it",
        "came after the move",
        "came after the move, read before it",
        "came after the move, at times unknown",
        "stored before the move",
        "of the log",
        "of the new key, came before the move",
        "of the new key, came before the move, read after it",
        "of the new key, known under the old",
        "of the new key, came after the move",
        "of the new key, came after the move, read before it",
        "of another row under the new key",
    ],
)
def test_value_that_a_move_did_not_carry_is_that_of_the_row_it_moved(events, value):
    for order in itertools.permutations(events):
        assert play(list(order)).rows[NEW].values.get("v") == value


def test_value_is_that_of_the_row_that_has_the_old_key_where_its_delete_has_not_come():
    create = of_create(OLD, 3, 10)
    _, move = of_move(1)
    assert play([create, move]).rows[NEW].values == {"v": Known(10, 3)}
    earlier = Event(MOVED - 1, OP_DELETE, OLD, is_delete=True)
    again = of_create(OLD, MOVED - 1, 11)
    assert play([create, earlier, again, move]).rows[NEW].values == {"v": Known(11, MOVED - 1)}
    later = Event(MOVED + 1, OP_DELETE, OLD, is_delete=True)
    assert play([create, move, later]).rows[NEW].values == {"v": Known(10, 3)}


def test_row_that_has_left_gives_nothing_to_the_next_though_only_a_later_delete_is_known():
    events = [of_create(OLD, 3, 10), of_move(1)[1], Event(MOVED + 2, OP_DELETE, OLD, is_delete=True, new_key=UNKNOWN)]
    assert play(events).kept[OLD] == [AwaitedRow(UNKNOWN, MOVED + 2, {}, has_left=True)]


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        (of_create(NEW, 3, 10), [AwaitedRow(3, 7, {"v": Known(10, 3)}, started=3)]),
        (of_create(NEW, 7, 10), None),
        (of_create(NEW, 3), None),
        (of_snapshot(NEW, 10, 0), None),
    ],
    ids=["of the log", "at the same sequence", "nothing known of it", "of a snapshot"],
)
def test_row_that_another_follows_is_kept_if_its_change_of_key_may_yet_come(before, kept):
    assert play([before, of_create(NEW, 7, 11, arrival=1)]).kept.get(NEW) == kept


def test_row_that_did_not_come_from_another_key_has_no_change_of_it():
    assert play([of_create(NEW, 3, 20)]).rows[NEW].change is None
    _, move = of_move(1)
    assert play([of_create(OLD, 3, 10), move]).rows[NEW].change == KeyChange(MOVED, OLD, event_ms=MOVED_MS)
