"""The job that replays quarantined records: launched without settings it reports a plan."""

import json

import dagster as dg
from crashes.disk import DiskPipeline
from local.quarantine_support import by_seq, raws
from operating import operation_named

from ebbtide.dagster import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.operations import operation_job

MENDED = by_seq("id BIGINT NOT NULL, n INT DEFAULT 7, seq INT")


class NoJvm(SparkResource):
    """Lends a pipeline on disk, which does what small steps ask of a session."""

    def teardown_after_execution(self, context):
        """There is nothing to stop."""


def launch(disk, tmp_path, **config):
    spark = NoJvm()
    spark._session = disk
    resources = {"spark": spark, "storage": StorageResource(root=str(tmp_path)), "clock": ClockResource(fixed_ms=0)}
    run_config = {"ops": {"ebbtide_quarantine_replay_op": {"config": config}}}
    job = operation_job(operation_named("quarantine.replay"), [MENDED])
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(resources=resources, run_config=run_config, instance=instance, partition_key="t")
        [event] = done.filter_events(lambda event: event.event_type_value == "ASSET_OBSERVATION")
    disk.reload()
    observed = event.event_specific_data.asset_observation
    assert observed.asset_key == dg.AssetKey("t")
    return {name: value.value for name, value in observed.metadata.items()}


def test_job_plans_by_default_and_replays_when_told_to(tmp_path):
    disk = DiskPipeline(by_seq(), tmp_path)
    disk.step([json.dumps({"kind": "+I", "row": {"id": n, "seq": n}}) for n in (1, 2)])
    disk.step(["{"])
    metadata = launch(disk, tmp_path)
    assert metadata.pop("report").startswith("t: 2 records to replay, 1 left.\n\n- stays: step 2, ")
    assert metadata.pop("next") == "launch ebbtide_quarantine_replay with action: apply"
    assert metadata == {"job": "quarantine_replay: plan", "replayed": 2, "kept": 1, "late": 0, "not_found": 0}
    assert len(raws(disk)) == 3
    one = launch(disk, tmp_path, action="apply", reasons=["missing_column"], steps=[1], limit=1)
    assert (one["replayed"], one["inserted"], one["step"]) == (1, 1, 3)
    assert "next" not in one
    corrected = tmp_path / "corrected.jsonl"
    origin = {"source": "step-1", "partition": 0, "position": 1}
    corrected.write_text(json.dumps({"origin": origin, "raw": '{"kind": "+I", "row": {"id": 2, "n": 9, "seq": 2}}'}))
    assert launch(disk, tmp_path, action="apply", records=str(corrected))["replayed"] == 1
    assert disk.rows() == [{"id": 1, "n": 7, "seq": 1}, {"id": 2, "n": 9, "seq": 2}]
    assert raws(disk) == [b"{"]
