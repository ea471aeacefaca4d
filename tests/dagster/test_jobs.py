"""The schedules of operations, which are for all pipelines, and the runs that they launch."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from clusters.spark_support import plain_spec
from dagster._utils.schedules import schedule_execution_time_iterator
from frame.limits import limits, set_limits
from local.local_pipeline import up
from local.local_run import HOUR
from local.local_run import START as START_MS

from ebbtide.cron import Cron
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions
from ebbtide.dagster.components import DEFAULT_RESOURCES
from ebbtide.dagster.operations import operation_job
from ebbtide.errors import LeaseHeldError
from ebbtide.operations import Operation, Report
from ebbtide.runtime import Phase

START = datetime(2026, 1, 25, tzinfo=UTC)
MONTH = timedelta(days=35)


@pytest.mark.parametrize(
    "cron",
    [
        "7 3 * * *",
        "*/20 8-9 * * mon-fri",
        "0 0 1,15 * fri",
        "0 12 */2 * 7",
        "0 12 * feb 0",
        "30 6 31 * *",
        "2-59/15 4 * 2 sat,sun",
        "0 1 1-3 * */2",
        "0 1 1-31 * mon",
        "0 1 13 * 0-7",
        "0 1 */1 * mon",
        "0 1 13 * */1",
    ],
)
def test_pipeline_is_due_at_exactly_the_ticks_that_dagster_makes_of_its_cron(cron):
    ticks = []
    for tick in schedule_execution_time_iterator(START.timestamp(), cron, "UTC", ascending=True):
        if tick >= START + MONTH:
            break
        ticks.append(tick)
    minutes = (START + timedelta(minutes=n) for n in range(int(MONTH.total_seconds() // 60)))
    assert [minute for minute in minutes if Cron(cron).is_due(minute)] == ticks
    assert ticks


def test_schedule_of_an_operation_launches_it_for_the_pipelines_that_are_due(tmp_path):
    crons = {"a": "5 3 * * *", "b": "*/5 3 * * *", "c": "7 3 * * mon"}
    specs = [plain_spec(tmp_path, name=name, schedules={"cleanup": cron}) for name, cron in crons.items()]
    off = plain_spec(tmp_path, name="d", schedules={"cleanup": None})
    definitions = dg.Definitions.merge(pipeline_definitions(*specs, off), dg.Definitions(resources=DEFAULT_RESOURCES))
    schedule = definitions.resolve_schedule_def("ebbtide_cleanup_schedule")
    assert schedule.cron_schedule == sorted(crons.values())

    def launched(hour, minute):
        at = datetime(2026, 2, 2, hour, minute, tzinfo=UTC)
        repository = definitions.get_repository_def()
        resources = {"storage": StorageResource(root=str(tmp_path)), "clock": ClockResource()}
        with dg.build_schedule_context(
            scheduled_execution_time=at, repository_def=repository, resources=resources
        ) as context:
            requests = schedule.evaluate_tick(context).run_requests
        for request in requests:
            assert request.tags["ebbtide/turn"] == f"checkpoint_{request.partition_key}"
        return [request.partition_key for request in requests]

    assert [launched(3, minute) for minute in (5, 7, 10)] == [["a", "b"], ["c"], ["b"]]


def renamed(spec, name):
    return spec.model_copy(update={"name": name})


def test_cleanup_starts_before_its_time_where_it_would_win_enough(make):
    early = {"look": "*/5 * * * *", "min_share": 0.5, "min_bytes": 0}
    pipeline = make(ttl="1h", schedules={"cleanup": "7 3 * * *", "early_cleanup": early})
    by_time = renamed(pipeline.with_fields(schedules={"cleanup": "7 3 * * *", "early_cleanup": None}), "by_time")
    nothing_expires = renamed(pipeline.with_fields(ttl=None), "kept")
    specs = [pipeline.spec, by_time, nothing_expires]
    definitions = dg.Definitions.merge(pipeline_definitions(*specs), dg.Definitions(resources=DEFAULT_RESOURCES))
    storage = StorageResource(root=pipeline.root)
    schedule = definitions.resolve_schedule_def("ebbtide_cleanup_schedule")
    assert schedule.cron_schedule == ["*/5 * * * *", "7 3 * * *"]
    repository = definitions.get_repository_def()

    def launched(minute, instance, clock_ms=START_MS):
        at = datetime(2026, 2, 2, 3, minute, tzinfo=UTC)
        resources = {"storage": storage, "clock": ClockResource(fixed_ms=clock_ms)}
        with dg.build_schedule_context(instance, at, repository_def=repository, resources=resources) as context:
            tick = schedule.evaluate_tick(context)
        return [request.partition_key for request in tick.run_requests] or tick.skip_message

    with dg.instance_for_test() as instance:
        assert launched(5, instance) == "t: no step was made"
        pipeline.read(*(up(number, number, "-D") for number in range(4)), up(9, 9), clock_ms=START_MS)
        assert launched(5, instance) == "t: nothing has expired"
        assert launched(7, instance) == ["t", "by_time", "kept"]
        pipeline.read(up(8, 8), clock_ms=START_MS)
        later_ms = START_MS + 2 * HOUR
        assert launched(10, instance, later_ms) == ["t"], "no run has ticked since"
        with limits(judging_rows_in_driver=1):
            assert launched(10, instance, later_ms).startswith("t: A schedule looks at tables without Spark.")
        instance.create_run_for_job(
            definitions.resolve_job_def("ebbtide_cleanup"),
            tags={"dagster/partition": "t"},
            status=dg.DagsterRunStatus.STARTED,
        )
        assert launched(10, instance, later_ms) == "t: a run is under way"


class Held(Operation):
    """Find the lease held, twice."""

    name = "held"
    seen: list[str] = []  # noqa: RUF012 - of the class, as Dagster copies nothing of it

    def apply(self, ctx, params):
        self.seen.append(ctx.spec.name)
        ctx.on_phase(Phase(ctx.spec.name, "reading", step=8))
        if len(self.seen) < 3:
            raise LeaseHeldError("held")
        ctx.on_phase(Phase(ctx.spec.name, "cleanup, step 7"))
        return Report(ctx.spec.name, ["done."])


def execute(operation, specs, root, **chosen):
    resources = {"storage": StorageResource(root=root), "clock": ClockResource(), "spark": SparkResource()}
    with dg.DagsterInstance.ephemeral() as instance:
        job = operation_job(operation, specs)
        done = job.execute_in_process(resources=resources, instance=instance, raise_on_error=False, **chosen)
        return done, [entry.user_message for entry in instance.all_logs(done.run_id)]


def test_operation_waits_for_the_lease_and_works_on_the_pipeline_that_was_chosen(tmp_path):
    set_limits(wait_s=0)
    specs = [plain_spec(tmp_path, name=name) for name in ("a", "b")]
    done, said = execute(Held(), specs, str(tmp_path), partition_key="b")
    assert done.success
    assert [line for line in said if line.startswith("b:")] == ["b: cleanup, step 7", "b: done."]
    assert Held.seen == ["b", "b", "b"]
    [event] = done.get_asset_observation_events()
    assert event.asset_observation_data.asset_observation.asset_key == dg.AssetKey("b")


@pytest.mark.parametrize(("tags", "got"), [({}, "none"), ({"dagster/partition": "ghost"}, "ghost")])
def test_run_for_no_pipeline_or_an_unknown_one_is_refused_with_the_names(tmp_path, tags, got):
    specs = [plain_spec(tmp_path, name=name) for name in ("a", "b")]
    [failure] = execute(Held(), specs, str(tmp_path), tags=tags)[0].get_step_failure_events()
    said = failure.step_failure_data.user_failure_data.description
    assert f"is not the name of a pipeline. Got: {got}. Allowed: a, b. Choose one in the launchpad" in said


def test_bounded_run_waits_for_the_lease_too(make, monkeypatch):
    pipeline = make()
    pipeline.read(up(1, 1))
    calls = []

    def run(*arguments, **named):
        calls.append(arguments)
        raise LeaseHeldError("held")

    monkeypatch.setattr("ebbtide.run", run)
    set_limits(wait_s=0, most_waits=2)
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource(), "spark": SparkResource()}
    found = dg.materialize(pipeline_definitions(pipeline.spec).assets, resources=resources, raise_on_error=False)
    assert not found.success
    assert len(calls) == 3
