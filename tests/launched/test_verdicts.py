"""Plan that somebody broke: which checks turn red, and what then waits. Runs after the tests that want them whole."""

import pytest
from clusters.spark_support import change, write
from pyspark.sql import functions as F


@pytest.mark.grid  # in one process: tests/dagster/test_stream.py
def test_planted_disorder_and_overdue_entry_turn_checks_red_and_block_downstream(spark, dagster_dev, home, sales_run):
    root = home / "root" / "sales"
    old = "named_struct('step', 0L, 'part', 0L, 'position', 0L)"
    spark.sql(f"UPDATE delta.`{root}/sink` SET v = 'z', _changed_by = {old} WHERE id = 2")
    entry = spark.read.format("delta").load(f"{root}/state").where("_entry = 'row' AND id = 2")
    fields = {"_stamp_ms": 0, "_tombstone": True, "_change": None, "_step": 99}
    planted = entry.withColumns(
        {name: F.lit(value).cast(entry.schema[name].dataType) for name, value in fields.items()}
    )
    # Said to be no change: a state that others changed stops the run before anything is judged.
    planted.write.format("delta").mode("append").option("dataChange", "false").save(f"{root}/state")

    run = dagster_dev.launch("sales_and_report")
    assert dagster_dev.end_of(run) == "FAILURE"
    checks = dagster_dev.checks(run)
    assert {name: (check["success"], check["severity"]) for name, check in checks.items() if not check["success"]} == {
        "ordering": (False, "ERROR"),
        "complete": (False, "ERROR"),
        "expiry": (False, "ERROR"),
        "foreign_writes": (False, "ERROR"),
    }
    tables = {
        entry["label"]: entry["table"]["records"]
        for check in checks.values()
        for entry in check["metadataEntries"]
        if "table" in entry
    }
    [disordered] = tables["expect_changes_to_rise_per_key (critical)"]
    assert '"id": "2"' in disordered
    started = [e["stepKey"] for e in dagster_dev.events(run) if e["__typename"] == "ExecutionStepStartEvent"]
    assert started == ["sales_reconcile", "sales_checks"], "the report waits for `ordering`"


@pytest.mark.grid  # in one process: tests/dagster/test_stream.py
def test_critical_rule_of_the_project_holds_back_what_reads_the_sink(dagster_dev, home):
    write(home / "in" / "priced", [change("+I", 1, "dear", 101), change("+I", 2, "cheap", 7)])
    run = dagster_dev.launch("priced_and_report")
    assert dagster_dev.end_of(run) == "FAILURE"
    checks = dagster_dev.checks(run)
    red = {name: check["severity"] for name, check in checks.items() if not check["success"]}
    assert red == {"expectations": "ERROR"}
    started = [e["stepKey"] for e in dagster_dev.events(run) if e["__typename"] == "ExecutionStepStartEvent"]
    assert started == ["priced_reconcile", "priced_checks"], "the report waits for the rule"
