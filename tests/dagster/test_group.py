"""The continuous pipelines of a group as one asset job: one run follows all of them, and a bad one stops no other."""

import dagster as dg
import pytest
from local.local_pipeline import LocalPipeline, up

from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions
from ebbtide.dagster.resources import EngineName
from ebbtide.runtime._following import Age

IS_TRANSIENT = "is_transient"


NAMES = ("a", "b", "c")
JOB = "ebbtide_follow_shop"
CONTINUOUS = {"group": "shop", "run": "continuous", "max_run_age": "1h", "trigger_interval": "10ms"}


class Group:
    """Pipelines of one group, each with a record.

    Args:
        folder: Takes their sources and tables.
    """

    def __init__(self, folder, **more):
        self.root = str(folder / "root")
        self.pipelines = {name: LocalPipeline(folder / name, **{"name": name, **CONTINUOUS, **more}) for name in NAMES}
        for number, pipeline in enumerate(self.pipelines.values()):
            pipeline.root = self.root
            pipeline.put(up(1, number))
        self.specs = [pipeline.spec for pipeline in self.pipelines.values()]
        self.resources = {
            "spark": SparkResource(engine=EngineName.local),
            "storage": StorageResource(root=self.root, data_docs=str(folder / "docs")),
            "clock": ClockResource(),
        }
        made = pipeline_definitions(*self.specs)
        self.definitions = dg.Definitions.merge(made, dg.Definitions(resources=self.resources))

    def run(self, job, instance, *names, **how):
        """Run a job until some pipelines have read all, as if one of them were as old as it may get then."""

        def look(age):
            if all(self.pipelines[name].rows() for name in names or NAMES):
                age.is_reached = True
                age._stop.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Age, "look", look)
            return self._run(job, instance, **how)

    def _run(self, job, instance, **how):
        return self.definitions.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, **how)

    def rows(self):
        return {name: pipeline.rows() for name, pipeline in self.pipelines.items()}


@pytest.fixture
def group(tmp_path):
    return Group(tmp_path)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def materialized(result):
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}


def test_groups_are_those_with_several_pipelines_that_go_on(group):
    first, *_ = group.specs
    bounded = first.model_copy(update={"run": "bounded", "name": "d"})
    alone = first.model_copy(update={"group": "other", "name": "e"})
    made = pipeline_definitions(*group.specs, bounded, alone)
    [job] = [job.name for job in made.jobs if job.name.startswith("ebbtide_follow_")]
    assert job == JOB


def test_one_run_follows_all_pipelines_of_a_group(group, instance):
    result = group.run(JOB, instance)
    assert result.success
    assert materialized(result) == {*NAMES, *(f"{name}_state" for name in NAMES)}
    assert group.rows() == {"a": {1: 0}, "b": {1: 1}, "c": {1: 2}}
    observed = {event.asset_key.to_user_string() for event in result.get_asset_observation_events()}
    assert observed == set(NAMES)


def test_job_of_one_pipeline_follows_that_one_alone(group, instance):
    result = group.run("b", instance, "b")
    assert result.success
    assert materialized(result) == {"b", "b_state"}
    assert group.rows() == {"a": {}, "b": {1: 1}, "c": {}}


def test_bad_pipeline_is_named_and_keeps_no_other_one_from_being_followed(group, instance):
    bad = group.pipelines["b"]
    bad.source.rename(bad.source.with_name("aside"))
    result = group.run(JOB, instance, "a", "c")
    assert not result.success
    assert materialized(result) == {"a", "a_state", "c", "c_state"}
    assert group.rows() == {"a": {1: 0}, "b": {}, "c": {1: 2}}
    failure = result.failure_data_for_node(JOB).user_failure_data
    assert failure.description.startswith("b: SourceReadError: The source folder")
    assert failure.metadata[IS_TRANSIENT].value, "the next run goes on with the good ones"
    sensor = group.definitions.resolve_sensor_def("ebbtide_keep_running")
    with dg.build_sensor_context(instance=instance, resources=group.resources) as context:
        looked = sensor.evaluate_tick(context)
    assert looked.skip_message.startswith(f"{JOB}: 1 runs have failed in a row")


def test_group_is_kept_running_by_its_job_alone(group, instance):
    sensor = group.definitions.resolve_sensor_def("ebbtide_keep_running")
    with dg.build_sensor_context(instance=instance, resources=group.resources) as context:
        first = sensor.evaluate_tick(context)
    assert [request.job_name for request in first.run_requests] == [JOB]
    assert group.run(JOB, instance).success
    with dg.build_sensor_context(instance=instance, resources=group.resources) as context:
        next_ones = sensor.evaluate_tick(context)
    assert [request.job_name for request in next_ones.run_requests] == [*(f"{name}_check" for name in NAMES), JOB]


def test_refresh_rebuilds_the_pipelines_that_are_chosen(group, instance):
    assert group.run(JOB, instance).success
    config = {"ops": {JOB: {"config": {"refresh": True}}}}
    assert group.run("a", instance, run_config=config).success
    steps = {name: pipeline.last.step for name, pipeline in group.pipelines.items()}
    assert steps["a"] > steps["b"] == steps["c"]
    assert group.rows()["a"] == {1: 0}


def test_refresh_that_finds_bad_records_alone_fails_for_its_pipeline(group, instance):
    [file] = group.pipelines["b"].source.iterdir()
    file.write_text("{}\n")
    config = {"ops": {JOB: {"config": {"refresh": True}}}}
    result = group.run(JOB, instance, run_config=config)
    assert materialized(result) == {"a", "a_state", "c", "c_state"}
    failure = result.failure_data_for_node(JOB).user_failure_data
    assert failure.description.startswith("b: ConfigError: All records that 'b' has read were bad")
