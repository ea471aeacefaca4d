"""Reports of a run to Dagster; the session of the tests stands for the run's own."""

import json
from collections import Counter

import dagster as dg
import pyarrow as pa
from clusters.shared_spark import SharedSpark
from clusters.spark_support import PROJECT, change, plain_spec, shop_lines, write
from dagster import AssetKey
from frame.installing import install
from frame.limits import set_limits

from ebbtide import InProcess, StatefulPipeline, StepProgress
from ebbtide.checks import checks_of
from ebbtide.dagster import ClockResource, StorageResource, pipeline_definitions
from ebbtide.dagster.stream import Observer
from ebbtide.delta import DataFile, Snapshot, Writer
from ebbtide.runtime import Plan
from ebbtide.runtime._progress import StepClock


def resources(tmp_path, spark=None):
    shared = SharedSpark()
    shared._session = spark
    storage = StorageResource(root=str(tmp_path / "root"), data_docs=str(tmp_path / "docs"))
    return {"spark": shared, "storage": storage, "clock": ClockResource()}


def step(number, **metrics):
    return StepProgress("plain", number, "batch", number, 10, 1, metrics, StepClock(1000), 0.5)


class Listener:
    """Keeps what an observer reports."""

    def __init__(self):
        self.heard = []
        self.log = self

    def info(self, line):
        pass

    def log_event(self, event):
        self.heard.append({name: value.value for name, value in event.metadata.items()})


def test_steps_that_come_fast_are_one_observation_with_their_sums(tmp_path):
    listener = Listener()
    observer = Observer(listener, plain_spec(tmp_path), str(tmp_path))
    for number in (1, 2, 3):
        observer.step(step(number, inserted=2))
    assert [heard["step"] for heard in listener.heard] == [1], "the first at once"
    observer.flush()
    observer.flush()
    assert len(listener.heard) == 2
    last = listener.heard[1]
    expected = {"step": 3, "steps": 2, "records": 20, "inserted": 4, "deleted": 0, "quarantined": 2, "seconds": 1.0}
    expected["seconds_per_step"] = 0.5
    assert expected.items() <= last.items()
    assert last["records_per_second"] == 20.0


def test_slow_steps_are_observed_one_by_one(tmp_path):
    set_limits(observe_every_s=0.0)
    listener = Listener()
    observer = Observer(listener, plain_spec(tmp_path), str(tmp_path))
    for number in (1, 2, 3):
        observer.step(step(number))
    assert [heard["step"] for heard in listener.heard] == [1, 2, 3]


def test_run_that_goes_on_logs_and_observes_once_a_minute_whatever_comes(tmp_path):
    listener = Listener()
    lines = []
    listener.info = lines.append
    observer = Observer(listener, plain_spec(tmp_path, run="continuous"), str(tmp_path))
    for number in range(1, 1_000):
        observer.step(step(number, inserted=2))
    assert [heard["step"] for heard in listener.heard] == [1]
    observer.flush()
    assert [heard["records"] for heard in listener.heard] == [10, 9_980]
    assert len(lines) == 2


def test_refresh_from_the_launchpad_rebuilds_and_checks_pass(tmp_path):
    spec = plain_spec(write(tmp_path / "in", [change("+I", 1, "a", 1)]), order={"sequence": ["seq"]})
    definitions = pipeline_definitions(spec)
    assets = [*definitions.assets, *definitions.asset_checks]
    found = resources(tmp_path, InProcess())
    with dg.DagsterInstance.ephemeral() as instance:
        early = dg.materialize(
            [*assets], selection=dg.AssetSelection.all_asset_checks(), resources=found, instance=instance
        )
        assert {(e.passed, e.description) for e in early.get_asset_check_evaluations()} == {
            (False, "The pipeline has made no step yet.")
        }
        config = {"ops": {"plain_reconcile": {"config": {"refresh": True}}}}
        result = dg.materialize([*assets], resources=found, instance=instance, run_config=config)
        assert all(evaluation.passed for evaluation in result.get_asset_check_evaluations())
    sink = result.asset_materializations_for_node("plain_reconcile")[1]
    assert sink.asset_key == AssetKey("plain")
    numbers = {name: sink.metadata[name].value for name in ("dagster/row_count", "run_records", "step")}
    assert numbers == {"dagster/row_count": 1, "run_records": 1, "step": 2}, "step 1 was the reset"
    state = result.asset_materializations_for_node("plain_reconcile")[0]
    assert state.metadata["dagster/row_count"].value >= 1
    files = Snapshot.read(f"{found['storage'].root}/plain/state").files.values()
    sizes = {name: state.metadata[name].value for name in ("files_after", "bytes_after")}
    assert sizes == {"files_after": len(files), "bytes_after": sum(file.size for file in files)}
    assert sink.metadata["report"].value.startswith("1 step in ")


