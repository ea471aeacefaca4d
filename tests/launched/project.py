"""A code location for tests: small pipelines over EBBTIDE_TEST_DIR, one as shipped, and an asset that reads a sink."""

import os
from pathlib import Path

import dagster as dg

from ebbtide import Pipeline, StatefulPipeline, UpsertPipeline
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions

HOME = Path(os.environ["EBBTIDE_TEST_DIR"])
LAST_SEEN = Path(__file__).resolve().parents[2] / "pipelines" / "defs" / "activity" / "last_seen"
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


def last_seen() -> StatefulPipeline:
    """The shipped pipeline; a `defs.yaml` that a test has put under EBBTIDE_TEST_DIR goes before the shipped one."""
    edited = HOME / "specs" / "last_seen"
    found = StatefulPipeline.load(edited if edited.exists() else LAST_SEEN)
    return found.model_copy(update={"source": found.source.model_copy(update={"path": str(HOME / "in" / "last_seen")})})


AT_MOST_100 = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seq", "max_value": 100}}

SPECS: dict[str, Pipeline] = {
    name: spec(name, **more)
    for name, more in {
        "sales": {},
        "long": {"engine": "spark"},
        "priced": {"checks": {"expectations": [AT_MOST_100]}},
        "steady": {"run": "continuous", "max_run_age": "75s"},
        "ticking": {"schedules": {"stream": None, "cleanup": "* * * * *", "compaction": None}},
    }.items()
} | {"last_seen": last_seen()}


@dg.asset(deps=["sales"])
def report_on_sales() -> None:
    """Read the sink, were it right."""


@dg.asset(deps=["priced"])
def report_on_priced() -> None:
    """Read the sink, were it right."""


@dg.definitions
def defs() -> dg.Definitions:
    """Return the location."""
    resources = {
        "spark": SparkResource(settings={"spark.driver.extraJavaOptions": QUICK_JVM, "spark.driver.memory": "2g"}),
        "storage": StorageResource(root=str(HOME / "root"), data_docs=str(HOME / "docs")),
        "clock": ClockResource(),
    }
    jobs = [
        dg.define_asset_job(f"{name}_and_report", dg.AssetSelection.assets(f"{name}_state", name, f"report_on_{name}"))
        for name in ("sales", "priced")
    ]
    return dg.Definitions.merge(
        pipeline_definitions(*SPECS.values()),
        dg.Definitions(
            assets=[report_on_sales, report_on_priced],
            jobs=jobs,
            resources=resources,
            executor=dg.in_process_executor,
        ),
    )
