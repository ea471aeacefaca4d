"""The code location: what is in it, and what loading it costs."""

import os
import subprocess
import sys
from pathlib import Path

from pipelines.definitions import defs

PROJECT = Path(__file__).resolve().parent.parent.parent
NAMES = ["customers", "first_orders", "last_seen", "order_balances", "order_items", "orders", "price_list"]
CHECKS = ["expiry", "foreign_writes", "ordering", "quarantine_rate", "unique_key"]


def test_location_holds_exactly_this():
    found = defs()
    graph = found.resolve_asset_graph()
    assert sorted(key.to_user_string() for key in graph.materializable_asset_keys) == sorted(
        [*NAMES, *(f"{name}_state" for name in NAMES)]
    )
    assert sorted(key.to_user_string() for key in graph.external_asset_keys) == [
        "source/join",
        *(f"source/shop.public.{name}" for name in ("customers", "order_items", "orders", "price_list")),
    ]
    assert sorted((key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys) == [
        (name, check) for name in NAMES for check in CHECKS
    ]
    jobs = {job.name: job for job in found.resolve_all_job_defs() if not job.name.startswith("__")}
    kinds = ("cleanup", "compaction", "migration", "stream")
    assert sorted(jobs) == [f"{name}_{kind}" for name in NAMES for kind in kinds]
    pools = {name: {pool for node in job.nodes for pool in node.definition.pools} for name, job in jobs.items()}
    assert pools == {f"{name}_{kind}": {f"checkpoint_{name}"} for name in NAMES for kind in kinds}
    schedules = {schedule.name: (schedule.job_name, schedule.cron_schedule) for schedule in found.schedules}
    crons = {"cleanup": "0 3 * * *", "compaction": "30 3 * * *", "stream": "*/15 * * * *"}
    assert schedules == {f"{name}_{kind}_schedule": (f"{name}_{kind}", crons[kind]) for name in NAMES for kind in crons}


def test_assets_are_described_from_the_spec():
    graph = defs().resolve_asset_graph()
    orders = next(graph.get(key) for key in graph.materializable_asset_keys if key.to_user_string() == "orders")
    assert orders.description.startswith("Orders of the shop")
    assert (orders.group_name, orders.owners, orders.kinds) == ("shop", ["team:shop"], {"spark", "deltalake"})
    columns = {column.name: column for column in orders.metadata["dagster/column_schema"].columns}
    assert (columns["order_id"].type, columns["order_id"].constraints.unique) == ("int64", True)
    lineage = orders.metadata["dagster/column_lineage"].deps_by_column["total"]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage] == [("orders_state", "total")]
    assert orders.freshness_policy is not None


def test_location_loads_in_under_3_cpu_seconds_without_jvm_and_great_expectations(tmp_path):
    code = """
import sys, time, pipelines.definitions as location
location.defs()
print(time.process_time(), sorted({"pyspark", "pandas", "great_expectations"} & set(sys.modules)))
"""
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": str(tmp_path)
    }
    best = 9.0
    for _ in range(3):  # the machine may be busy: the best of three
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True, env=compiled
        )
        seconds, _, loaded = done.stdout.strip().partition(" ")
        assert loaded == "[]"
        best = min(best, float(seconds))
        if best < 3:
            return
    raise AssertionError(f"the location took {best} CPU seconds")
