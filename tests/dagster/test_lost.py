"""Runs whose process was lost without a word are reported as failed, so that the next one is launched."""

import os
import subprocess
import sys

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from local.local_pipeline import LocalPipeline, up

from ebbtide.dagster import ClockResource, StorageResource, pipeline_definitions

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


@pytest.fixture
def instance(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def ended_process():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def started(instance, pid, name="t"):
    """Have a run under way in a process."""

    @dg.job(name=name)
    def job(): ...

    run = instance.create_run_for_job(job, status=STARTED, tags={"ebbtide/pipeline": name})
    instance.report_engine_event("Started process for run.", run, EngineEventData.in_process(pid))
    return run.run_id


def tick(instance, pipeline):
    made = pipeline_definitions(pipeline.spec)
    [sensor] = [each for each in made.sensors if each.name in {"ebbtide_backlog", "ebbtide_keep_running"}][-1:]
    resources = {"storage": StorageResource(root=pipeline.root), "clock": ClockResource()}
    with dg.build_sensor_context(instance, resources=resources) as context:
        return sensor(context)


@pytest.mark.parametrize("run", ["bounded", "continuous"])
def test_run_of_a_process_that_has_ended_is_reported_as_failed(instance, tmp_path, run):
    pipeline = LocalPipeline(tmp_path, run=run)
    pipeline.put(up(1, 1))
    lost = started(instance, ended_process())
    tick(instance, pipeline)
    assert instance.get_run_by_id(lost).status is FAILURE


def test_run_of_a_process_that_lives_or_of_another_location_is_left_alone(instance, tmp_path):
    alive, others = started(instance, os.getpid()), started(instance, ended_process(), "elsewhere")
    tick(instance, LocalPipeline(tmp_path))
    assert {instance.get_run_by_id(run).status for run in (alive, others)} == {STARTED}
