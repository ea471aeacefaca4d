"""Up to where a check was judged good."""

import dagster as dg
import pytest
from clusters.spark_support import plain_spec
from frame.circumstances import assume
from local.local_pipeline import up
from local.local_run import START

from ebbtide.dagster import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.checks import _last_good, sink_checks

KEY = dg.AssetCheckKey(dg.AssetKey("plain"), "ordering")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def evaluate(instance, passed, **metadata):
    evaluation = dg.AssetCheckEvaluation(KEY.asset_key, KEY.name, passed=passed, metadata=metadata)
    instance.report_runless_asset_event(evaluation)


def test_versions_of_the_last_good_verdict_are_remembered_past_bad_ones(instance):
    assert _last_good(instance, KEY) is None
    evaluate(instance, True, judged=dg.MetadataValue.json({"sink": 1, "state": 2}))
    evaluate(instance, True, judged=dg.MetadataValue.json({"sink": 3, "state": 4}))
    evaluate(instance, False, judged=dg.MetadataValue.json({"sink": 5, "state": 6}))
    evaluate(instance, True)
    assert _last_good(instance, KEY) == {"sink": 3, "state": 4}


def test_blocking_checks_come_last_and_the_projects_own_after_ordering(tmp_path):
    rule = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}
    specs = list(sink_checks(plain_spec(tmp_path, checks={"expectations": [rule]})).check_specs)
    assert [spec.name for spec in specs][-3:] == ["ordering", "complete", "expectations"]
    assert [spec.name for spec in specs if spec.blocking] == ["ordering", "complete", "expectations"]


def test_small_tables_are_judged_without_a_session(make, instance, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    checks = sink_checks(pipeline.spec)
    assume("without Spark")
    storage = StorageResource(root=pipeline.root, data_docs=str(tmp_path / "docs"))
    definitions = dg.Definitions(
        assets=[dg.AssetSpec(pipeline.spec.name)],
        asset_checks=[checks],
        jobs=[dg.define_asset_job("judge", selection=dg.AssetSelection.checks(checks))],
        resources={"spark": SparkResource(), "storage": storage, "clock": ClockResource(fixed_ms=START)},
    )
    job = definitions.resolve_job_def("judge")
    evaluations = job.execute_in_process(instance=instance).get_asset_check_evaluations()
    assert {each.check_name: each.passed for each in evaluations} == {spec.name: True for spec in checks.check_specs}
    assert all("judged" in each.metadata for each in evaluations)
