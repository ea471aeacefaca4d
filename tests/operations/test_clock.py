"""Clock and watermark set by hand, without Spark: a step of its own, from which time goes on."""

import json

import pytest
from click.testing import CliRunner
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.local_run import HOUR, START, time_text

from ebbtide.cli import main
from ebbtide.errors import ConfigError, LeaseHeldError, SpecChangedError
from ebbtide.ledger import Lease

DAYS = 24 * HOUR
EXPIRING = {"order": "arrival", "ttl": "2h", "max_clock_jump": "366d", "materializer": {"on_expire": "delete"}}
BY_EVENT = {
    "schema": "id BIGINT NOT NULL, n INT, at TIMESTAMP",
    "event_time": "at",
    "allowed_delay": "10s",
    "ttl": {"ttl": "1h", "time_characteristic": "EVENT_TIME", "expire_live": True},
    "quarantine": {"max_event_time_ahead": None},
}


def set_clock(pipeline, clock_ms, to_ms, reason="it was ahead"):
    return pipeline.act("clock", clock_ms=clock_ms, to=time_text(to_ms), reason=reason)


def test_clock_that_was_ahead_is_set_back_with_a_reason_and_goes_on_from_there(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), clock_ms=START)
    pipeline.run(START + 30 * DAYS)  # the machine's clock was wrong
    assert pipeline.rows() == {}
    later = START + 3 * HOUR
    planned = pipeline.act("clock", "plan", later, to="now")
    assert (planned["now_ms"], planned["to_ms"], planned.step) == (START + 30 * DAYS, later, None)
    assert pipeline.last.cause.what == "tick", "a plan changes nothing"

    done = pipeline.act("clock", clock_ms=later, to="now", reason="the clock was a month ahead")
    assert "set to 1970-02-11T19:00:00.000+00:00" in done.text()
    last = pipeline.last
    assert (last.step, last.cause.what, last.now_ms, last.cause.why) == (
        done.step,
        "clock",
        later,
        "the clock was a month ahead",
    )
    [batch] = pipeline.read(up(2, 2), clock_ms=later)
    assert batch.clock.now_ms == later, "it was planned by a clock that was behind"
    pipeline.run(later + HOUR)
    assert (pipeline.rows(), pipeline.last.now_ms) == ({2: 2}, batch.clock.now_ms)
    pipeline.run(later + 2 * HOUR)
    assert (pipeline.rows(), pipeline.last.now_ms) == ({}, later + 2 * HOUR)
    pipeline.do("rewind")
    assert (pipeline.rows(), pipeline.last.now_ms) == ({1: 1}, START), "what expired comes back"


def test_state_of_a_function_expires_by_the_clock_that_was_set(make):
    pipeline = make(function="victims:Totals", ttl={"total": "2h", "seen": "2h"})
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    later = START + 3 * HOUR
    set_clock(pipeline, later, START + HOUR)
    pipeline.run(later + HOUR - 1)
    assert totals(pipeline) == {1: 1}
    pipeline.read(up(1, 2, "+I"), clock_ms=later + HOUR - 1)
    assert totals(pipeline) == {1: 3}, "a wall clock that goes on from there"
    pipeline.run(later + 4 * HOUR)
    pipeline.read(up(1, 4, "+I"), clock_ms=later + 4 * HOUR)
    assert totals(pipeline) == {1: 4}, "what it knew has expired"


def totals(pipeline):
    return {row["id"]: row["total"] for row in pipeline.table("sink", pipeline.spec.sink_table.columns)}


def test_clock_set_behind_the_wall_clock_stays_behind_by_as_much(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), clock_ms=START)
    week = 7 * DAYS
    set_clock(pipeline, START + week, START)
    pipeline.run(START + week + HOUR)
    assert pipeline.rows() == {1: 1}
    pipeline.run(START + week + 2 * HOUR)
    assert (pipeline.rows(), pipeline.last.now_ms) == ({}, START + 2 * HOUR)


def test_watermark_is_set_back_and_rises_with_the_events_from_there(make):
    pipeline = make(**BY_EVENT)
    pipeline.read(up(1, 1, at="2026-01-01T00:00:00Z"))
    pipeline.read(up(2, 2, at="2999-01-01T00:00:00Z"))  # a wrong one
    before = pipeline.last
    to_ms = 1_767_225_600_000
    done = pipeline.act("clock", clock_ms=START, watermark=time_text(to_ms), reason="a wrong event time")
    assert done["watermark_ms"] == before.frontier.max_event_ms - 10_000
    assert (pipeline.last.frontier.watermark_ms, pipeline.last.now_ms) == (to_ms, before.now_ms)
    pipeline.read(up(3, 3, at="2026-01-01T00:30:00Z"))
    pipeline.read(up(4, 4, at="2026-01-01T00:30:00Z"))
    assert pipeline.last.frontier.watermark_ms == to_ms + HOUR // 2 - 10_000
    assert pipeline.rows().keys() >= {3, 4}


