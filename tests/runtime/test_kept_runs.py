"""The end of every run is kept with its pipeline: each fault is made for real, then `status` and `ebbtide runs` say how the run ended."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from frame.waiting import PATIENCE_S
from local.local_pipeline import LATER, up
from local.metrics_support import command, samples_of, write_spec

from ebbtide.errors import EbbtideError, LeaseHeldError
from ebbtide.inspect import MetricsAtRest, status
from ebbtide.ledger import KeptRun

RUN_UNTIL_KILLED = """
import os, signal, sys
import ebbtide
from ebbtide.cli.reporting import load_specs
[(_, spec)] = load_specs((sys.argv[1],))
ebbtide.run(ebbtide.InProcess(), spec, sys.argv[2], on_progress=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.fixture
def pipeline(make):
    """A pipeline with one step, of another time than that of the processes that run it."""
    made = make(max_clock_jump="36500d")
    made.read(up(1, 1))
    return made


def kept(pipeline):
    """The runs that are kept, the newest first."""
    return KeptRun.all_of(pipeline.plan.root, pipeline.plan.ledger.turn)


def last(pipeline):
    found = status(pipeline.spec, pipeline.root, clock_ms=pipeline.last.now_ms)
    assert found.last_run == kept(pipeline)[0]
    return found.last_run, found.level


def metrics(pipeline):
    samples = samples_of(MetricsAtRest.of([pipeline.spec], pipeline.root, LATER).text)
    return [samples[(f"ebbtide_last_run_{name}",)] for name in ("success", "exit_code")]


def test_run_that_succeeds_is_kept_with_steps_records_and_times(pipeline):
    run, level = last(pipeline)
    assert (run.job, run.outcome, run.exit_code, run.error, level) == ("run", "succeeded", 0, None, "healthy")
    assert (run.first_step, run.records) == (1, 1)
    assert run.last_step == pipeline.last.step
    assert run.host
    assert 0 <= run.seconds < PATIENCE_S
    assert metrics(pipeline) == [1, 0]


def test_run_that_held_the_lease_and_failed_needs_a_look_until_one_succeeds(pipeline):
    moved = pipeline.source.rename(pipeline.source.with_name("aside"))
    with pytest.raises(EbbtideError) as failed:
        pipeline.run()
    moved.rename(pipeline.source)
    run, level = last(pipeline)
    assert (run.outcome, run.exit_code, run.error) == ("failed", failed.value.exit_code, type(failed.value).__name__)
    assert str(failed.value).startswith(run.message)
    assert "Got:" not in run.message
    assert level == "attention"
    assert "the last run failed at" in status(pipeline.spec, pipeline.root, clock_ms=LATER).text()
    assert metrics(pipeline) == [0, 5]
    pipeline.read(up(2, 1))
    assert last(pipeline)[1] == "healthy"


def test_runs_refused_before_the_lease_share_a_place(pipeline):
    transform = {"schema": "id BIGINT, m INT", "key": ["id"], "select": {"id": "id", "m": "n + 1"}}
    fitting, pipeline.spec = pipeline.spec, pipeline.with_fields(engine="local", transform=transform)
    for _ in range(3):
        with pytest.raises(EbbtideError):
            pipeline.run()
    pipeline.spec = fitting
    assert [run.outcome for run in kept(pipeline)] == ["refused", "succeeded"]
    run, level = last(pipeline)
    assert (run.epoch, level) == (None, "attention")
    pipeline.read(up(2, 1))
    assert last(pipeline)[1] == "healthy"


def test_run_that_finds_nothing_to_do_is_kept_in_place_of_the_one_before_it(pipeline, tmp_path):
    for _ in range(3):
        assert command(pipeline, tmp_path, "run").exit_code == 0
    idle, _ = kept(pipeline)
    assert (idle.outcome, idle.epoch, idle.last_step) == ("succeeded", None, None)


def test_run_refused_by_a_live_one_or_a_pause_says_nothing_of_the_pipeline(pipeline):
    with pipeline.plan.ledger.lease(60), pytest.raises(LeaseHeldError):
        pipeline.run()
    pipeline.act("pause", reason="the source is being repaired")
    with pytest.raises(EbbtideError):
        pipeline.run()
    assert [run.outcome for run in kept(pipeline)] == ["succeeded"]


def test_refused_first_run_makes_nothing(make):
    pipeline = make()
    shutil.rmtree(pipeline.source)
    with pytest.raises(EbbtideError):
        pipeline.run()
    assert not pipeline.home.exists()
    assert kept(pipeline) == []


def test_killed_run_is_seen_by_a_look_and_kept_by_its_successor(pipeline, tmp_path):
    pipeline.put(up(2, 1))
    place = [write_spec(pipeline, tmp_path), pipeline.root]
    died = subprocess.run([sys.executable, "-c", RUN_UNTIL_KILLED, *place], check=False, timeout=PATIENCE_S)
    assert died.returncode == -signal.SIGKILL
    run, level = last(pipeline)
    assert (run.outcome, run.ended_ms, run.exit_code, level) == ("died", None, None, "attention")
    pipeline.run()
    assert [run.outcome for run in kept(pipeline)] == ["succeeded", "died", "succeeded"]
    assert last(pipeline)[1] == "healthy"


def test_interrupted_run_is_kept_as_such(pipeline, tmp_path):
    for number in range(20):
        pipeline.put(up(number, number))
    words = ["run", write_spec(pipeline, tmp_path), "--root", pipeline.root, "--engine", "local", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "ebbtide.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert '"step"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    run, level = last(pipeline)
    assert (process.returncode, run.exit_code, run.outcome, level) == (1, 1, "interrupted", "healthy")
    assert run.last_step == pipeline.last.step


@pytest.mark.parametrize(("rate", "code"), [(0.01, 1), (1, 0)])
def test_run_whose_records_are_all_bad_fails_unless_the_spec_allows_it(make, tmp_path, rate, code):
    pipeline = make(checks={"max_quarantine_rate": rate})
    pipeline.read(up(1, 1))
    pipeline.put("bad")
    ended = command(pipeline, tmp_path, "run")
    assert (ended.exit_code, "All records that this run of 't' has read were bad: 1 record." in ended.stderr) == (
        code,
        code == 1,
    )
    assert kept(pipeline)[0].exit_code == code
    assert kept(pipeline)[0].outcome == ("failed" if code else "succeeded")


def test_maintenance_that_makes_steps_is_kept_by_its_name(pipeline):
    pipeline.act("rewind", to_step=1)
    run, _ = last(pipeline)
    assert (run.job, run.outcome, run.first_step, run.last_step) == (
        "rewind",
        "succeeded",
        pipeline.last.step,
        pipeline.last.step,
    )


def test_last_hundred_with_the_lease_are_kept(pipeline):
    known = kept(pipeline)[0]
    for epoch in range(2, 150):
        known.model_copy(update={"epoch": epoch, "ended_ms": epoch}).note(pipeline.plan.root)
    assert sorted(run.epoch for run in kept(pipeline)) == list(range(50, 150))


def test_run_whose_end_cannot_be_kept_ends_as_it_does(pipeline, caplog):
    shutil.rmtree(pipeline.home / "runs")
    (pipeline.home / "runs").write_text("")
    pipeline.read(up(2, 1))
    assert "KeepsEnd" in caplog.text or "The end of a run was not kept" in caplog.text


def test_command_lists_the_runs_the_newest_first(pipeline, tmp_path):
    pipeline.read(up(2, 1))
    shown = command(pipeline, tmp_path, "runs")
    assert [line.split(" at ")[0] for line in shown.stdout.splitlines()] == ["t: run succeeded"] * 2
    as_json = [json.loads(line) for line in command(pipeline, tmp_path, "runs", "--json").stdout.splitlines()]
    assert [run["epoch"] for run in as_json] == [2, 1]
