"""Rounds: one run tends the pipelines of a group in one process, and one that fails keeps no other one from its turn."""

import dagster as dg
import pytest
from crashes.damages import FOREIGN
from local.local_pipeline import LocalPipeline, up

from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions
from ebbtide.dagster.resources import EngineName
from ebbtide.ledger import Lease

JOB = "ebbtide_round_shop"
OP = f"{JOB}_op"
NAMES = ("a", "b", "c")
OPERATIONS = ("cleanup", "compaction", "vacuum")


class Group:
    """Pipelines of one group, each with a record.

    Args:
        folder: Takes their sources and tables.
    """

    def __init__(self, folder):
        self.pipelines = {name: LocalPipeline(folder / name, name=name, group="shop") for name in NAMES}
        for pipeline in self.pipelines.values():
            pipeline.root = str(folder / "root")
            pipeline.put(up(1, 7))
        resources = {
            "spark": SparkResource(engine=EngineName.local),
            "storage": StorageResource(root=str(folder / "root"), data_docs=str(folder / "docs")),
            "clock": ClockResource(),
        }
        made = pipeline_definitions(*(pipeline.spec for pipeline in self.pipelines.values()))
        self.definitions = dg.Definitions.merge(made, dg.Definitions(resources=resources))
        self.instance = dg.DagsterInstance.ephemeral()

    def round(self, **config):
        """Make a round."""
        job = self.definitions.resolve_job_def(JOB)
        run_config = {"ops": {OP: {"config": config}}}
        return job.execute_in_process(instance=self.instance, raise_on_error=False, run_config=run_config)

    def rows(self):
        return {name: pipeline.rows() for name, pipeline in self.pipelines.items()}


@pytest.fixture
def group(tmp_path):
    made = Group(tmp_path)
    with made.instance:
        yield made


def events(group, result):
    """Return the events of a round as Dagster keeps them, also of one that has failed."""
    entries = group.instance.all_logs(result.run_id)
    return [entry.get_dagster_event().event_specific_data for entry in entries if entry.is_dagster_event]


def materialized(group, result):
    kept = [each for each in events(group, result) if hasattr(each, "materialization")]
    return {each.materialization.asset_key.to_user_string() for each in kept}


def evaluations(group, result):
    return [each for each in events(group, result) if isinstance(each, dg.AssetCheckEvaluation)]


def judged(group, result):
    """Return the pipelines that passed their checks."""
    return {each.asset_key.to_user_string() for each in evaluations(group, result) if each.passed}


def maintained(group, result):
    """Return the operations that each pipeline had, by its observations."""
    found = {}
    for each in events(group, result):
        observation = getattr(each, "asset_observation", None)
        job = observation and observation.metadata.get("job")
        if job:
            pipeline = observation.asset_key.to_user_string().removesuffix("_state")
            found[pipeline] = (*found.get(pipeline, ()), job.value.partition(":")[0])
    return found


def failure_of(result):
    return result.failure_data_for_node(OP).user_failure_data


def test_round_runs_checks_and_maintains_all_pipelines_of_a_group_in_one_run(group):
    result = group.round()
    assert result.success
    assert materialized(group, result) == {*NAMES, *(f"{name}_state" for name in NAMES)}
    assert judged(group, result) == set(NAMES)
    assert maintained(group, result) == dict.fromkeys(NAMES, OPERATIONS)
    assert group.rows() == {name: {1: 7} for name in NAMES}


def test_checks_of_a_round_are_those_that_the_next_ones_begin_after(group):
    assert group.round().success
    group.pipelines["a"].put(up(2, 8))
    second = group.round()
    [judged_again] = [
        each.metadata["sink_versions"].value
        for each in evaluations(group, second)
        if each.asset_key == dg.AssetKey("b") and each.check_name == "ordering"
    ]
    assert judged_again.startswith("none after")


def test_pipeline_that_fails_is_named_and_keeps_no_other_one_from_its_turn(group):
    bad = group.pipelines["a"]
    bad.source.rename(bad.source.with_name("aside"))
    result = group.round()
    assert not result.success
    assert materialized(group, result) == {"b", "b_state", "c", "c_state"}
    assert set(maintained(group, result)) == {"b", "c"}
    assert failure_of(result).description.startswith("a: SourceReadError: The source folder")


def test_lease_that_is_held_is_tried_again_at_the_end_and_named_if_it_is_still_held(group):
    held = group.pipelines["a"].plan.at("ledger")
    assert group.round(check=False, maintain=False).success
    for pipeline in group.pipelines.values():
        pipeline.put(up(2, 8))
    with Lease(held, "another run", 60):
        result = group.round(check=False, maintain=False)
    assert materialized(group, result) == {"b", "b_state", "c", "c_state"}
    assert failure_of(result).description.startswith("a: LeaseHeldError")
    assert failure_of(result).metadata["is_transient"].value
    assert group.round().success
    assert group.rows() == {name: {1: 7, 2: 8} for name in NAMES}


def test_check_that_blocks_and_fails_leaves_its_pipeline_without_maintenance(group):
    assert group.round().success
    group.pipelines["b"].put(up(2, 8))
    FOREIGN["delete"](group.pipelines["b"])
    result = group.round()
    red = {each.asset_key.to_user_string() for each in evaluations(group, result) if not each.passed}
    assert red == {"b"}
    assert {"a", "c"} <= set(maintained(group, result))


def test_only_those_that_are_chosen_are_tended(group):
    result = group.round(pipelines=["b"], check=False)
    assert materialized(group, result) == {"b", "b_state"}
    assert set(maintained(group, result)) == {"b"}
    assert not evaluations(group, result)
    unknown = group.round(pipelines=["z"])
    assert "no such pipelines: z" in failure_of(unknown).description


def test_paused_pipeline_is_left_out(group):
    assert group.round().success
    group.pipelines["a"].act("pause", reason="a migration", by="me")
    group.pipelines["a"].put(up(2, 8))
    result = group.round()
    assert result.success
    assert materialized(group, result) == {"b", "b_state", "c", "c_state"}


def test_group_of_one_has_no_rounds(tmp_path):
    made = pipeline_definitions(LocalPipeline(tmp_path, name="a", group="alone").spec)
    assert not [job.name for job in made.jobs if job.name.startswith("ebbtide_round")]
