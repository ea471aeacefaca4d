"""The sensor on what waits in a source."""

import threading
import time

import dagster as dg
import pytest
from frame.limits import set_limits
from frame.waiting import PATIENCE_S
from local.local_pipeline import up
from local.local_run import HOUR, START

from ebbtide import MaterializedView
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions
from ebbtide.errors import PausedError, SpecChangedError
from ebbtide.inspect import status


@pytest.fixture
def pipeline(make):
    return make()


def sensor_of(root, *specs, now_ms=None):
    """The sensor of some pipelines as a function: it takes the cursor of its last tick, and Dagster's instance."""
    [sensor] = [each for each in pipeline_definitions(*specs).sensors if each.name == "ebbtide_backlog"]
    resources = {"storage": StorageResource(root=root), "clock": ClockResource(fixed_ms=now_ms)}

    def look(cursor=None, instance=None):
        with dg.build_sensor_context(
            instance=instance or dg.DagsterInstance.ephemeral(), cursor=cursor, resources=resources
        ) as context:
            return sensor(context)

    return look


@pytest.fixture
def look(pipeline):
    return sensor_of(pipeline.root, pipeline.spec)


def launched(found):
    return [request.job_name for request in found.run_requests]


def execute(pipeline, job, **config):
    """Run a job for a pipeline; return the values that it has observed."""
    jobs = {job.name: job for job in pipeline_definitions(pipeline.spec).jobs}
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource(), "spark": SparkResource()}
    with dg.DagsterInstance.ephemeral() as instance:
        done = jobs[job].execute_in_process(
            run_config={"ops": {f"{job}_op": {"config": config}}},
            resources=resources,
            instance=instance,
            partition_key="t",
        )
        [event] = done.get_asset_observation_events()
    metadata = event.asset_observation_data.asset_observation.metadata
    return {name: value.value for name, value in metadata.items()}


def test_what_waits_is_told_plotted_and_launched_once(pipeline, look):
    pipeline.put(up(1, 1))
    first = look()
    [request] = first.run_requests
    [observation] = first.asset_events
    numbers = {name: value.value for name, value in observation.metadata.items()}
    n_bytes = sum(file.stat().st_size for file in pipeline.source.iterdir())
    assert 0 <= numbers.pop("waiting_seconds") < PATIENCE_S
    assert numbers == {"waiting_files": 1, "waiting_bytes": n_bytes}
    again = look(first.cursor)
    assert (again.run_requests, again.asset_events) == ([], [])
    assert again.skip_reason.skip_message.startswith("t: waiting: 1 file, ")
    pipeline.put(up(2, 2))
    other = look(again.cursor)
    assert other.run_requests[0].run_key != request.run_key
    pipeline.run()
    done = look(other.cursor)
    assert done.run_requests == []
    assert done.skip_reason.skip_message == "nothing waits in the sources of 1 pipeline"
    assert [event.metadata["waiting_files"].value for event in done.asset_events] == [0]


def test_while_a_run_is_under_way_none_is_launched_and_later_one_is(pipeline, look):
    pipeline.put(up(1, 1))
    with dg.DagsterInstance.ephemeral() as instance:
        name = pipeline.spec.name
        job = dg.JobDefinition(name=name, graph_def=dg.GraphDefinition(name))
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        held = look(None, instance)
        assert held.run_requests == []
        assert held.skip_reason.skip_message.endswith("a run is under way")
        instance.report_run_canceled(run)
        assert len(look(held.cursor, instance).run_requests) == 1


@pytest.mark.parametrize("n_failed", [1, 3])
def test_run_that_failed_by_what_may_pass_is_launched_again_after_a_wait(pipeline, n_failed):
    pipeline.put(up(1, 1))
    wait_s = 10 * 2 ** (n_failed - 1)
    with dg.DagsterInstance.ephemeral() as instance:
        first = sensor_of(pipeline.root, pipeline.spec)(None, instance)
        job = dg.JobDefinition(name="t", graph_def=dg.GraphDefinition("t"))
        for _ in range(n_failed):
            run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
            instance.report_run_failed(run)
        [record] = instance.get_run_records(dg.RunsFilter(job_name="t"), limit=1)
        ended_ms = round((record.end_time or record.update_timestamp.timestamp()) * 1000)
        early, late = (
            sensor_of(pipeline.root, pipeline.spec, now_ms=ended_ms + ms) for ms in (1000, wait_s * 1000 + 1)
        )
        held = early(first.cursor, instance)
        assert (held.run_requests, "failed in a row; the next one in" in held.skip_reason.skip_message) == ([], True)
        again = late(held.cursor, instance)
        [request] = again.run_requests
        assert request.run_key != first.run_requests[0].run_key
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        assert late(again.cursor, instance).skip_reason.skip_message.endswith("a run is under way")
        instance.report_run_canceling(run)
        instance.report_run_canceled(run)
        stopped = late(again.cursor, instance)
    assert (stopped.run_requests, "was terminated" in stopped.skip_reason.skip_message) == ([], True)


