"""A code location for tests: small pipelines over EBBTIDE_TEST_DIR, and an asset that reads one of the sinks."""

import os
from pathlib import Path

import dagster as dg

from assets.pipeline import pipeline_definitions
from ebbtide import UpsertPipeline
from resources.clock import ClockResource
from resources.spark import SparkResource
from resources.storage import StorageResource

HOME = Path(os.environ["EBBTIDE_TEST_DIR"])
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


def spec(name: str, **more) -> UpsertPipeline:
    """A two-column pipeline by sequence; tombstones live for a day."""
    fields = {
        "name": name,
        "source": {"path": str(HOME / "in" / name), "records": "value", "max_files_per_step": 1},
        "format": {"type": "plain", "position": ["p", "n"]},
        "schema": "id BIGINT, v STRING, seq BIGINT, at TIMESTAMP_NTZ DEFAULT NULL",
        "key": ["id"],
        "order": {"sequence": ["seq"]},
        "ttl": "1d",
        "group": "tests",
    }
    return UpsertPipeline(**{**fields, **more})


SPECS = {
    name: spec(name, **more)
    for name, more in {
        "sales": {},
        "long": {},
        "ticking": {"schedules": {"stream": None, "cleanup": "* * * * *", "compaction": None}},
    }.items()
}


@dg.asset(deps=["sales"])
def report_on_sales() -> None:
    """Read the sink, were it right."""


@dg.definitions
def defs() -> dg.Definitions:
    """Return the location."""
    resources = {
        "spark": SparkResource(settings={"spark.driver.extraJavaOptions": QUICK_JVM, "spark.driver.memory": "2g"}),
        "storage": StorageResource(root=str(HOME / "root"), data_docs=str(HOME / "docs")),
        "clock": ClockResource(),
    }
    job = dg.define_asset_job("sales_and_report", dg.AssetSelection.assets("sales_state", "sales", "report_on_sales"))
    return dg.Definitions.merge(
        *map(pipeline_definitions, SPECS.values()),
        dg.Definitions(assets=[report_on_sales], jobs=[job], resources=resources, executor=dg.in_process_executor),
    )
