"""Arrival mode with every option, beside the reference histories: the sink, what is stored, what is emitted record by record."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from reference import Histories
from support import change, plain

from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, u INT, n INT, at TIMESTAMP"
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
        histories.end_step()
        if not histories.deletes:
            histories.expire(clock, now_ms=NEVER)  # what came late is not stored
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
