"""A run that goes on for ever, kept going by Dagster: killed, its JVM killed, at the end of its age."""

import os
import signal

import pytest
from clusters.spark_support import change, write

from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.processes import Process
from ebbtide.runtime import Plan

pytestmark = pytest.mark.grid


def test_run_is_followed_by_the_next_one_after_kills_and_of_age(dagster_dev, home, spec):
    plan = Plan.under(str(home / "root"), spec("steady"))

    def put_and_wait_for(number):
        write(home / "in" / "steady", [change("+I", number, f"v{number}", number)], first=number)
        dagster_dev.until(lambda: (last := plan.state.last()) and last[1].step >= number, f"step {number} is made")

    def statuses():
        return [status for _, status in dagster_dev.runs("steady")]

    write(home / "in" / "steady")
    with dagster_dev.sensor("ebbtide_keep_running"):
        put_and_wait_for(1)
        process = plan.ledger.turn.holder.partition("/")[0]
        os.kill(int(Process(process).pid), signal.SIGKILL)
        dagster_dev.until(lambda: statuses()[:1] == ["FAILURE"], "the worker's end is noticed")

        put_and_wait_for(2)
        [jvm] = dagster_dev.jvms()
        os.kill(jvm, signal.SIGKILL)
        dagster_dev.until(lambda: statuses()[1:2] == ["FAILURE"], "the JVM's end is noticed")

        put_and_wait_for(3)
        dagster_dev.until(lambda: "SUCCESS" in statuses()[2:-1], "the run hands over")
        put_and_wait_for(4)
        [check, *_] = [run for run, _ in dagster_dev.runs("steady_check")]
        dagster_dev.succeeded(check)
        assert dagster_dev.verdicts(check) == {check.name: True for check in CHECKS}
        steps = [facts.step for _, facts in plan.state.steps()][::-1]
        assert steps == list(range(1, len(steps) + 1))
    last, _ = dagster_dev.runs("steady")[-1]
    dagster_dev.terminate(last)
    assert dagster_dev.end_of(last) in {"CANCELED", "SUCCESS"}
    dagster_dev.until(lambda: not dagster_dev.jvms(), "no JVM is left", 60)