def test_broken_rules_turn_checks_red_and_hold_back_what_reads_the_sink(tmp_path):
    at_most_100 = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seq", "max_value": 100}}
    source = write(tmp_path / "in", [change("+I", 1, "dear", 101)], [change("+I", 2, "cheap", 7)])
    checks = {"expectations": [at_most_100]}
    spec = plain_spec(source, order={"sequence": ["seq"]}, ttl="1d", checks=checks)
    definitions = pipeline_definitions(spec)

    @dg.asset(deps=["plain"])
    def report():
        """Read the sink, were it right."""

    assets = [*definitions.assets, *definitions.asset_checks, report]
    found = resources(tmp_path, InProcess())
    result = dg.materialize(assets, resources=found, raise_on_error=False)
    assert not result.success
    assert red(result) == {"expectations": dg.AssetCheckSeverity.ERROR}
    assert started(result) == ["plain_reconcile", "plain_checks"], "the report waits for the rule"

    plant_disorder_and_overdue_entry(Plan.under(str(tmp_path / "root"), spec))
    result = dg.materialize(assets, resources=found, raise_on_error=False)
    broken = ("expectations", "ordering", "complete", "expiry", "foreign_writes")
    assert red(result) == dict.fromkeys(broken, dg.AssetCheckSeverity.ERROR)
    tables = {
        label: shown.records
        for evaluation in result.get_asset_check_evaluations()
        for label, shown in evaluation.metadata.items()
        if isinstance(shown, dg.TableMetadataValue)
    }
    [disordered] = tables["expect_changes_to_rise_per_key (critical)"]
    assert disordered.data["id"] == "2"
    assert started(result) == ["plain_reconcile", "plain_checks"], "the report waits for `ordering`"


def test_sink_of_another_package_is_materialized_and_checked_without_a_version_of_its_own(tmp_path, shell):
    install(tmp_path / "site", shell, "documents")
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)])
    spec = plain_spec(source, order={"sequence": ["seq"]}, ttl="1d", sink={"type": "documents"})
    definitions = pipeline_definitions(spec)
    assets = [*definitions.assets, *definitions.asset_checks]
    assert {asset.key.path[-1]: asset.kinds for each in definitions.assets for asset in each.specs} == {
        "plain_state": {"deltalake"},
        "plain": set(),
    }
    result = dg.materialize(assets, resources=resources(tmp_path, InProcess()))
    [of_sink] = [made for made in result.get_asset_materialization_events() if made.asset_key == AssetKey("plain")]
    metadata = of_sink.materialization.metadata
    assert (metadata["step"].value, metadata["run_inserted"].value) == (1, 2)
    assert not {"table_version", "dagster/row_count"} & metadata.keys()
    assert {each.check_name for each in result.get_asset_check_evaluations()} >= {"expiry", "foreign_writes"}
    assert red(result) == {}


