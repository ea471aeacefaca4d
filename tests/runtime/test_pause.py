"""A paused pipeline reads nothing new until it is resumed, and nothing expires meanwhile; maintenance goes on."""

import json
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, START

from ebbtide import status
from ebbtide.cli import main
from ebbtide.errors import ConfigError, PausedError, StoreUnavailableError, TableMismatchError
from ebbtide.ledger import Cause, Lease, Ledger
from ebbtide.ledger import _ledger as ledgers
from ebbtide.runtime._following import Following

OFTEN = Following(interval_ms=1, tick_every_ms=1)
EXPIRING = {"order": "arrival", "ttl": "2h", "materializer": {"on_expire": "delete"}}


def pause(pipeline, clock_ms=START, reason="the source is being repaired"):
    return pipeline.act("pause", clock_ms=clock_ms, reason=reason)


def resume(pipeline, clock_ms=START):
    return pipeline.act("resume", clock_ms=clock_ms)


def test_paused_pipeline_refuses_runs_until_it_is_resumed(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    paused = pause(pipeline)
    assert paused.text() == (
        "t: paused: the source is being repaired. Nothing more is read.\n  To continue: 'ebbtide resume'."
    )
    assert paused.as_dict() == {
        "pipeline": "t",
        "paused": True,
        "by": "ann",
        "since": datetime.fromtimestamp(START / 1000, UTC),
        "reason": "the source is being repaired",
        "seconds": 0.0,
        "is_at_rest": True,
        "step": None,
    }
    pipeline.put(up(1, 2))
    for run in (pipeline.run, lambda: pipeline.do("refresh"), pipeline.is_idle):
        with pytest.raises(
            PausedError, match="'t' is paused by ann since 1970-02-11 16:00:00 UTC: the source is being"
        ):
            run()
    assert pipeline.rows() == {1: 1}
    ended = resume(pipeline, START + 5_000_000)
    assert ended.as_dict() == {**paused.as_dict(), "paused": False, "seconds": 5_000}
    assert ended.text() == "t: resumed after 5,000 s; it was paused by ann: the source is being repaired."
    again = resume(pipeline).as_dict()
    assert (again["paused"], again["by"], again["since"], again["reason"], again["seconds"]) == (False, "", None, "", 0)
    assert resume(pipeline).text() == "t: it was not paused."
    pipeline.run()
    assert pipeline.rows() == {1: 2}


def test_maintenance_goes_on_and_the_pause_outlives_it(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pause(pipeline)
    assert pipeline.do("compaction").step == 2
    with pytest.raises(PausedError):
        pipeline.run()


def test_pipeline_can_be_paused_before_its_first_run(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    pause(pipeline)
    with pytest.raises(PausedError):
        pipeline.run()
    assert "no step yet.\n  paused by ann" in status(pipeline.spec, pipeline.root).text()
    resume(pipeline)
    pipeline.run()
    assert pipeline.rows() == {1: 1}


def test_pause_takes_a_reason_and_a_second_one_keeps_the_time(make):
    pipeline = make()
    with pytest.raises(ConfigError, match="needs a reason"):
        pause(pipeline, reason=" ")
    assert not pipeline.home.exists()
    pause(pipeline)
    pause(pipeline, START + HOUR, "longer")
    found = status(pipeline.spec, pipeline.root)
    paused = found.pause
    assert (paused.by, paused.since.timestamp() * 1000, paused.reason) == ("ann", START, "longer")


def test_silent_holder_keeps_the_lease_from_a_pause_as_long_as_the_spec_says(make, monkeypatch):
    pipeline = make(lease_ttl="30s")
    given = []
    monkeypatch.setattr(Ledger, "pause", lambda _, *asked, last: given.append((*asked, last)))
    pause(pipeline)
    assert given == [("ann", "the source is being repaired", START, 30, None)]


def test_run_that_ends_stops_before_its_next_step(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    pipeline.put(up(1, 2))

    def on_progress(_):
        asked = pause(pipeline)
        assert not asked["is_at_rest"]
        assert asked.text() == (
            "t: paused: the source is being repaired. A run is under way: it ends after its step.\n  To continue: 'ebbtide resume'."
        )

    with pytest.raises(PausedError):
        pipeline.run(on_progress=on_progress)
    assert pipeline.rows() == {1: 1}
    assert pipeline.last.step == 1
    turn = pipeline.plan.ledger.turn
    assert (turn.is_free, turn.paused.by) == (True, "ann")


def test_run_that_goes_on_ends_its_step_waits_and_goes_on(make):
    set_limits(ledger_poll_s=0.01)
    pipeline = make(lease_ttl="30s")
    pipeline.put(up(1, 1))
    stop = threading.Event()
    results = []
    pauser = threading.Thread(target=lambda: results.append(pause(pipeline)))

    def while_paused():
        pauser.join()
        pipeline.put(up(1, 2))
        results.append((pipeline.do("compaction").step, pipeline.rows()))
        resume(pipeline)

    watcher = threading.Thread(target=while_paused)

    def on_progress(step):
        if step.kind != "batch":
            return
        if not results and not pauser.is_alive():
            pauser.start()
            watcher.start()
        elif pipeline.rows() == {1: 2}:
            stop.set()

    pipeline.follow(OFTEN, on_progress, stop)
    watcher.join()
    report, (compacted, rows) = results
    assert report["is_at_rest"]
    assert (compacted, rows) == (2, {1: 1})
    assert pipeline.rows() == {1: 2}


def test_run_that_goes_on_can_be_stopped_while_it_is_paused(make):
    set_limits(ledger_poll_s=0.01)
    pipeline = make()
    pause(pipeline)
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    assert pipeline.follow(OFTEN, lambda _: None, stop).steps == []


def test_store_that_is_away_now_and_then_is_waited_for_while_the_run_is_paused(make, monkeypatch):
    set_limits(ledger_poll_s=0.01, first_wait_s=0.01)
    pipeline = make()
    pause(pipeline)
    stop = threading.Event()
    looks = iter(range(8))
    read = ledgers.newest_turn

    def sometimes(ledger, **options):
        look = next(looks)
        if look in (1, 4):
            raise StoreUnavailableError("The store is away.")
        if look == 6:
            stop.set()
        return read(ledger, **options)

    monkeypatch.setattr(ledgers, "newest_turn", sometimes)
    patience = Following(interval_ms=1, fault_budget_s=0)
    assert pipeline.follow(patience, lambda _: None, stop).steps == []
    assert next(looks) == 7


def test_heartbeats_of_a_run_carry_a_pause_on(make):
    pipeline = make()
    ledger = pipeline.plan.at("ledger")
    with Lease(ledger, "t", 3600) as lease:
        Ledger(ledger, "t").pause("ann", "why", 1, 3600)
        lease._renew()
        lease._renew()
        lease.check()
        assert lease.seen.paused.reason == lease.facts.paused.reason == "why"
        Ledger(ledger, "t").resume(11)
        lease._renew()
    turn = Ledger(ledger, "t").turn
    assert (turn.paused, turn.paused_ms) == (None, 10)


@pytest.mark.demand("ttl-downtime")
def test_processing_time_stands_still_while_the_pipeline_is_paused(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    pause(pipeline, START + HOUR)
    resume(pipeline, START + 11 * HOUR)
    pipeline.run(START + 11 * HOUR)
    assert pipeline.rows() == {1: 1}, "an hour old"
    assert pipeline.last.cause.what == "batch", "nothing was due"
    pipeline.run(START + 12 * HOUR + 60_000)
    assert pipeline.rows() == {}
    last = pipeline.last
    assert (last.now_ms, last.frontier.clock.downtime_ms, last.frontier.clock.paused_ms) == (
        START + 2 * HOUR + 60_000,
        10 * HOUR,
        10 * HOUR,
    )
    pipeline.read(up(2, 2, "+I"), clock_ms=START + 13 * HOUR)
    assert pipeline.last.frontier.clock.downtime_ms == 10 * HOUR, "once"


def test_clock_moved_by_a_job_within_a_pause_counts_the_pause_once(make):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    pause(pipeline, START + HOUR)
    with pipeline.stepper() as stepper:
        within = stepper.next_clock(START + 4 * HOUR)
        stepper.commit(stepper.facts(Cause(what="cleanup"), within), [])
    assert within.now_ms == START + HOUR
    resume(pipeline, START + 11 * HOUR)
    with pipeline.stepper() as stepper:
        assert stepper.next_clock(START + 12 * HOUR).now_ms == START + 2 * HOUR


@pytest.mark.demand("ttl-downtime")
def test_pause_within_downtime_that_is_left_out_is_left_out_once(make):
    pipeline = make(**EXPIRING, downtime_over="30m")
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    pause(pipeline, START + HOUR)
    resume(pipeline, START + 11 * HOUR)
    pipeline.run(START + 12 * HOUR)
    assert pipeline.last.now_ms <= START + 1_000 + HOUR


def test_command_line_pauses_tells_and_resumes(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    spec = tmp_path / "defs.yaml"
    given = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    where = [str(spec), "--root", pipeline.root]

    def do(*command):
        done = CliRunner().invoke(main, [*command, *where])
        return done.exit_code, done.output

    assert do("pause", "--reason", "why")[0] == 0
    code, said = do("run")
    assert code == 4
    assert "'t' is paused by " in said
    assert ": why. Run '" in said
    assert "paused by" in do("status")[1]
    assert json.loads(do("resume", "--json")[1])["reason"] == "why"


def lose_ledger(pipeline):
    shutil.rmtree(pipeline.home / "ledger")


def put_ledger_back(pipeline):
    log = pipeline.home / "ledger" / "_delta_log"
    for commit in sorted(log.glob("*.json"))[3:]:
        commit.unlink()


@pytest.mark.parametrize("harm", [lose_ledger, put_ledger_back])
def test_ledger_that_does_not_know_of_the_last_step_is_refused_since_the_pipeline_may_be_paused(make, harm):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "+I"))
    pipeline.read(up(2, 1, "+I"))
    pause(pipeline, START + HOUR)
    harm(pipeline)
    last_epoch = pipeline.plan.state.last()[1].epoch
    later = START + 10 * HOUR
    for ask in (
        lambda: pipeline.run(clock_ms=later),
        lambda: pipeline.do("refresh"),
        lambda: pipeline.do("cleanup"),
        lambda: pipeline.do("cleanup"),  # the first has not made it again
    ):
        with pytest.raises(
            TableMismatchError, match=r"The ledger at .* does not say whether 't' is paused.*ebbtide pause"
        ):
            ask()
    assert pipeline.rows() == {1: 1, 2: 1}
    pause(pipeline, later)
    turn = pipeline.plan.ledger.turn
    assert turn.epoch == last_epoch
    with pytest.raises(PausedError):
        pipeline.run(clock_ms=later)
    resume(pipeline, later + HOUR)
    pipeline.run(clock_ms=later + HOUR)
    assert pipeline.plan.state.last()[1].epoch > last_epoch


@pytest.mark.parametrize("harm", [lose_ledger, put_ledger_back])
def test_pauses_since_a_ledger_was_lost_are_left_out_of_processing_time_beside_those_before(make, harm):
    pipeline = make(**EXPIRING)
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    pause(pipeline, START)
    resume(pipeline, START + 10 * HOUR)
    pipeline.read(up(2, 2, "+I"), clock_ms=START + 10 * HOUR)
    with pipeline.stepper() as stepper:
        clock = stepper.next_clock(START + 10 * HOUR)
        stepper.commit(stepper.facts(Cause(what="cleanup"), clock), [])
    harm(pipeline)
    pause(pipeline, START + 10 * HOUR)
    resume(pipeline, START + 18 * HOUR)
    with pipeline.stepper() as stepper:
        assert stepper.next_clock(START + 18 * HOUR) == replace(
            clock, wall_ms=START + 18 * HOUR, downtime_ms=clock.downtime_ms + 8 * HOUR, paused_ms=18 * HOUR
        )


def test_run_whose_ledger_is_deleted_stops_before_its_next_commit(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    pipeline.put(up(1, 2))
    with pytest.raises(TableMismatchError, match="The ledger of 't' was deleted during this run"):
        pipeline.run(on_progress=lambda _: lose_ledger(pipeline))
    assert pipeline.rows() == {1: 1}
    assert not (pipeline.home / "ledger" / "_delta_log").exists()
