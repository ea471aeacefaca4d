"""Arrival mode with every option, beside the reference histories: the sink, what is stored, what is emitted record by record."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local.support import change, envelope, plain, record
from local.support import spec as debezium
from oracles.reference import Histories
from plans import operator_of

from ebbtide.changelog import changelog_schema
from ebbtide.entries import Step
from ebbtide.operators import ArrivalOperator
from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, u INT, n INT, at TIMESTAMP"
SCHEMA_OF_ONE = pa.schema([("id", pa.int64())])
SCHEMA_OF_TWO = pa.schema([("id", pa.int64()), ("n", pa.int64())])
TTL, GRACE = 100, 30


@st.composite
def options(draw):
    """(spec, arguments of the reference, by event time)."""
    by_event, upsert_key = draw(st.booleans()), draw(st.booleans())
    ttl = draw(st.sampled_from([None, "ON_CREATE_AND_WRITE", "ON_CREATE"]))
    deletes, grace = ttl is not None and draw(st.booleans()), draw(st.booleans())
    max_history, first = draw(st.sampled_from([None, 1, 2])), draw(st.booleans())
    materializer = {
        "upsert_key": ["u"] if upsert_key else [],
        "on_expire": "delete" if deletes else "keep",
        "retraction_grace": f"{GRACE}ms" if grace else "0s",
        "max_history": max_history,
        "keep": "first" if first else "last",
        "emission": "every",
    }
    more = {}
    if ttl:
        clock = "EVENT_TIME" if by_event else "PROCESSING_TIME"
        more = {"ttl": {"ttl": f"{TTL}ms", "update_type": ttl, "time_characteristic": clock}, "event_time": "at"}
    spec = plain(SCHEMA, materializer=materializer, **more)
    reference = Histories(
        ["id"],
        TTL if ttl else None,
        upsert_key=["u"] if upsert_key else [],
        deletes=deletes,
        grace_ms=GRACE if grace else 0,
        max_history=max_history,
        first=first,
        keeps_stamp=ttl == "ON_CREATE",
    )
    return spec, reference, by_event and ttl is not None


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["+I", "+U", "-U", "-D"]),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 1),
        st.sampled_from([0, 70, 140]),
    ),
    max_size=7,
)
STEPS = st.lists(st.tuples(st.integers(0, 60), CHANGES, st.booleans()), max_size=8)
NEVER = -(2**62)


@given(options(), STEPS)
def test_every_option_equals_the_reference_step_by_step(given_options, steps):
    spec, histories, by_event = given_options
    pipeline, now, greatest = MemoryPipeline(spec), 0, NEVER
    for wait, changes, tick in steps:
        now += wait
        rows = [(kind, {"id": i, "u": u, "n": n, "at": at * 1000}, at) for kind, i, u, n, at in changes]
        clock = greatest if by_event else now
        histories.expire(clock, {(row["id"],) for _, row, _ in rows}, now_ms=now)
        pipeline.step([change(kind, **row) for kind, row, _ in rows], now_ms=now)
        for kind, row, at in rows:
            histories.apply(kind, row, at if by_event else now, now)
        if not histories.deletes:
            histories.expire(clock, now_ms=NEVER)  # what came late is not stored
        histories.end_step()
        agrees(pipeline, histories)
        greatest = max([greatest, *(at for *_, at in rows)])
        if tick:
            histories.expire(greatest if by_event else now, now_ms=now)
            pipeline.tick(now_ms=now)
            agrees(pipeline, histories)
            assert stored(pipeline, "live") == sorted(
                (row[2], text(json.loads(row[1]))) for rows in histories.rows.values() for row in rows
            )
            assert len(stored(pipeline, "waiting")) == sum(map(len, histories.waiting.values()))


def agrees(pipeline, histories):
    assert [text(row) for row in pipeline.rows()] == list(map(text, histories.shown()))
    sink = {}
    for row in sorted(pipeline.changelog, key=lambda row: [*row["_order"].values(), row["_number"]]):
        if not histories.deletes and histories.ttl_ms:
            break  # orphans stay
        assert (row["_kind"] == "+I") == (row["id"] not in sink)
        sink.pop(row["id"], None) if row["_kind"] == "-D" else sink.update({row["id"]: text(row)})
    else:
        assert [sink[key] for key in sorted(sink)] == [text(row) for row in pipeline.rows()]
    emitted = [(row["_kind"], text(row)) for row in pipeline.changelog]
    assert sorted(emitted) == sorted((kind, text(json.loads(row))) for kind, row in histories.emitted)
    for name in ("unmatched", "dropped", "cancelled"):
        assert pipeline.metrics[name] == getattr(histories, name)


def text(row):
    at = row["at"] if isinstance(row["at"], int) else round(row["at"].timestamp() * 1e6)
    return json.dumps([row["id"], row["u"], row["n"], at])


def stored(pipeline, role):
    newest = {(e["id"], e["_position"]): e for e in pipeline.state.sort_by("_step").to_pylist()}
    alive = [e for e in newest.values() if not e["_removed"] and e["_role"] == role]
    return sorted((e["_stamp_ms"], text(e)) for e in alive)


DEBEZIUM = {"order": "arrival", "materializer": {"emission": "every", "on_expire": "delete", "retraction_grace": "1ms"}}


def test_update_that_is_one_record_is_emitted_in_order():
    pipeline = MemoryPipeline(debezium(order="arrival", materializer={"emission": "every"}))
    pipeline.step([record(envelope("c", 1, after={"id": 1, "n": 1}), 0)])
    pipeline.step([record(envelope("u", 2, before={"id": 1, "n": 1}, after={"id": 1, "n": 2}), 1)])
    first, gone, new = pipeline.changelog
    assert [(row["_kind"], row["n"]) for row in (first, gone, new)] == [("+I", 1), ("-D", 1), ("+I", 2)]
    assert gone["_order"] == new["_order"]
    assert gone["_number"] < new["_number"]


def test_what_a_truncate_left_waiting_goes_with_its_time():
    spec = debezium(ttl="100ms", **DEBEZIUM)
    pipeline = MemoryPipeline(spec)
    lines = [envelope("c", 1, after={"id": 1, "n": 1}), envelope("d", 2, before={"id": 2, "n": 9}), envelope("t", 3)]
    for offset, event in enumerate(lines):
        pipeline.step([record(event, offset)])
    pipeline.tick(now_ms=500)
    newest = {(e["id"], e["_position"]): e for e in pipeline.state.sort_by("_step").to_pylist()}
    assert [e["_removed"] for e in newest.values()] == [True, True]
    assert pipeline.metrics["unmatched"] == 0


def test_retractions_that_wait_go_when_the_grace_is_switched_off():
    with_grace = plain(materializer={"retraction_grace": "1h"})
    pipeline = MemoryPipeline(with_grace)
    pipeline.step([change("-D", id=1, n=1)])
    pipeline.operator = operator_of(plain())
    pipeline.step([change("+I", id=1, n=1)])
    assert (pipeline.rows(), pipeline.metrics["unmatched"]) == ([{"id": 1, "n": 1}], 1)


def test_late_row_does_not_push_another_out_of_a_short_history():
    spec = plain(
        SCHEMA,
        ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"},
        event_time="at",
        materializer={"max_history": 1},
    )
    pipeline = MemoryPipeline(spec)
    rows = [{"id": 1, "u": 0, "n": n, "at": at * 1000} for n, at in ((0, 1000), (1, 800))]
    for each in rows:
        pipeline.step([change("+I", **each)])
    pipeline.step([change("-D", **rows[0])])
    assert (pipeline.metrics["dropped"], pipeline.metrics["late"], pipeline.metrics["unmatched"]) == (0, 1, 0)


def test_row_added_where_orphans_may_be_is_an_update():
    changes = changelog_schema(SCHEMA_OF_ONE)
    added = pa.Table.from_pylist([{"id": 1, "_kind": "+I", "_order": {"step": 2, "part": 0, "position": 0}}], changes)
    operator = ArrivalOperator(SCHEMA_OF_ONE, ("id",))
    kinds = [
        operator.apply(added, operator.schema.empty_table(), Step(2, 0, orphans=orphans)).entries["_change"].to_pylist()
        for orphans in (False, True)
    ]
    assert kinds == [["I"], ["U"]]


@pytest.mark.demand("sum-first-last")
def test_first_row_stays_shown_until_it_is_retracted_and_gives_place_to_the_next():
    pipeline = MemoryPipeline(plain(materializer={"keep": "first"}))
    shown = []
    for kind, n in (("+I", 1), ("+I", 2), ("-D", 9), ("-D", 1), ("-D", 2)):
        pipeline.step([change(kind, id=1, n=n)])
        shown.append([row["n"] for row in pipeline.rows()])
    assert shown == [[1], [1], [1], [2], []]


def added(key, n, u=0):
    return change("+I", id=key, u=u, n=n)


def retracted(key, n, u=0):
    return change("-D", id=key, u=u, n=n)


# Options, and steps of (now, changes; None: a tick), each with the entries that it writes (key, position, n, role, shown, removed,
# change, place of its cause, stamp), what it emits (kind, key, n, place, number), and its counts.
SCRIPTS = {
    "rows come and go": (
        {},
        [
            (
                (5, [added(1, 1), added(1, 2), added(2, 1)]),
                [
                    (1, 0, 1, "live", False, False, None, (1, 0), 5),
                    (1, 1, 2, "live", True, False, "I", (1, 1), 5),
                    (2, 0, 1, "live", True, False, "I", (1, 2), 5),
                ],
                [("+I", 1, 1, (1, 0), 0), ("+U", 1, 2, (1, 1), 1), ("+I", 2, 1, (1, 2), 2)],
                {"changes": 3, "inserted": 2},
            ),
            (
                (6, [retracted(1, 2)]),
                [
                    (1, 0, 1, "live", True, False, "U", (2, 0), 5),
                    (1, 1, 2, "gone", False, True, None, (1, 1), 5),
                ],
                [("+U", 1, 1, (2, 0), 0)],
                {"changes": 1, "updated": 1},
            ),
            (
                (7, [retracted(2, 1), added(3, 1), retracted(3, 1)]),
                [(2, 0, 1, "gone", False, True, "D", (3, 0), 5)],
                [("-D", 2, 1, (3, 0), 0), ("+I", 3, 1, (3, 1), 1), ("-D", 3, 1, (3, 2), 2)],
                {"changes": 3, "deleted": 1, "unchanged": 1},
            ),
            (
                (8, [added(2, 2), retracted(1, 9), retracted(1, 1), added(1, 1)]),
                [
                    (1, 0, 1, "gone", False, True, None, (2, 0), 5),
                    (2, 0, 2, "live", True, False, "I", (4, 0), 8),
                    (1, 3, 1, "live", True, False, None, (4, 3), 8),
                ],
                [("+I", 2, 2, (4, 0), 0), ("-D", 1, 1, (4, 2), 1), ("+I", 1, 1, (4, 3), 2)],
                {"changes": 4, "unmatched": 1, "inserted": 1, "unchanged": 1},
            ),
        ],
    ),
    "an upsert key, retractions that wait, short histories": (
        {"materializer": {"retraction_grace": "10ms", "max_history": 2, "upsert_key": ["u"]}},
        [
            (
                (5, [retracted(1, 1, u=1), added(1, 1, u=2)]),
                [
                    (1, 0, 1, "waiting", False, False, None, (1, 0), 5),
                    (1, 1, 1, "live", True, False, "I", (1, 1), 5),
                ],
                [("+I", 1, 1, (1, 1), 0)],
                {"changes": 2, "waiting": 1, "inserted": 1},
            ),
            (
                (6, [added(1, 1, u=1), added(1, 7, u=2)]),
                [
                    (1, 0, 1, "gone", False, True, None, (1, 0), 5),
                    (1, 1, 7, "live", True, False, "U", (2, 1), 6),
                ],
                [("+U", 1, 7, (2, 1), 0)],
                {"changes": 2, "cancelled": 1, "updated": 1},
            ),
            (
                (7, [retracted(2, 1, u=1)]),
                [(2, 0, 1, "waiting", False, False, None, (3, 0), 7)],
                [],
                {"changes": 1, "waiting": 1, "unchanged": 1},
            ),
            ((30, None), [(2, 0, 1, "gone", False, True, None, (3, 0), 7)], [], {"unmatched": 1}),
            (
                (31, [added(1, u, u) for u in (3, 4, 5)]),
                [
                    (1, 1, 7, "gone", False, True, None, (2, 1), 6),
                    (1, 3, 4, "live", False, False, None, (5, 1), 31),
                    (1, 4, 5, "live", True, False, "U", (5, 2), 31),
                ],
                [("+U", 1, 3, (5, 0), 0), ("+U", 1, 4, (5, 1), 1), ("+U", 1, 5, (5, 2), 2)],
                {"changes": 3, "dropped": 2, "updated": 1},
            ),
        ],
    ),
    "a time to live that deletes": (
        {"ttl": "100ms", "materializer": {"on_expire": "delete"}},
        [
            (
                (0, [added(1, 1), added(2, 1)]),
                [(key, 0, 1, "live", True, False, "I", (1, key - 1), 0) for key in (1, 2)],
                [("+I", key, 1, (1, key - 1), key - 1) for key in (1, 2)],
                {"changes": 2, "inserted": 2},
            ),
            (
                (50, [added(1, 2), added(2, 2), retracted(2, 2)]),
                [
                    (1, 0, 1, "live", False, False, None, (1, 0), 0),
                    (1, 1, 2, "live", True, False, "U", (2, 0), 50),
                ],
                [("+U", 1, 2, (2, 0), 0), ("+U", 2, 2, (2, 1), 1), ("+U", 2, 1, (2, 2), 2)],
                {"changes": 3, "updated": 1, "unchanged": 1},
            ),
            (
                (100, None),
                [
                    (1, 0, 1, "gone", False, True, None, (1, 0), 0),
                    (2, 0, 1, "gone", False, True, "D", (3, -1), 0),
                ],
                [("-D", 2, 1, (3, -1), 0)],
                {"expired": 2, "deleted": 1},
            ),
            (
                (150, [added(3, 1), added(1, 5)]),
                [
                    (1, 1, 2, "gone", False, True, None, (2, 0), 50),
                    (3, 0, 1, "live", True, False, "I", (4, 0), 150),
                    (1, 2, 5, "live", True, False, "U", (4, 1), 150),
                ],
                [("-D", 1, 2, (4, -1), 0), ("+I", 3, 1, (4, 0), 1), ("+I", 1, 5, (4, 1), 2)],
                {"changes": 2, "expired": 1, "inserted": 1, "updated": 1},
            ),
        ],
    ),
    "a time to live that leaves orphans": (
        {"ttl": "100ms"},
        [
            (
                (0, [added(1, 1), added(2, 1)]),
                [(key, 0, 1, "live", True, False, "U", (1, key - 1), 0) for key in (1, 2)],
                [("+I", key, 1, (1, key - 1), key - 1) for key in (1, 2)],
                {"changes": 2, "updated": 2},
            ),
            (
                (100, [retracted(1, 1), added(2, 5)]),
                [
                    (1, 0, 1, "gone", False, True, None, (1, 0), 0),
                    (2, 0, 1, "gone", False, True, None, (1, 1), 0),
                    (2, 1, 5, "live", True, False, "U", (2, 1), 100),
                ],
                [("+I", 2, 5, (2, 1), 0)],
                {
                    "changes": 2,
                    "expired": 2,
                    "unmatched": 1,
                    "unmatched_expired": 1,
                    "orphaned": 1,
                    "updated": 1,
                    "unchanged": 1,
                },
            ),
            (
                (150, [retracted(2, 5)]),
                [(2, 1, 5, "gone", False, True, "D", (3, 0), 100)],
                [("-D", 2, 5, (3, 0), 0)],
                {"changes": 1, "deleted": 1},
            ),
        ],
    ),
    "the first row of a short history": (
        {"materializer": {"keep": "first", "max_history": 1}},
        [
            (
                (0, [added(1, 1), added(1, 2)]),
                [
                    (1, 0, 1, "gone", True, False, "I", (1, 1), 0),
                    (1, 1, 2, "live", False, False, None, (1, 1), 0),
                ],
                [("+I", 1, 1, (1, 0), 0)],
                {"changes": 2, "dropped": 1, "inserted": 1},
            ),
            (
                (1, [added(1, 3)]),
                [
                    (1, 1, 2, "gone", False, True, None, (1, 1), 0),
                    (1, 2, 3, "live", False, False, None, (2, 0), 1),
                ],
                [],
                {"changes": 1, "dropped": 1, "unchanged": 1},
            ),
            (
                (2, [retracted(1, 3)]),
                [
                    (1, 0, 1, "gone", False, True, "D", (3, 0), 0),
                    (1, 2, 3, "gone", False, True, None, (2, 0), 1),
                ],
                [("-D", 1, 3, (3, 0), 0)],
                {"changes": 1, "deleted": 1},
            ),
        ],
    ),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_step_writes_emits_and_counts(script):
    options, steps = SCRIPTS[script]
    options = options | {"materializer": {"emission": "every"} | options.get("materializer", {})}
    pipeline = MemoryPipeline(plain("id BIGINT NOT NULL, u INT, n INT", **options))
    for number, ((now, changes), entries, emitted, counts) in enumerate(steps, 1):
        n_entries, n_emitted, before = len(pipeline.state), len(pipeline.changelog), pipeline.metrics.copy()
        pipeline.tick(now_ms=now) if changes is None else pipeline.step(changes, now_ms=now)
        names = ["id", "_position", "n", "_role", "_shown", "_removed", "_change", "_changed_by", "_stamp_ms"]
        written = pipeline.state.slice(n_entries).select(names).to_pylist()
        assert [tuple(map(place, row.values())) for row in written] == entries
        assert {*pipeline.state.slice(n_entries)["_step"].to_pylist()} <= {number}
        names = ["_kind", "id", "n", "_order", "_number"]
        assert [tuple(place(row[name]) for name in names) for row in pipeline.changelog[n_emitted:]] == emitted
        assert {name: n for name, n in (pipeline.metrics - before).items() if n} == counts


def place(value):
    return (value["step"], value["position"]) if isinstance(value, dict) else value


def test_row_added_where_the_sink_shows_one_that_has_left_its_history_is_emitted_as_an_update():
    spec = plain(
        "id BIGINT NOT NULL, n INT, at TIMESTAMP",
        event_time="at",
        ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"},
        materializer={"emission": "every", "on_expire": "delete", "keep": "first", "max_history": 1},
    )
    pipeline = MemoryPipeline(spec)
    pipeline.step([change("+I", id=key, n=n, at=at * 1000) for key in (1, 2) for n, at in ((1, 1000), (2, 900))])
    pipeline.tick(now_ms=0)
    pipeline.step([change("+I", id=key, n=3, at=1_010_000) for key in (1, 2)])
    assert [(row["_kind"], row["id"], row["n"]) for row in pipeline.changelog] == [
        *(("+I", 1, 1), ("+I", 2, 1), ("+U", 1, 3), ("+U", 2, 3))
    ]


def test_changes_apply_by_file_and_line_in_whatever_order_they_are_given():
    operator = ArrivalOperator(SCHEMA_OF_TWO, ("id",))
    places = [(0, 1), (0, 7), (1, 0), (1, 5), (2, 3)]
    changes = [
        {"id": 1, "n": n, "_kind": "+I", "_order": {"step": 2, "part": part, "position": line}}
        for n, (part, line) in enumerate(places)
    ]
    for order in ([4, 3, 2, 1, 0], [1, 3, 0, 4, 2]):
        table = pa.Table.from_pylist([changes[i] for i in order], changelog_schema(SCHEMA_OF_TWO))
        entries = operator.apply(table, operator.schema.empty_table(), Step(2, 0)).entries.to_pylist()
        assert [(entry["n"], entry["_position"]) for entry in entries] == [(n, n) for n in range(5)]
    above = operator.apply(table, operator.schema.empty_table(), Step(2, 0, floor=(2, 1, 0)))
    assert [entry["n"] for entry in above.entries.to_pylist()] == [3, 4]
    assert (above.metrics["below_floor"], above.metrics["changes"]) == (3, 5)


def written(pipeline, step):
    """(key, position, n, change) of a step's entries."""
    entries = [entry for entry in pipeline.state.to_pylist() if entry["_step"] == step]
    return [(entry["id"], entry["_position"], entry["n"], entry["_change"]) for entry in entries]


