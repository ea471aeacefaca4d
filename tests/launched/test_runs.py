"""Runs in processes that Dagster really launched."""

import pytest
from clusters.spark_support import LOCAL, change, write

from ebbtide import run as run_pipeline
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.delta import Snapshot
from ebbtide.errors import LeaseHeldError

FILES = 20
"""A file a step: so many that a run on Spark is still under way when it is to be ended; one in its process makes them in no time."""
HERE = {"resources": {"spark": {"config": {"engine": "local"}}}}
"""Configuration of a run that makes its steps in its process."""


def rows(home, spec):
    sink = Snapshot.read(str(home / "root" / spec.name / "sink"))
    return sorted((row["id"], row["v"]) for row in sink.rows(spec.sink_table.columns).to_pylist())


def terminate(dagster_dev, run):
    dagster_dev.ask("mutation($r: String!) { terminateRun(runId: $r) { __typename } }", r=run)


def test_run_succeeds_with_all_checks_passed(dagster_dev, sales_run):
    assert dagster_dev.verdicts(sales_run) == {check.name: True for check in CHECKS}
    asset, numbers = dagster_dev.observed(sales_run)[0]
    assert asset == "sales"
    assert {"step": 1, "records": 2, "inserted": 2}.items() <= numbers.items()


def test_terminated_run_leaves_nothing_and_the_next_runs_carry_on_in_turn(dagster_dev, home, spec):
    write(
        home / "in" / "long", *[[change("+I", n * 10 + k, f"v{n}", n * 10 + k) for k in range(5)] for n in range(FILES)]
    )
    steps = ["long_state", "long"]  # without the checks
    first = dagster_dev.launch("long", steps, checks=[])
    dagster_dev.until(lambda: dagster_dev.observed(first), "the first step is reported")
    terminated = set(dagster_dev.jvms())
    assert terminated
    second, third = [dagster_dev.launch("long", steps, checks=[], config=HERE) for _ in range(2)]
    with pytest.raises(LeaseHeldError, match=r"Pipeline 'long' is being run by process \d+ on"):
        run_pipeline(LOCAL, spec("long"), str(home / "root"))
    terminate(dagster_dev, third)
    assert dagster_dev.end_of(third) == "CANCELED"
    assert (dagster_dev.status(first), dagster_dev.status(second)) == ("STARTED", "QUEUED")

    terminate(dagster_dev, first)
    assert dagster_dev.end_of(first) == "CANCELED"
    dagster_dev.until(lambda: terminated.isdisjoint(dagster_dev.jvms()), "its JVM is gone", 60)
    events = dagster_dev.events(first)
    assert not [event for event in events if event["__typename"] == "ExecutionStepRestartEvent"]
    dagster_dev.succeeded(second)
    _, resumed = dagster_dev.observed(second)[0]
    assert 1 < resumed["step"] <= FILES, "it goes on where the first was ended"
    assert rows(home, spec("long")) == [(n * 10 + k, f"v{n}") for n in range(FILES) for k in range(5)]


def test_schedule_ticks_and_launches_cleanup(dagster_dev):
    name = "ebbtide_cleanup_schedule"
    selector = {"repositoryLocationName": "tests", "repositoryName": "__repository__", "scheduleName": name}
    start = "mutation($s: ScheduleSelector!) { startSchedule(scheduleSelector: $s) { __typename } }"
    assert dagster_dev.ask(start, s=selector)["startSchedule"]["__typename"] == "ScheduleStateResult"
    ticks = """query($s: ScheduleSelector!) { scheduleOrError(scheduleSelector: $s) { ... on Schedule {
        scheduleState { id ticks(limit: 1) { status runIds } } } } }"""

    def ticked():
        state = dagster_dev.ask(ticks, s=selector)["scheduleOrError"]["scheduleState"]
        return (
            state["ticks"] and state["ticks"][0]["status"] == "SUCCESS" and (state["id"], state["ticks"][0]["runIds"])
        )

    state, [run, *_] = dagster_dev.until(ticked, "the schedule ticks")
    dagster_dev.ask("mutation($i: String) { stopRunningSchedule(id: $i) { __typename } }", i=state)
    dagster_dev.succeeded(run)