def test_what_waits_again_behind_a_rewind_is_launched_again(pipeline, look):
    pipeline.put(up(1, 1))
    pipeline.run()
    pipeline.put(up(2, 2))
    with dg.DagsterInstance.ephemeral() as instance:
        first = look(None, instance)
        name = pipeline.spec.name
        job = dg.JobDefinition(name=name, graph_def=dg.GraphDefinition(name))
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.SUCCESS)
        pipeline.run()
        done = look(first.cursor, instance)
        pipeline.do("rewind")
        again = look(done.cursor, instance)
    keys = [request.run_key for each in (first, done, again) for request in each.run_requests]
    assert len(set(keys)) == 2


def test_a_source_that_cannot_be_read_is_reported_and_keeps_no_other_pipeline_from_its_run(make, tmp_path):
    read = make()
    read.put(up(1, 1))
    nowhere = read.spec.source.model_copy(update={"path": str(tmp_path / "nowhere")})
    gone = read.spec.model_copy(update={"name": "gone", "source": nowhere})
    tick = sensor_of(read.root, gone, read.spec)
    first = tick()
    assert launched(first) == ["gone", "t"], "one run fails, and pages"
    read.run()
    again = tick(first.cursor)
    assert again.skip_reason.skip_message.startswith("gone: the next run is refused: The source folder ")


@pytest.mark.parametrize(("refresh", "jobs"), [("on_change", ["totals"]), ("manual", []), ({"every": "5m"}, [])])
def test_view_is_launched_by_the_sensor_only_if_it_follows_its_inputs(pipeline, refresh, jobs):
    pipeline.read(up(1, 1))
    fields = {"query": "SELECT id FROM t", "inputs": ["t"], "schema": "id BIGINT", "key": ["id"]}
    view = MaterializedView(name="totals", **fields, refresh=refresh)
    assert launched(sensor_of(pipeline.root, pipeline.spec, view)()) == jobs


def test_pipeline_whose_runs_are_refused_is_named_at_each_tick_and_its_run_fails_once(pipeline):
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(schema="id BIGINT, n STRING")
    look = sensor_of(pipeline.root, pipeline.spec)
    refused = f"t: the next run is refused: {status(pipeline.spec, pipeline.root).misfit}"
    assert look().skip_reason.skip_message == refused
    pipeline.put(up(2, 1))
    first = look()
    assert launched(first) == ["t"]
    again = look(first.cursor)
    assert (launched(again), again.skip_reason.skip_message.splitlines()[0]) == ([], refused)
    with pytest.raises(SpecChangedError) as error:
        pipeline.run()
    assert refused.endswith(str(error.value))


