"""Arrival mode with every option, beside the reference histories: the sink, what is stored, what is emitted record by record."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from reference import Histories
from support import change, envelope, plain, record
from support import spec as debezium

from ebbtide.model.changelog import changelog_schema
from ebbtide.model.entries import Step
from ebbtide.operators.arrival import ArrivalOperator
from ebbtide.runtime.plan import operator_of
from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, u INT, n INT, at TIMESTAMP"
SCHEMA_OF_ONE = pa.schema([("id", pa.int64())])
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


def test_first_row_stays_shown_until_it_is_retracted_and_gives_place_to_the_next():
    pipeline = MemoryPipeline(plain(materializer={"keep": "first"}))
    shown = []
    for kind, n in (("+I", 1), ("+I", 2), ("-D", 9), ("-D", 1), ("-D", 2)):
        pipeline.step([change(kind, id=1, n=n)])
        shown.append([row["n"] for row in pipeline.rows()])
    assert shown == [[1], [1], [1], [2], []]