def plant_disorder_and_overdue_entry(plan):
    """Change a row of the sink without a change that caused it, and add an entry of long ago to the state."""
    sink = Snapshot.read(plan.sink.path)
    rows = [(file, file.read(sink.table, plan.sink.schema).to_pylist()) for file in sink.files.values()]
    [(theirs, [row])] = [(file, found) for file, found in rows if found[0]["id"] == 2]
    old = {"v": "z", "_changed_by": {"step": 0, "part": 0, "position": 0}}
    file = DataFile.write(sink.table, "theirs.parquet", pa.Table.from_pylist([row | old], plan.sink.schema), bounded=())
    Writer().commit(sink, DataFile.replacing([theirs], [file]), {"operation": "UPDATE"})
    state = Snapshot.read(plan.state.path)
    [entry] = [row for row in state.rows(plan.state.schema).to_pylist() if row["id"] == 2]
    late = entry | {"_stamp_ms": 0, "_tombstone": True, "_change": None, "_step": 99}
    planted = pa.Table.from_pylist([late], plan.state.schema)
    # Committed as no change of data: a state that another client changed stops the run before anything is judged.
    file = DataFile.write(state.table, "theirs.parquet", planted, bounded=(), data_change=False)
    Writer().commit(state, [file], {"operation": "WRITE"})


def red(result):
    """The checks that did not pass, with their severities."""
    evaluations = result.get_asset_check_evaluations()
    return {evaluation.check_name: evaluation.severity for evaluation in evaluations if not evaluation.passed}


def started(result):
    return [event.step_key for event in result.all_events if event.event_type is dg.DagsterEventType.STEP_START]


def changes_of(records):
    """Changes by customer, of which a delete is none."""
    values = (json.loads(json.loads(record)["value"] or "null") for record in records)
    return Counter(value["after"]["customer_id"] for value in values if value and value["after"])


def test_shipped_stateful_pipeline_counts_with_all_checks_passed(tmp_path):
    records = shop_lines("orders")[:60]
    source = write(tmp_path / "in", records)
    shipped = StatefulPipeline.load(PROJECT / "pipelines" / "defs" / "activity" / "last_seen")
    spec = shipped.model_copy(update={"source": shipped.source.model_copy(update={"path": str(source)})})
    definitions = pipeline_definitions(spec)
    assets = [*definitions.assets, *definitions.asset_checks]
    result = dg.materialize(assets, resources=resources(tmp_path, InProcess()))
    verdicts = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
    assert verdicts == {check.name: True for check in checks_of(spec)}
    sink_rows = Snapshot.read(str(tmp_path / "root" / spec.name / "sink")).rows(spec.sink_table.columns)
    counted = {row["customer_id"]: row["changes"] for row in sink_rows.to_pylist()}
    assert counted == changes_of(records)
    sink = result.asset_materializations_for_node("last_seen_reconcile")[1]
    numbers = {name: sink.metadata[name].value for name in ("run_records", "step")}
    assert numbers == {"run_records": len(records), "step": 1}


def test_source_with_nothing_that_matches_is_a_warning_and_no_failure(tmp_path):
    definitions = pipeline_definitions(plain_spec(write(tmp_path / "in")))
    result = dg.materialize([*definitions.assets], resources=resources(tmp_path, InProcess()))
    sink = result.asset_materializations_for_node("plain_reconcile")[1]
    assert "it has no files" in sink.metadata["nothing_matched"].value


def test_run_whose_records_are_all_bad_fails_as_on_the_command_line(tmp_path):
    definitions = pipeline_definitions(plain_spec(write(tmp_path / "in", ["{}"])))
    for _ in range(2):  # the second one reads nothing new
        result = dg.materialize([*definitions.assets], resources=resources(tmp_path, InProcess()), raise_on_error=False)
        [failure] = result.get_step_failure_events()
        said = failure.step_failure_data.user_failure_data.description
        assert said.startswith("ConfigError: All records that 'plain' has read were bad: 1 record in quarantine")


def test_source_that_is_missing_fails_the_run_and_is_not_retried(tmp_path, monkeypatch):
    monkeypatch.setattr(
        SharedSpark, "session", property(lambda self: None)
    )  # refused before Spark is asked for anything
    definitions = pipeline_definitions(plain_spec(tmp_path / "nowhere"))
    result = dg.materialize([*definitions.assets], resources=resources(tmp_path), raise_on_error=False)
    [failure] = result.get_step_failure_events()
    said = failure.step_failure_data.user_failure_data
    assert said.description.startswith("SourceReadError: ")