@pytest.mark.parametrize(
    ("fields", "asked", "message"),
    [
        (
            EXPIRING,
            {"to": time_text(START + 1)},
            (
                "The clock of 't' cannot be set ahead of the wall clock. Got: 1970-02-11T16:00:00.001+00:00."
                " Allowed: no later than 1970-02-11T16:00:00.000+00:00."
            ),
        ),
        (
            EXPIRING,
            {"watermark": "1970-01-01"},
            (
                "The watermark of 't' can only be set back; it rises with the events. Got: 1970-01-01T00:00:00.000+00:00."
                " Allowed: no later than none yet."
            ),
        ),
        (
            BY_EVENT,
            {"watermark": "2025-12-31T23:59:50.001"},
            (
                "The watermark of 't' can only be set back; it rises with the events. Got: 2025-12-31T23:59:50.001+00:00."
                " Allowed: no later than 2025-12-31T23:59:50.000+00:00."
            ),
        ),
        (BY_EVENT, {"to": "soon"}, "A time cannot be read. Got: soon. Allowed: now, or as 2026-01-31T12:00:00."),
    ],
    ids=["clock ahead", "watermark without one", "watermark ahead", "no time"],
)
def test_time_that_cannot_be_set_is_refused_by_plan_and_apply_with_what_is_allowed(make, fields, asked, message):
    pipeline = make(**fields)
    pipeline.read(up(1, 1, at="2026-01-01T00:00:00Z"), clock_ms=START)
    for action in ("plan", "apply"):
        with pytest.raises(ConfigError) as raised:
            pipeline.act("clock", action, START, **asked, reason="why")
        assert str(raised.value) == message
    assert pipeline.last.step == 1


def test_pipeline_without_a_step_has_no_clock(make):
    pipeline = make()
    for _ in ("without a state", "with an empty one"):
        assert pipeline.act("clock", "plan", START).text() == "t: clock at none yet; watermark at none yet."
        assert pipeline.act("clock", clock_ms=START, to="now", reason="why").step is None
        pipeline.plan.state.create()


def test_command_tells_where_the_clock_stands_and_what_it_would_set(make, tmp_path):
    pipeline = make(**BY_EVENT)
    pipeline.read(up(1, 1, at="2026-01-01T00:00:00Z"), clock_ms=START)
    fields = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec = tmp_path / "defs.yaml"
    spec.write_text(json.dumps({"type": "ebbtide.dagster.UpsertPipeline", "attributes": fields}))

    def clock_shown(*options):
        return CliRunner().invoke(main, ["clock", str(spec), "--root", pipeline.root, *options])

    stands = "t: clock at 1970-02-11T16:00:00.000+00:00; watermark at 2025-12-31T23:59:50.000+00:00"
    assert clock_shown().output == f"{stands}.\n"
    assert clock_shown("--watermark", "2025-12-31T01:00:00+01:00").output == (
        f"{stands}, set to 2025-12-31T00:00:00.000+00:00.\n  To do it: the same with '--reason TEXT --apply'.\n"
    )
    assert "cannot be set ahead" in clock_shown("--to", "2999-01-01").output
    assert "Allowed: now, or as 2026" in clock_shown("--to", "soon").output
    assert "Applying 'clock' needs a reason. Got: none." in clock_shown("--to", "now", "--apply").output
    assert pipeline.last.step == 1, "nothing was done"


def test_what_somebody_asks_for_is_planned_or_done(make):
    pipeline = make(**BY_EVENT)
    pipeline.read(up(1, 1, at="2026-01-01T00:00:00Z"), clock_ms=START)
    pipeline.read(up(2, 2, at="2026-01-01T00:00:00Z"), clock_ms=START)
    asked = {"to": "1970-01-01T00:00:01", "watermark": "1970-01-01T01:00:02+01:00", "reason": "both were wrong"}
    planned = pipeline.act("clock", "plan", START, **asked)
    assert (planned["to_ms"], planned["to_watermark_ms"], planned.step, planned["reason"]) == (1_000, 2_000, None, "")
    done = pipeline.act("clock", clock_ms=START, **asked)
    assert (done.step, done["reason"]) == (3, "both were wrong")
    assert done.text().endswith("\n  Done in step 3: both were wrong")
    last = pipeline.last
    assert (last.now_ms, last.frontier.watermark_ms, last.frontier.max_event_ms) == (1_000, 2_000, 12_000)
    assert (last.frontier.clock.wall_ms, last.frontier.clock.downtime_ms) == (START, START - 1_000)
    stands = pipeline.act("clock", "plan", START, to="now", watermark="1970-01-01T00:00:02")
    assert (stands["now_ms"], stands["to_ms"], stands["to_watermark_ms"]) == (1_000, START, 2_000)
    assert stands.next_step
    assert not pipeline.act("clock", "plan", START).next_step, "nothing is asked for"


def test_apply_that_sets_nothing_makes_no_step(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), clock_ms=START)
    found = pipeline.act("clock", clock_ms=START, reason="why")
    assert (found.step, found["now_ms"], found["reason"]) == (None, START, "")
    assert pipeline.last.step == 1


def test_clock_of_a_changed_spec_or_a_pipeline_that_runs_is_not_set(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1), clock_ms=START)
    with Lease(pipeline.plan.at("ledger"), "t", 60), pytest.raises(LeaseHeldError):
        set_clock(pipeline, START, START)
    pipeline.spec = pipeline.with_fields(ttl="1h")
    with pytest.raises(SpecChangedError):
        set_clock(pipeline, START, START)
    assert pipeline.last.step == 1


def test_clock_is_set_behind_a_step_that_was_not_finished(make):
    pipeline = make(**EXPIRING)
    pipeline.put(up(1, 1))
    with killed_before("a decided step is published"):
        pipeline.run(START)
    set_clock(pipeline, START, START)
    assert pipeline.rows() == {1: 1}
