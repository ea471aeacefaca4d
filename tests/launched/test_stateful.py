"""The shipped stateful pipeline, launched; and its migration, after somebody has edited its time to live."""

import json
from collections import Counter

import pytest
from clusters.spark_support import PROJECT, shop_lines, table, write

from ebbtide import StatefulPipeline
from ebbtide.checks import checks_of
from ebbtide.inspect import state

SHIPPED = PROJECT / "pipelines" / "defs" / "activity" / "last_seen" / "defs.yaml"
PASSED = {check.name: True for check in checks_of(StatefulPipeline.load(SHIPPED))}
FIRST, ALL = 60, 100


@pytest.fixture(scope="module")
def records():
    return shop_lines("orders")[:ALL]


@pytest.fixture(scope="module")
def last_seen_run(dagster_dev, home, records):
    write(home / "in" / "last_seen", records[:FIRST])
    return dagster_dev.succeeded(dagster_dev.launch("last_seen"))


@pytest.fixture
def changes(spark, home, spec):
    """Tell what the sink says: changes by customer."""
    return lambda: {row["customer_id"]: row["changes"] for row in table(spark, home / "root", spec("last_seen"))}


@pytest.fixture
def stamps(spark, home, spec):
    """Tell when each customer's count was accessed last."""

    def read():
        rows = state(spark, spec("last_seen"), str(home / "root"), state="count").to_pylist()
        return {row["customer_id"]: row["accessed"] for row in rows}

    return read


def changes_of(records):
    """Changes by customer, of which a delete is none."""
    values = (json.loads(json.loads(record)["value"] or "null") for record in records)
    return Counter(value["after"]["customer_id"] for value in values if value and value["after"])


def migration(dagster_dev, action):
    config = {"ops": {"ebbtide_migration_op": {"config": {"action": action}}}}
    return dagster_dev.launch("ebbtide_migration", config=config, partition="last_seen")


def report_of(dagster_dev, run):
    [(asset, facts)] = dagster_dev.observed(dagster_dev.succeeded(run))
    assert asset == "last_seen_state"
    assert facts.pop("report").startswith("last_seen: ")
    following = "apply" if facts["job"].endswith("plan") else "undo"
    assert facts.pop("next") == f"launch ebbtide_migration with action: {following}"
    return facts


@pytest.mark.grid  # in one process: tests/dagster/test_stream.py
def test_stateful_run_counts_with_all_checks_passed(dagster_dev, last_seen_run, changes, records):
    assert dagster_dev.verdicts(last_seen_run) == PASSED
    assert changes() == changes_of(records[:FIRST])
    asset, numbers = dagster_dev.observed(last_seen_run)[0]
    assert asset == "last_seen"
    assert {"step": 1, "records": FIRST, "updated": len(changes())}.items() <= numbers.items()


@pytest.mark.grid
def test_edited_ttl_is_refused_until_its_migration_is_applied(
    dagster_dev, home, last_seen_run, changes, stamps, records
):
    before = stamps()
    assert None not in before.values()
    edited = home / "specs" / "last_seen"
    edited.mkdir(parents=True)
    (edited / "defs.yaml").write_text(SHIPPED.read_text(encoding="utf-8").replace("count: 365d", "count: null"))
    dagster_dev.reload()
    write(home / "in" / "last_seen", records[FIRST:], first=1)

    refused, planned = dagster_dev.launch("last_seen"), migration(dagster_dev, "plan")
    assert dagster_dev.end_of(refused) == "FAILURE"
    [error] = [e["error"] for e in dagster_dev.events(refused) if e["__typename"] == "ExecutionStepFailureEvent"]
    assert "SpecChangedError: The spec of 'last_seen' no longer fits its stored state." in error["message"]
    assert "run 'ebbtide migrate' to see what it would do" in error["message"]
    changed = {
        "changes": "- state count: ttl 365d (ON_CREATE_AND_WRITE, PROCESSING_TIME) -> none",
        "places": 1,
        "unstamped": len(before),
        **dict.fromkeys(("stamped", "revived", "dropped", "rewritten"), 0),
    }
    assert report_of(dagster_dev, planned) == {"job": "migration: plan", **changed}
    assert stamps() == before, "neither has changed anything"

    assert report_of(dagster_dev, migration(dagster_dev, "apply")) == {"job": "migration: apply", "step": 2, **changed}
    assert stamps() == dict.fromkeys(before)

    run = dagster_dev.succeeded(dagster_dev.launch("last_seen"))
    assert dagster_dev.verdicts(run) == PASSED
    assert changes() == changes_of(records), "it counts on from the migrated state"