def test_step_writes_no_entry_that_it_does_not_change():
    pipeline = MemoryPipeline(plain(ttl="100ms", materializer={"retraction_grace": "1d", "upsert_key": ["n"]}))
    pipeline.step([change("+I", id=1, n=1), change("-D", id=1, n=9), change("+I", id=2, n=1)], now_ms=0)
    pipeline.step([change("+I", id=1, n=2)], now_ms=1)
    pipeline.step([change("+U", id=2, n=5)], now_ms=100)
    assert [written(pipeline, step) for step in (2, 3)] == [
        [(1, 0, 1, None), (1, 2, 2, "U")],
        [(2, 0, 1, None), (2, 1, 5, "U")],
    ]
    assert pipeline.changelog == []


def test_first_change_of_a_step_replaces_its_like_in_its_place():
    pipeline = MemoryPipeline(plain("id BIGINT NOT NULL, u INT, n INT", materializer={"upsert_key": ["u"]}))
    pipeline.step([added(1, 1)])
    pipeline.step([added(1, 2)])
    assert written(pipeline, 2) == [(1, 0, 2, "U")]


def test_retraction_alone_of_nothing_is_counted():
    pipeline = MemoryPipeline(plain())
    pipeline.step([change("-D", id=1, n=1)])
    counts = {name: n for name, n in pipeline.metrics.items() if n}
    assert (counts, len(pipeline.state)) == ({"changes": 1, "unmatched": 1, "unchanged": 1}, 0)


