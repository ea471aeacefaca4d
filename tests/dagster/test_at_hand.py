"""The definitions that a run worker loads: those of the job at hand."""

import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

LOCATION = """\
import dagster as dg
from ebbtide import UpsertPipeline
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions

FIELDS = {"format": {"type": "plain"}, "schema": "id BIGINT", "key": ["id"], "order": "arrival"}


def spec(name, **more):
    return UpsertPipeline(name=name, source={"path": name}, **FIELDS, **more)


SPECS = [
    spec("a"),
    spec("b", run="continuous"),
    *(spec(name, group="shop", run="continuous") for name in ("c", "d")),
]
RESOURCES = {"spark": SparkResource(), "storage": StorageResource(), "clock": ClockResource()}


@dg.asset(deps=["a", "c"])
def report(): ...


def all_definitions():
    own = dg.Definitions(assets=[report], jobs=[dg.define_asset_job("both", ["a_state", "a"])], resources=RESOURCES)
    return dg.Definitions.merge(pipeline_definitions(*SPECS), own)


@dg.definitions
def defs():
    return all_definitions()


made = all_definitions()
"""


@pytest.fixture
def load(tmp_path):
    """Load a location as a run worker does for a job, or as the code location itself; return what it has."""
    file = tmp_path / "location.py"
    file.write_text(LOCATION)

    def load(job=None, name="defs"):
        repository = ReconstructableRepository.for_file(str(file), name)
        if job is None:
            found = repository.get_definition()
        else:
            worker = repository.get_reconstructable_job(job)
            found = worker.get_repository_definition()
            assert worker.get_definition().name == job
        graph = found.asset_graph
        tables = {key.to_user_string() for key in graph.materializable_asset_keys} - {"report"}
        checked = {key.asset_key.to_user_string() for key in graph.asset_check_keys}
        jobs = {each for each in found.job_names if not each.startswith("__")} - {"both"}
        return tables, checked, jobs

    return load


def of(*names):
    return {table for name in names for table in (name, f"{name}_state")}


@pytest.mark.parametrize(
    ("job", "tables", "checked", "jobs"),
    [
        ("a", of("a"), {"a"}, {"a"}),
        ("b_check", of("b"), {"b"}, {"b", "b_check"}),
        ("c", of("c", "d"), {"c"}, {"c", "c_check", "ebbtide_follow_shop"}),
        ("ebbtide_follow_shop", of("c", "d"), {"c", "d"}, {"c", "c_check", "d", "d_check", "ebbtide_follow_shop"}),
        ("ebbtide_cleanup", set(), set(), {"ebbtide_cleanup"}),
    ],
)
def test_worker_of_a_run_builds_what_its_job_needs(load, job, tables, checked, jobs):
    assert load(job) == (tables, checked, jobs)


@pytest.mark.parametrize("job", ["both", "__ASSET_JOB"])
def test_worker_of_a_job_of_the_project_builds_all(load, job):
    tables, checked, jobs = load(job)
    assert tables == of("a", "b", "c", "d")
    assert checked == {"a", "b", "c", "d"}
    assert {"a", "ebbtide_cleanup"} < jobs


def test_module_that_is_loaded_once_for_all_jobs_has_all(load):
    tables, _, _ = load("a", "made")
    assert tables == of("a", "b", "c", "d")


def test_code_location_has_all(load):
    assert load() == load("both")
