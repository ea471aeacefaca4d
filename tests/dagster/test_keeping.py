"""The sensor that keeps a run going that has no end: when the next one is launched, and when none is."""

import dagster as dg
import pytest
from clusters.spark_support import plain_spec
from operating import act

from ebbtide import InProcess
from ebbtide.dagster import StorageResource, pipeline_definitions
from ebbtide.dagster.components import DEFAULT_RESOURCES
from ebbtide.dagster.ended import Ended, reason_to_wait
from ebbtide.dagster.supervise import supervised
from ebbtide.errors import SourceLostError, SourceUnavailableError
from ebbtide.operations import Context

LONGEST_WAIT_S = 1800.0


SUCCESS, FAILURE, CANCELED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED


def ended(*statuses, **how):
    return [Ended(str(number), status, 100.0, **how) for number, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("runs", "after_s", "is_launched"),
    [
        ([], 0, True),
        (ended(SUCCESS), 0, True),
        (ended(FAILURE), 9, False),
        (ended(FAILURE), 10, True),
        (ended(CANCELED), 10, True),  # the worker's machine was shut down: no user has asked for it
        (ended(FAILURE, FAILURE, FAILURE, SUCCESS), 39, False),
        (ended(FAILURE, FAILURE, FAILURE, SUCCESS), 40, True),
        (ended(*[FAILURE] * 10), LONGEST_WAIT_S, True),
        (ended(CANCELED, is_wanted=True), 10**6, False),
        (ended(FAILURE, is_lasting=True), 10**6, False),
    ],
)
def test_next_run_is_launched_after_age_and_crash_and_not_after_what_stays(runs, after_s, is_launched):
    assert (reason_to_wait(runs, 100.0 + after_s) is None) == is_launched


@pytest.fixture
def location(tmp_path):
    spec = plain_spec(tmp_path, run="continuous", max_run_age="12h")
    return dg.Definitions.merge(pipeline_definitions(spec), dg.Definitions(resources=DEFAULT_RESOURCES))


def tick(location, instance, **resources):
    sensor = location.resolve_sensor_def("ebbtide_keep_running")
    with dg.build_sensor_context(instance=instance, resources=DEFAULT_RESOURCES | resources) as context:
        evaluated = sensor.evaluate_tick(context)
    return [request.job_name for request in evaluated.run_requests], evaluated.skip_message


def failing(error):
    @dg.op
    def fail():
        def work(report, stop):
            raise error

        supervised(work)

    @dg.job(name="plain")
    def job():
        fail()

    return job


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SourceUnavailableError("away"), "1 runs have failed in a row"),
        (SourceLostError("gone"), "the last run failed with an error that does not pass by itself"),
        (ConnectionError("the JVM is gone"), "1 runs have failed in a row"),
    ],
)
def test_failed_run_tells_whether_a_later_one_may_succeed(location, error, said):
    with dg.DagsterInstance.ephemeral() as instance:
        assert tick(location, instance)[0] == ["plain"]
        failing(error).execute_in_process(instance=instance, raise_on_error=False)
        requests, skipped = tick(location, instance)
        assert requests == []
        assert skipped.startswith(f"plain: {said}")


def test_run_that_ended_of_age_is_judged_and_followed_and_one_under_way_is_left(location):
    stream = location.resolve_job_def("plain")
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(stream, status=dg.DagsterRunStatus.STARTED)
        assert tick(location, instance) == ([], "plain: a run is under way")
        instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, "plain"), run_id=run.run_id
        )
        assert tick(location, instance)[0] == ["plain_check", "plain"]


def test_no_run_is_launched_while_the_pipeline_is_paused(location, tmp_path):
    root = str(tmp_path / "root")
    act("pause", "apply", Context(plain_spec(tmp_path), root, InProcess(), "someone"), reason="the broker moves")
    storage = StorageResource(root=root)
    with dg.DagsterInstance.ephemeral() as instance:
        requests, skipped = tick(location, instance, storage=storage)
        assert requests == []
        assert "the broker moves" in skipped
        job = location.resolve_job_def("plain")
        instance.create_run_for_job(job, status=SUCCESS)
        assert tick(location, instance, storage=storage)[0] == ["plain_check"]


def test_run_that_was_terminated_stays_ended(location):
    stream = location.resolve_job_def("plain")
    with dg.DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(stream, status=dg.DagsterRunStatus.STARTED)
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)
        assert tick(location, instance) == ([], "plain: the last run was terminated; launch the next one by hand")


def test_checks_of_a_run_that_goes_on_are_a_job_beside_it(location):
    nodes = {name: [node.name for node in location.resolve_job_def(name).nodes] for name in ("plain", "plain_check")}
    assert nodes == {"plain": ["plain_reconcile"], "plain_check": ["plain_checks"]}
    pools = {
        name: {pool for node in location.resolve_job_def(name).nodes for pool in node.definition.pools}
        for name in nodes
    }
    assert pools == {"plain": {"checkpoint_plain"}, "plain_check": {"maintenance_plain"}}
    assert sorted(each.name for each in location.schedules) == [
        *(f"ebbtide_{kind}_schedule" for kind in ("cleanup", "compaction", "vacuum")),
        "plain_check_schedule",
    ]


def test_sink_of_a_run_without_age_is_never_called_stale(tmp_path):
    def policy(**fields):
        [assets] = pipeline_definitions(plain_spec(tmp_path, **fields)).assets
        return {spec.key.to_user_string(): spec.freshness_policy for spec in assets.specs}["plain"]

    assert policy() is not None
    assert policy(run="continuous") is None, "nothing is materialized while it goes on"
    assert policy(run="continuous", max_run_age="12h") is not None
