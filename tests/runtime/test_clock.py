"""A host whose clock is wrong: what a run keeps, what the status says, and the command that it names."""

import pytest
from local.local_pipeline import LATER, up
from local.local_run import HOUR, START
from local.metrics_support import command

import ebbtide
from ebbtide.inspect import status

DAY = 24 * HOUR


def read_at(pipeline, clock_ms, *lines):
    """Read a file on a host whose clock says so."""
    pipeline.put(*lines)
    ebbtide.run(ebbtide.InProcess(lambda _: clock_ms), pipeline.spec, pipeline.root, clock=lambda: clock_ms)


@pytest.mark.parametrize("days", [16, 31, 365, 10_000])
def test_clock_that_jumps_ends_no_tombstone_that_was_just_written(make, days):
    pipeline = make(ttl="30d")
    read_at(pipeline, START, up(1, 5), up(1, 6, "-D"))
    for number in range(3):
        read_at(pipeline, START + days * DAY + number, up(2, number))
    read_at(pipeline, START + days * DAY + 9, up(1, 4))
    assert set(pipeline.rows()) == {2}, "a late change of a deleted key loses"


def test_pause_as_long_as_it_is_usual_holds_no_clock(make):
    pipeline = make(ttl="1h")
    for number in range(4):
        read_at(pipeline, START + number * DAY, up(1, number))
    assert pipeline.last.frontier.clock.held_ms == 0
    assert status(pipeline.spec, pipeline.root, clock_ms=START + 3 * DAY).level == "healthy"


def test_clock_that_is_held_and_then_ahead_is_said_with_the_command_that_sets_it(make):
    pipeline = make(ttl="30d")
    read_at(pipeline, START, up(1, 1))
    wrong_ms = START + 381 * DAY
    read_at(pipeline, wrong_ms, up(2, 1))

    def at(clock_ms):
        found = status(pipeline.spec, pipeline.root, clock_ms=clock_ms)
        return found.level, found.last.clock_text

    sets = "'ebbtide clock --to now --reason TEXT --apply' sets it"
    held = "the clock is held 366 days behind this host's by max_clock_jump; steps catch up. If the host's is right"
    assert at(wrong_ms) == ("attention", f"{held}, {sets}")
    level, text = at(START)
    assert level == "attention"
    assert text.startswith(f"the clock is 15 days ahead, and has ended entries too early; {sets} back")
    assert text in status(pipeline.spec, pipeline.root, clock_ms=START).text()
    for now_ms in (START, wrong_ms):
        pipeline.act("clock", to="now", reason="it was wrong", clock_ms=now_ms)
        assert at(now_ms) == ("healthy", None)
    read_at(pipeline, wrong_ms + HOUR, up(2, 2))
    assert at(wrong_ms + HOUR) == ("healthy", None)


def test_command_that_the_status_names_is_one(make, tmp_path):
    pipeline = make()
    read_at(pipeline, LATER, up(1, 1))
    done = command(pipeline, tmp_path, "clock", "--to", "now", "--reason", "it was wrong", "--apply")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "Done in step 2: it was wrong" in done.stdout


def test_advance_allowed_by_default_is_half_of_the_shortest_ttl_within_bounds(make):
    def allowed(**fields):
        return make(**fields).spec.largest_clock_jump.total_seconds() * 1000 / DAY

    assert allowed() == 366
    assert allowed(ttl="10000d") == 366
    assert allowed(ttl="30d") == 15
    assert allowed(ttl="1h") == 2
    assert allowed(ttl="30d", max_clock_jump="1d") == 1
    by_event_time = {"ttl": "30d", "time_characteristic": "EVENT_TIME"}
    schema = "id BIGINT NOT NULL, n INT, at TIMESTAMP"
    assert allowed(ttl=by_event_time, schema=schema, event_time="at") == 366, "the watermark ends its entries"
    states = {"seen": "30d"}
    function = make(function="ebbtide.functions:LastSeen", schema="id BIGINT, customer_id BIGINT", ttl=states)
    assert function.spec.largest_clock_jump.days == 15
