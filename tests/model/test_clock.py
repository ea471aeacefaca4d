"""Processing time: what is left out of it, what is held, and that it never goes back."""

from ebbtide.model import Frontier, Reading, StepRules

HOUR = 3_600_000
FIRST = Reading(now_ms=100 * HOUR, wall_ms=100 * HOUR)


def after(last, wall, started, over=HOUR, jump=1000 * HOUR):
    rules = StepRules(max_clock_jump_ms=jump, ignore_downtime_over_ms=over)
    return rules.clock_after(None if last is None else Frontier.reset(last), wall, started_ms=started)


def test_pause_between_two_runs_is_left_out_if_it_is_longer_than_said():
    assert after(FIRST, 101 * HOUR, 101 * HOUR).now_ms == 101 * HOUR
    assert after(FIRST, 120 * HOUR, 120 * HOUR) == Reading(100 * HOUR, 120 * HOUR, downtime_ms=20 * HOUR)
    assert after(FIRST, 120 * HOUR, 120 * HOUR, over=None).now_ms == 120 * HOUR


def test_step_that_takes_long_is_no_downtime():
    assert after(FIRST, 120 * HOUR, started=99 * HOUR).now_ms == 120 * HOUR


def test_run_that_failed_before_its_first_step_makes_no_downtime_forgotten():
    after(FIRST, 119 * HOUR, 119 * HOUR)  # nothing of this is stored
    assert after(FIRST, 120 * HOUR, 120 * HOUR).downtime_ms == 20 * HOUR


def test_pause_after_a_batch_that_an_earlier_run_had_planned_is_left_out_too():
    replayed = after(FIRST, 110 * HOUR, started=130 * HOUR)
    following = after(replayed, 130 * HOUR, started=130 * HOUR)
    assert (replayed.downtime_ms, following.downtime_ms, following.now_ms) == (10 * HOUR, 30 * HOUR, 100 * HOUR)
    assert after(following, 140 * HOUR, started=130 * HOUR).now_ms == 110 * HOUR


def test_clock_that_jumps_is_held_and_one_that_goes_back_stands_still():
    assert after(FIRST, 150 * HOUR, 0, over=None, jump=10 * HOUR) == Reading(110 * HOUR, 150 * HOUR, 0, 40 * HOUR)
    assert after(FIRST, 50 * HOUR, 0).now_ms == 100 * HOUR


def test_clock_that_was_held_does_not_catch_up_by_many_steps():
    held = after(FIRST, 10_000 * HOUR, 0, over=None)
    following = after(held, 10_001 * HOUR, 0, over=None)
    assert (held.now_ms, following.now_ms) == (1_100 * HOUR, (1_100 + 1 + 24) * HOUR)
    back = after(following, 200 * HOUR, 0, over=None)
    assert after(back, 201 * HOUR, 0, over=None).now_ms == following.now_ms


def test_first_step_is_at_the_wall_clock():
    assert after(None, 5 * HOUR, 0) == Reading(5 * HOUR, 5 * HOUR, downtime_ms=0, held_ms=0)