def test_tick_that_takes_long_leaves_the_rest_to_the_next_one(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    specs = [pipeline.spec.model_copy(update={"name": name}) for name in ("a", "b", "c")]
    set_limits(look_s=-1)
    look = sensor_of(pipeline.root, *specs)
    cursor, jobs = None, []
    for _ in range(4):
        found = look(cursor)
        cursor = found.cursor
        jobs += launched(found)
    assert jobs == ["a", "b", "c"], "each once, in turn"


def test_paused_pipeline_is_launched_by_neither_sensor_nor_schedule(pipeline, look):
    pipeline.put(up(1, 1))
    pipeline.act("pause", clock_ms=0, reason="why")
    spec = pipeline.with_fields(schedules={"stream": "0 * * * *", "cleanup": "0 3 * * *"})
    by_name = {schedule.name: schedule for schedule in pipeline_definitions(spec).schedules}
    resources = {"storage": StorageResource(root=pipeline.root)}

    def launch(name):
        with dg.build_schedule_context(resources=resources) as context:
            return by_name[name].evaluate_tick(context)

    assert "'t' is paused by ann since" in launch("t_schedule").skip_message
    held = look()
    assert held.run_requests == []
    assert "waiting: 1 file" in held.skip_reason.skip_message
    assert "why" in held.skip_reason.skip_message
    pipeline.act("resume", clock_ms=0)
    assert len(launch("t_schedule").run_requests) == 1
    assert len(look(held.cursor).run_requests) == 1


def test_job_pauses_and_resumes(pipeline):
    metadata = execute(pipeline, "ebbtide_pause", reason="why", by="ann")
    assert metadata["next"] == "launch ebbtide_resume"
    assert (metadata["paused"], metadata["by"], metadata["reason"]) == (True, "ann", "why")
    with pytest.raises(PausedError):
        pipeline.run()
    assert execute(pipeline, "ebbtide_resume")["paused"] is False
    pipeline.run()


def test_of_a_run_that_goes_on_what_waits_is_plotted_as_it_ages_and_nothing_is_launched(make):
    pipeline = make(run="continuous")
    tick = sensor_of(pipeline.root, pipeline.spec)
    pipeline.put(up(1, 1))
    first = tick()
    again = tick(first.cursor)
    assert [len(metadata.asset_events) for metadata in (first, again)] == [1, 1]
    assert [metadata.run_requests for metadata in (first, again)] == [[], []]
    pipeline.run(stop=(stop := threading.Event()), on_progress=lambda _: stop.set())
    done = tick(again.cursor)
    assert [len(done.asset_events), len(tick(done.cursor).asset_events)] == [1, 0], "nothing waits: said once"


def test_backfill_s_job_tells_how_far_it_is_and_drops_it(pipeline):
    pipeline.read(up(1, 1))
    pipeline.do("backfill")
    metadata = execute(pipeline, "ebbtide_backfill_status")
    assert metadata["job"] == "backfill_status"
    assert [metadata[f"backfill_{name}"] for name in ("records", "waiting", "percent")] == [1, 0, 100.0]
    assert "records" not in metadata, "that is what the pipeline's own runs plot"
    assert (metadata["next"], "1 record, 100.0 %" in metadata["report"]) == ("launch ebbtide_backfill_swap", True)
    assert execute(pipeline, "ebbtide_backfill_drop")["report"].startswith("t: backfill dropped.")
    metadata = execute(pipeline, "ebbtide_backfill_status")
    assert (metadata["backfill_records"], metadata["next"]) == (0, "launch ebbtide_backfill_start")


def test_run_is_launched_where_nothing_waits_and_entries_have_expired(make):
    pipeline = make(order="arrival", ttl="5h", materializer={"on_expire": "delete"})
    pipeline.read(up(1, 1, "+I"))
    early, late = (sensor_of(pipeline.root, pipeline.spec, now_ms=START + ms) for ms in (4 * HOUR, 6 * HOUR))
    assert launched(early()) == []
    first, again = late(), late()
    [request], [same] = first.run_requests, again.run_requests
    assert (request.job_name, request.run_key) == ("t", same.run_key), "Dagster launches a key once"
    pipeline.run(START + 6 * HOUR)
    assert pipeline.rows() == {}
    assert launched(late()) == []


def test_run_for_expired_entries_that_failed_by_what_may_pass_is_launched_again_after_a_wait(make):
    pipeline = make(order="arrival", ttl="5h", materializer={"on_expire": "delete"})
    pipeline.read(up(1, 1, "+I"))
    job = dg.JobDefinition(name="t", graph_def=dg.GraphDefinition("t"))
    with dg.DagsterInstance.ephemeral() as instance:
        ended_ms = round(time.time() * 1000) + 6 * HOUR
        keys = [sensor_of(pipeline.root, pipeline.spec, now_ms=ended_ms)(None, instance).run_requests[0].run_key]
        instance.report_run_failed(instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED))
        [record] = instance.get_run_records(dg.RunsFilter(job_name="t"))
        ended_ms = round((record.end_time or record.update_timestamp.timestamp()) * 1000)
        for after_ms in (1000, 10_001):
            [request] = sensor_of(pipeline.root, pipeline.spec, now_ms=ended_ms + after_ms)(None, instance).run_requests
            keys.append(request.run_key)
    assert keys == [keys[0], keys[0], f"{keys[0]} after {record.dagster_run.run_id}"], "Dagster launches a key once"
