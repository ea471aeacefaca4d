"""A session that another program has opened is used as it is, or refused by what it lacks."""

import os
import subprocess
import sys

import pytest
from clusters.ivy import LEAST
from clusters.spark_support import change, write

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from ebbtide import UpsertPipeline, run, state
from ebbtide.errors import ConfigError
from ebbtide.runtime import Plan
from ebbtide.sessions._jars import with_known_jars
from ebbtide.sessions import SparkVersion

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", 1)
builder = builder.config("spark.databricks.delta.snapshotPartitions", 1)  # neither is needed: each saves half a minute here
builder = builder.config("spark.driver.extraJavaOptions", sys.argv[3])
builder = builder.config("spark.sql.session.timeZone", "Europe/Berlin").config("spark.sql.ansi.enabled", "false")
has_jar, has_catalog = sys.argv[2] != "no Delta", sys.argv[2] == "Delta"
if has_jar:
    for name, value in with_known_jars({"spark.jars.packages": SparkVersion.installed().delta}).items():
        builder = builder.config(name, value)
if has_catalog:
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = builder.getOrCreate()
source = {"path": sys.argv[1] + "/in", "records": "value"}
spec = UpsertPipeline(name="t", source=source, format={"type": "plain"}, schema="id BIGINT, v STRING, seq BIGINT", key=["id"], order={"sequence": ["seq"]}, engine="spark")
try:
    run(spark, spec, sys.argv[1])
except ConfigError as refused:
    print(refused, flush=True)
if has_catalog:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    run(spark, spec, sys.argv[1])
    rows = Plan.under(sys.argv[1], spec).sink.snapshot().rows(spec.table.columns).to_pylist()
    print(sorted((row["id"], row["v"]) for row in rows))
    print(state(spark, spec, sys.argv[1], where="abs(id) = 2")["v"].to_pylist())
"""


def printed(tmp_path, delta, python=sys.executable):
    write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+U", 1, "c", 3)])
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), delta, " ".join(LEAST)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"PYSPARK_PYTHON": python}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_session_without_our_settings_runs_a_pipeline_once_its_time_zone_is_utc(tmp_path):
    refused, rows, shown = printed(tmp_path, "Delta")
    assert "Got: spark.sql.session.timeZone=Europe/Berlin. Allowed: UTC. Set it: spark.conf.set(" in refused
    assert rows == "[(1, 'c'), (2, 'b')]"
    assert shown == "['b']"


@pytest.mark.grid
@pytest.mark.parametrize(
    ("delta", "says"),
    [
        ("no Delta", "The session has no Delta. Got: no data source 'delta'"),
        ("a jar alone", "The session does not use its Delta."),
    ],
)
def test_session_without_delta_is_refused_with_the_settings_that_bring_it(tmp_path, delta, says):
    [refused] = printed(tmp_path, delta)
    assert refused.startswith(says)
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in refused
