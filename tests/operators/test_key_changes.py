"""Updates that change a row's key and leave values out, arriving in any order: the values are found under the old keys."""

import itertools
import json
import random

import pytest
from frame.thinned import thinned
from frame.work import lines_run
from local.notes_log import KEPT, NOTES, PIPELINES, come_from, event, gone_to, moved, newest, notes, rows_by_order, run
from local.support import OnlyTouchedKeys, envelope, record, spec

from ebbtide.testing import MemoryPipeline

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
    return [gone_to(lsn, old, new), come_from(lsn, old, new, notes)]


SENT_AS_TWO = {
    "followed by another row": (
        [event("c", 1, 1, "first"), *sent_as_two(5, 1, 2), event("c", 6, 1, "second")],
        {1: "second", 2: "first"},
    ),
    "there and back": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2), *sent_as_two(6, 2, 1)], {1: "x"}),
    "along three keys": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2), *sent_as_two(7, 2, 3)], {3: "x"}),
    "with its value": ([event("c", 1, 1, "x"), *sent_as_two(5, 1, 2, "new"), event("u", 6, 2, KEPT)], {2: "new"}),
}


def refuse_wrong_rows(kind, events, want, n_orders=60):
    """Reads events one by one, in about so many of their orders; each must end with the same rows."""
    orders = list(itertools.permutations(events))
    some = orders[:: max(1, len(orders) // n_orders)]
    for order, rows in zip(some, rows_by_order(NOTES, some, kind), strict=True):
        found = {row["id"]: row["notes"] for row in rows}
        assert found == want, [json.loads(json.loads(each)["value"]) for each in order]


@PIPELINES
@pytest.mark.parametrize("log", LOGS)
def test_values_left_out_are_found_in_every_order_of_arrival(kind, log):
    refuse_wrong_rows(kind, *LOGS[log])


@PIPELINES
@pytest.mark.parametrize("log", SENT_AS_TWO)
def test_values_that_a_create_leaves_out_are_found_in_every_order_of_arrival(kind, log):
    refuse_wrong_rows(kind, *SENT_AS_TWO[log])


def test_row_that_was_followed_is_kept_until_it_is_known_to_have_left():
    pipeline = MemoryPipeline(NOTES)
    pipeline.step([event("c", 1, 1, "one"), event("c", 2, 2, "two")])
    pipeline.step([moved(6, 2, 1)])
    kept = newest(pipeline, 1)["_kept"]
    assert (kept["row"]["notes"], kept["sequence"], kept["until"]) == ("one", {"_lsn": 1}, {"_lsn": 6})
    pipeline.step([event("d", 4, 1)])
    assert (newest(pipeline, 1)["_kept"], notes(pipeline)) == (None, {1: "two"})


@pytest.mark.parametrize("place", range(5))
def test_kept_row_is_the_last_that_had_the_key_where_each_key_s_changes_come_in_order(place):
    gone, come = sent_as_two(5, 1, 2)
    of_old_key = [event("c", 1, 1, "a"), event("d", 2, 1), event("c", 3, 1, "b"), gone]
    pipeline = MemoryPipeline(NOTES)
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
    pipeline = kind(NOTES)
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
    pipeline = MemoryPipeline(NOTES)
    pipeline.step([event("c", 1, 1, "one")])
    first, last = (gone, come) if late == "create" else (come, gone)
    pipeline.step([first])
    if late == "create":
        kept = newest(pipeline, 1)["_kept"]
        assert (kept["row"]["notes"], kept["sequence"], kept["until"]) == ("one", {"_lsn": 1}, {"_lsn": 5})
    pipeline.step([last])
    assert (notes(pipeline), newest(pipeline, 1)["_kept"], newest(pipeline, 1)["_tombstone"]) == (
        {2: "one"},
        None,
        True,
    )
    for again in ([gone, come], [gone], [come]):
        pipeline.step(again)
        assert (notes(pipeline), newest(pipeline, 1)["_kept"]) == ({2: "one"}, None)


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
    pipeline = MemoryPipeline(NOTES)
    pipeline.step([event("c", 1, 1, "one")])
    pipeline.step([event("d", 5, 1)])
    assert newest(pipeline, 1)["_kept"] is None


def test_deleted_row_is_kept_no_longer_than_its_tombstone():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([event("c", 1, 1, "one")], now_ms=0)
    gone, come = sent_as_two(5, 1, 2)
    pipeline.step([gone], now_ms=0)
    pipeline.tick(now_ms=100)
    assert newest(pipeline, 1)["_removed"]
    pipeline.step([come], now_ms=100)
    assert notes(pipeline) == {2: None}
    assert pipeline.metrics["waiting"] == 1


def test_row_created_again_and_again_without_a_delete_keeps_the_last_rows_only():
    pipeline = MemoryPipeline(NOTES)
    for lsn in range(1, 7):
        pipeline.step([event("c", lsn, 1, f"life {lsn}")])
    entry = newest(pipeline, 1)
    assert [row["row"]["notes"] for row in (*entry["_kept_before"], entry["_kept"])] == ["life 3", "life 4", "life 5"]


def test_late_change_of_the_old_key_reaches_a_row_that_has_found_its_value():
    gone, come = sent_as_two(30, 1, 2)
    first, late = event("c", 10, 1, "old"), event("u", 12, 1, "new")
    older, later_row = event("u", 11, 1, "between"), event("c", 40, 1, "another")
    befores = itertools.permutations([first, gone, come])
    afters = itertools.permutations([late, older, later_row])
    orders = [(*before, *after) for before, after in itertools.product(befores, afters)]
    for rows in rows_by_order(NOTES, orders, OnlyTouchedKeys):
        assert rows == [{"id": 1, "notes": "another"}, {"id": 2, "notes": "new"}]


def test_row_is_linked_to_its_old_key_only_while_it_has_a_value_from_there():
    pipeline = MemoryPipeline(NOTES)
    for each in (event("c", 1, 1, "one"), *sent_as_two(5, 1, 2)):
        pipeline.step([each])
    entry = newest(pipeline, 2)
    assert (entry["_columns"], len(entry["_moved_from"])) == ([("notes", {"_lsn": 1})], 1)
    pipeline.step([event("u", 6, 2, "own")])
    entry = newest(pipeline, 2)
    assert (entry["_columns"], entry["_moved_from"]) == (None, None)


@PIPELINES
def test_row_is_kept_where_the_one_that_follows_it_brings_all_values(kind):
    log = [event("c", 1, 1, "a"), moved(2, 1, 2), event("c", 3, 9, "y"), event("u", 4, 1, "Y", was=9)]
    refuse_wrong_rows(kind, log, {1: "Y", 2: "a"})


@PIPELINES
def test_waiting_ends_with_the_time_to_live_and_is_counted(kind):
    pipeline = kind(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([moved(5, 1, 2)], now_ms=0)
    assert (notes(pipeline), pipeline.metrics["pending_key_changes"]) == ({2: None}, 1)
    pipeline.tick(now_ms=99)
    assert (pipeline.metrics["waiting_expired"], newest(pipeline, 2)["_moved_from"] is None) == (0, False)
    pipeline.tick(now_ms=100)
    assert (pipeline.metrics["waiting_expired"], newest(pipeline, 2)["_moved_from"]) == (1, None)
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


def test_work_over_changed_keys_doubles_with_their_number():
    def work_over(n):
        log = [event("c", 1, 1, "x"), *(moved(key + 1, key, key + 1) for key in range(1, n))]
        pipeline = MemoryPipeline(NOTES)
        n_lines = lines_run("ebbtide/operators/", lambda: pipeline.step(log))
        assert notes(pipeline) == {n: "x"}
        return n_lines

    assert work_over(800) < 2.1 * work_over(400)


def read(key, ms):
    """A row that a snapshot read at a time."""
    return event("r", None, key, "read", ts_ms=ms)


MOVE = event("u", 5, 2, KEPT, was=1, ts_ms=100)
MOVE_WITHOUT_TIME = event("u", 5, 2, KEPT, was=1, ts_ms=None)
MADE = event("c", 3, 1, "made")
OF_THE_ROW_MOVED = {
    "read": ([read(1, None), MOVE], "read"),
    "read, after the move": ([read(1, 101), MOVE], None),
    "read, came after the move": ([MOVE, read(1, None)], None),
    "read before the move, came after it": ([MOVE, read(1, 99)], "read"),
    "read, came after the move, at times unknown": ([MOVE_WITHOUT_TIME, read(1, 99)], None),
    "made": ([MADE, MOVE], "made"),
    "made, came after the move": ([MOVE, MADE], "made"),
    "read under the new key": ([read(2, None), MOVE], None),
    "read under the new key, after the move": ([read(2, 101), MOVE], "read"),
    "read under the new key, made under the old": ([read(2, 101), MADE, MOVE], "made"),
    "read under the new key, came after the move": ([MOVE, read(2, None)], "read"),
    "read under the new key before the move, came after it": ([MOVE, read(2, 99)], None),
    "made under the new key": ([event("c", 3, 2, "other"), MOVE], None),
    "made, its delete has not come": ([MADE, come_from(5, 1, 2)], "made"),
    "made, a later delete has come": ([MADE, come_from(5, 1, 2), event("d", 6)], "made"),
    "made again, its delete has not come": ([MADE, event("d", 4), event("c", 4, 1, "again"), come_from(5, 1, 2)], "again"),
}  # fmt: skip


@pytest.mark.parametrize(("came", "value"), OF_THE_ROW_MOVED.values(), ids=OF_THE_ROW_MOVED)
@pytest.mark.parametrize("together", [True, False], ids=["one step", "a step each"])
def test_value_that_a_move_did_not_carry_is_that_of_the_row_it_moved(came, value, together):
    pipeline = run(*([came] if together else came))
    assert notes(pipeline)[2] == value


def test_row_that_has_left_gives_nothing_to_the_next_though_only_a_later_delete_is_known():
    pipeline = run([MADE, come_from(5, 1, 2), gone_to(7, 1, 3)], come_from(7, 1, 3))
    assert notes(pipeline) == {2: "made", 3: None}


@pytest.mark.parametrize(
    ("before", "since"),
    [(event("c", 3, 1, "x"), {"_lsn": 3}), (event("c", 7, 1, "x"), None), (read(1, None), None)],
    ids=["of the log", "at the same sequence", "of a snapshot"],
)
def test_row_that_another_follows_is_kept_if_its_change_of_key_may_yet_come(before, since):
    kept = newest(run(before, event("c", 7, 1, "next")))["_kept"]
    assert (kept and kept["started"]) == since