def by_event_time(**more):
    return plain(
        "id BIGINT NOT NULL, n INT, at TIMESTAMP",
        event_time="at",
        ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"},
        **more,
    )


def test_row_that_outlived_the_shown_one_leaves_no_orphan():
    pipeline = MemoryPipeline(by_event_time())
    pipeline.step([change("+I", id=1, n=n, at=at * 1000) for n, at in ((1, 1000), (2, 900))])
    pipeline.step([change("-D", id=1, n=7, at=0)])
    assert (pipeline.metrics["expired"], pipeline.metrics["orphaned"], pipeline.metrics["unmatched"]) == (1, 0, 1)


def test_of_those_that_outlived_the_shown_row_the_newest_is_shown():
    pipeline = MemoryPipeline(by_event_time(materializer={"emission": "every", "on_expire": "delete"}))
    pipeline.step([change("+I", id=1, n=n, at=at * 1000) for n, at in ((1, 1000), (2, 1000), (3, 900))])
    pipeline.tick(now_ms=0)
    assert [(row["_kind"], row["n"]) for row in pipeline.changelog[3:]] == [("+U", 2)]
    assert [row["n"] for row in pipeline.rows()] == [2]


@pytest.mark.parametrize(("update_type", "stamps"), [("ON_CREATE", [0, 0]), ("ON_CREATE_AND_WRITE", [0, 60])])
def test_row_that_replaces_another_keeps_its_time_where_only_creation_counts(update_type, stamps):
    ttl = {"ttl": "100ms", "update_type": update_type}
    pipeline = MemoryPipeline(plain("id BIGINT NOT NULL, u INT, n INT", ttl=ttl, materializer={"upsert_key": ["u"]}))
    pipeline.step([added(1, 1)], now_ms=0)
    pipeline.step([added(1, 2)], now_ms=60)
    assert pipeline.state["_stamp_ms"].to_pylist() == stamps


def test_row_that_expires_is_emitted_as_gone_though_a_retraction_still_waits():
    materializer = {"emission": "every", "on_expire": "delete", "retraction_grace": "1d"}
    pipeline = MemoryPipeline(plain(ttl="100ms", materializer=materializer))
    pipeline.step([change("+I", id=1, n=1), change("-D", id=1, n=9)], now_ms=0)
    pipeline.tick(now_ms=100)
    assert [(row["_kind"], row["n"]) for row in pipeline.changelog] == [("+I", 1), ("-D", 1)]
