"""Runs in processes that Dagster really launched."""

import pytest
from spark_support import change, write

from ebbtide.delta import log
from ebbtide.errors import LeaseHeldError
from ebbtide.quality.checks import CHECKS
from ebbtide.runtime.driver import run as run_pipeline

FILES = 30
"""A file a step: so many that a run is still under way when it is to be ended."""


def rows(spark, home, name):
    sink = spark.read.format("delta").load(str(home / "root" / name / "sink"))
    return sorted((row["id"], row["v"]) for row in sink.collect())


def test_run_succeeds_with_all_checks_passed(dagster_dev, sales_run):
    assert dagster_dev.verdicts(sales_run) == {check.name: True for check in CHECKS}
    asset, numbers = dagster_dev.observed(sales_run)[0]
    assert asset == "sales"
    assert {"step": 1, "records": 2, "inserted": 2}.items() <= numbers.items()


def test_terminated_run_leaves_nothing_and_the_next_runs_carry_on_in_turn(spark, dagster_dev, home, spec):
    write(
        home / "in" / "long", *[[change("+I", n * 10 + k, f"v{n}", n * 10 + k) for k in range(5)] for n in range(FILES)]
    )
    run = dagster_dev.launch("long_stream")
    dagster_dev.until(lambda: dagster_dev.observed(run), "the first step is reported")
    dagster_dev.ask("mutation($r: String!) { terminateRun(runId: $r) { __typename } }", r=run)
    assert dagster_dev.end_of(run) == "CANCELED"
    dagster_dev.until(lambda: not dagster_dev.jvms(), "no JVM is left", 60)
    assert len(rows(spark, home, "long")) < FILES * 5
    attempts = [e for e in dagster_dev.events(run) if e["__typename"] == "ExecutionStepRestartEvent"]
    assert attempts == []

    second, third = dagster_dev.launch("long_stream"), dagster_dev.launch("long_stream")
    ledger = home / "root" / "long" / "ledger"
    before = log.versions(str(ledger))[-1]
    dagster_dev.until(lambda: log.versions(str(ledger))[-1] > before, "the second run holds the lease")
    assert dagster_dev.status(third) == "QUEUED"
    with pytest.raises(LeaseHeldError, match=r"Pipeline 'long' is being run by process \d+ on"):
        run_pipeline(spark, spec("long"), str(home / "root"))
    assert dagster_dev.status(second) == "STARTED"
    dagster_dev.succeeded(second)
    assert rows(spark, home, "long") == [(n * 10 + k, f"v{n}") for n in range(FILES) for k in range(5)]
    assert all(dagster_dev.verdicts(second).values())
    dagster_dev.until(lambda: dagster_dev.status(third) in {"STARTING", "STARTED"}, "the third run's turn has come")
    dagster_dev.ask("mutation($r: String!) { terminateRun(runId: $r) { __typename } }", r=third)
    assert dagster_dev.end_of(third) in {"CANCELED", "SUCCESS"}


def test_schedule_ticks_and_launches_cleanup(dagster_dev):
    name = "ticking_cleanup_schedule"
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
