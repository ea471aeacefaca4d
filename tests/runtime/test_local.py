"""Runs without a JVM: the shop's tables, what they refuse, and a step that is too large for one share."""

import json
import os
import random
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from clusters.spark_support import cut, shop_lines, shop_spec, write
from frame.limits import set_limits
from local.local_run import SPARK
from local.support import plain
from oracles.shop_truth import same_as_truth
from servers.store_support import line, stateful

import ebbtide
from ebbtide import MaterializedView, UpsertPipeline
from ebbtide.cli import main
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import ConfigError
from ebbtide.runtime import Plan
from ebbtide.testing import MemoryPipeline

PROJECT = Path(__file__).resolve().parents[2]
SPECS = PROJECT / "pipelines" / "defs"
SHOP = ("customers", "order_balances", "order_items", "orders", "price_list")


def test_shop_tables_equal_the_truth_without_java_and_after_a_refresh(tmp_path):
    shipped = [SPECS / "shop", SPECS / "activity"]  # what the warehouse reads is made by the demo
    folders = [str(path.parent) for group in shipped for path in sorted(group.glob("*/defs.yaml"))]
    without_java = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": str(Path(sys.executable).parent)}
    how = ["--root", str(tmp_path), "--engine", "local"]
    command = [sys.executable, "-m", "ebbtide.cli", "run", *folders, *how]
    done = subprocess.run(command, env=without_java, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    for name in SHOP:
        assert same_as_truth(UpsertPipeline.load(SPECS / "shop" / name), tmp_path)

    again = CliRunner().invoke(main, ["run", *folders, "--json", *how])
    summaries = [json.loads(line) for line in again.stdout.splitlines()]
    assert len(summaries) == len(folders)
    assert not any(summary["steps"] for summary in summaries)

    price_list = SPECS / "shop" / "price_list"
    refreshed = CliRunner().invoke(main, ["refresh", str(price_list), "--yes", *how])
    assert refreshed.exit_code == 0, refreshed.stderr
    assert same_as_truth(UpsertPipeline.load(price_list), tmp_path)


def test_orders_in_shuffled_order_equal_the_truth(tmp_path):
    lines = shop_lines("orders")
    random.Random(7).shuffle(lines)
    spec = shop_spec("orders", write(tmp_path / "in", *cut(lines, 8)))
    summary = ebbtide.run(SPARK, spec, str(tmp_path))
    assert summary.totals["superseded"] > 1000
    assert summary.totals["filled"] > 0
    assert same_as_truth(spec, tmp_path)


def test_large_step_is_decided_group_by_group(tmp_path):
    set_limits(rows_in_driver=100)
    spec = UpsertPipeline.load(SPECS / "shop" / "price_list").model_copy(update={"max_group_bytes": 10_000})
    ebbtide.run(SPARK, spec, str(tmp_path))
    assert same_as_truth(spec, tmp_path)
    state = str(tmp_path / spec.name / "state")
    assert max(len(Log(state).commit(version).adds()) for version in Log(state).versions()) > 3, (
        "one file of the state for each group"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"transform": {"schema": "id BIGINT, m INT", "key": ["id"], "select": {"id": "id", "m": "n + 1"}}},
            "a transform, which Spark evaluates",
        ),
    ],
)
def test_what_only_spark_can_do_is_refused_by_name(tmp_path, fields, reason):
    with pytest.raises(ConfigError, match=reason):
        ebbtide.run(SPARK, plain(**fields), str(tmp_path))


def test_view_is_refused(tmp_path):
    view = MaterializedView(name="v", query="SELECT id FROM t", schema="id BIGINT", key=["id"], inputs=["t"])
    with pytest.raises(ConfigError, match="a materialized view"):
        ebbtide.run(SPARK, view, str(tmp_path))


def plan_with_the_sink_of_memory(tmp_path, function, ttl):
    """Run a function over three files, and hold its sink against that of a pipeline in memory."""
    set_limits(width=1000)  # superseded versions stay
    parts = [
        [line(i % 5, v="abc"[(i + n) % 3], seq=i, day=f"2026-01-0{1 + i % 3}") for i in range(20)] for n in range(3)
    ]
    source = {"path": str(write(tmp_path / "in", *parts)), "records": "value", "max_files_per_step": 1}
    spec = stateful(function, source=source, ttl=ttl)
    assert ebbtide.run(SPARK, spec, str(tmp_path)).totals["updated"] == 15
    memory = MemoryPipeline(spec)
    for part in parts:
        memory.step(part)
    plan = Plan.under(str(tmp_path), spec)
    rows = Snapshot.read(plan.sink.path).rows(spec.sink_table.columns).sort_by("id").to_pylist()
    assert rows == memory.rows()
    return plan


@pytest.mark.demand("ttl-appending")
def test_reduced_and_aggregated_values_live_in_a_table(tmp_path):
    plan = plan_with_the_sink_of_memory(tmp_path, "user_functions:Extremes", {"most": "365d", "mean": "365d"})
    assert {"_value_most", "_value_mean"} <= set(plan.state.schema.names)


def test_states_of_every_type_live_in_a_table(tmp_path):
    plan = plan_with_the_sink_of_memory(tmp_path, "user_functions:Everything", {"recent": "365d"})
    entries = plan.state.snapshot().rows(plan.state.schema).to_pylist()
    days = [dict(entry["_value_profile"]["by_day"]) for entry in entries if entry["_state"] == "profile"]
    assert {(type(day), type(total)) for each in days for day, total in each.items()} == {(date, Decimal)}
