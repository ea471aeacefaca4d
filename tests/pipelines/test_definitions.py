"""The code location: what is in it, and what loading it costs."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

import ebbtide
from ebbtide import load
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.cron import Cron
from ebbtide.dagster import UpsertPipeline
from ebbtide.operations import operations
from pipelines.definitions import defs

PROJECT = Path(__file__).resolve().parent.parent.parent
NAMES = [
    "customers",
    "first_orders",
    "last_seen",
    "order_balances",
    "order_items",
    "orders",
    "price_list",
    "stock_levels",
]
CHECK_NAMES = [check.name for check in CHECKS]
OF_FUNCTIONS = [("first_orders", "complete"), ("last_seen", "complete")]
"""Checks that functions do not have: their states do not have the sink's rows."""
WITH_RULES = ["order_items", "orders"]
SINKS = ["customers", "order_items", "orders"]


def test_location_holds_exactly_this():
    found = defs()
    graph = found.resolve_asset_graph()
    assert sorted(key.to_user_string() for key in graph.materializable_asset_keys) == sorted(
        [*NAMES, *(f"{name}_state" for name in NAMES), "customer_revenue"]
    )
    assert sorted(key.to_user_string() for key in graph.external_asset_keys) == [
        "source/join",
        "source/movements",
        *(f"source/shop.public.{name}" for name in ("customers", "order_items", "orders", "price_list")),
    ]
    of_all = [(name, check) for name in NAMES for check in CHECK_NAMES if (name, check) not in OF_FUNCTIONS]
    of_some = [(name, "expectations") for name in WITH_RULES]
    checks = sorted((key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys)
    assert checks == sorted([*of_all, *of_some])
    jobs = {job.name: job for job in found.resolve_all_job_defs() if not job.name.startswith("__")}
    kinds = [operation.job_name for operation in operations()]
    report = jobs.pop("customer_revenue_report")
    made = [f"{name}_{step}" for name in SINKS for step in ("checks", "reconcile")]
    assert sorted(node.name for node in report.nodes) == sorted([*made, "customer_revenue"])
    shop = jobs.pop("shop")
    of_demo = [name for name in NAMES if name not in ("first_orders", "last_seen")]
    of_shop = [name for name in of_demo if name != "stock_levels"]
    assert sorted(node.name for node in jobs.pop("demo").nodes) == sorted(
        f"{name}_{step}" for name in of_demo for step in ("checks", "reconcile")
    )
    assert sorted(node.name for node in shop.nodes) == sorted(
        f"{name}_{step}" for name in of_shop for step in ("checks", "reconcile")
    )
    rounds = {f"ebbtide_round_{group}": f"ebbtide_round_{group}_schedule" for group in ("activity", "shop")}
    assert sorted(jobs) == sorted([*NAMES, *rounds, *(f"ebbtide_{kind}" for kind in kinds)])
    pools = {name: {pool for node in jobs[name].nodes for pool in node.definition.pools} for name in NAMES}
    assert pools == {name: {f"checkpoint_{name}"} for name in NAMES}
    schedules = {schedule.name: (schedule.job_name, schedule.cron_schedule) for schedule in found.schedules}
    of_runs = {f"{name}_schedule": (name, Cron.of("H/15 * * * *", name).text) for name in NAMES}
    of_operations = {}
    for kind, cron in {"cleanup": "H 3 * * *", "compaction": "H 4 * * *", "vacuum": "H 5 * * *"}.items():
        crons = {Cron.of(cron, name).text for name in NAMES}
        if kind == "cleanup":
            crons |= {Cron.of("H/15 * * * *", name).text for name in NAMES}
        of_operations[f"ebbtide_{kind}_schedule"] = (f"ebbtide_{kind}", sorted(crons))
    of_rounds = {
        schedule: (job, Cron.of("H 3 * * *", job.removeprefix("ebbtide_round_")).text)
        for job, schedule in rounds.items()
    }
    assert schedules == of_runs | of_operations | of_rounds
    assert sorted(sensor.name for sensor in found.sensors) == ["ebbtide_backlog", "failed_runs"]


def test_operations_take_turns_with_the_runs_of_their_pipeline_by_a_tag():
    found = defs()
    turns = {}
    for operation in operations():
        job = found.resolve_job_def(f"ebbtide_{operation.job_name}")
        assert list(job.partitions_def.get_partition_keys()) == NAMES
        tags = job.get_tags_for_partition_key("orders", selected_asset_keys=None)
        assert (tags["ebbtide/pipeline"], tags["dagster/partition"]) == ("orders", "orders")
        turns[operation.job_name] = tags.get("ebbtide/turn")
    at_once = {kind for kind, turn in turns.items() if turn is None}
    assert at_once == {"pause", "resume", "savepoint", *(kind for kind in turns if kind.startswith("backfill_"))}
    own = found.resolve_job_def("orders").run_tags
    assert set(turns.values()) == {None, own["ebbtide/turn"]}
    instance = yaml.safe_load((PROJECT / "dagster.yaml").read_text(encoding="utf-8"))
    [limit] = instance["concurrency"]["runs"]["tag_concurrency_limits"]
    assert limit == {"key": "ebbtide/turn", "value": {"applyLimitPerUniqueValue": True}, "limit": 1}


def test_assets_are_described_from_the_spec():
    graph = defs().resolve_asset_graph()
    orders = next(graph.get(key) for key in graph.materializable_asset_keys if key.to_user_string() == "orders")
    assert orders.description.startswith("Orders of the shop")
    assert (orders.group_name, orders.owners, orders.kinds) == ("shop", ["team:shop"], {"spark", "deltalake"})
    columns = {column.name: column for column in orders.metadata["dagster/column_schema"].columns}
    assert (columns["order_id"].type, columns["order_id"].constraints.unique) == ("BIGINT", True)
    lineage = orders.metadata["dagster/column_lineage"].deps_by_column["total"]
    assert [(dep.asset_key.to_user_string(), dep.column_name) for dep in lineage] == [("orders_state", "total")]
    assert orders.freshness_policy is not None


def test_report_waits_for_the_blocking_checks_of_its_sinks():
    report = defs().resolve_job_def("customer_revenue_report")
    waits = {node.name: inputs for node, inputs in report.dependencies.items()}["customer_revenue"]
    checks = {name: {found.output for found in each.asset_check_dependencies} for name, each in waits.items()}
    assert checks == {
        "customers": {"customers_complete", "customers_ordering"},
        "order_items": {"order_items_complete", "order_items_ordering", "order_items_expectations"},
        "orders": {"orders_complete", "orders_ordering", "orders_expectations"},
    }


@pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated")  # Dagster's own call
@pytest.mark.filterwarnings("ignore:Class .*CodeReference.* is currently in beta")  # the same
def test_types_by_their_old_names_are_read(tmp_path):
    with create_defs_folder_sandbox() as sandbox:
        attributes = {
            "name": "old",
            "source": {"path": "data/old"},
            "format": {"type": "debezium"},
            "schema": "id BIGINT",
            "key": ["id"],
            "order": {"sequence": ["_lsn"]},
        }
        body = {"type": "pipelines.components.UpsertPipelineComponent", "attributes": attributes}
        path = sandbox.scaffold_component(component_cls=UpsertPipeline, defs_path="old", defs_yaml_contents=body)
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, found):
            assert isinstance(component, UpsertPipeline)
            assert dg.AssetKey("old") in found.resolve_asset_graph().materializable_asset_keys
        assert isinstance(load(path), ebbtide.UpsertPipeline), "the command line reads it too"


def test_location_loads_neither_spark_nor_what_only_checks_need():
    code = """
import sys, pipelines.definitions as location
location.defs()
print(sorted({"pyspark", "pandas", "great_expectations", "numba", "duckdb", "scipy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
