"""The Spark session that Ebbtide runs in. Building it is here; its life belongs to the caller.

Environment: `EBBTIDE_MASTER` (default `local[*]`), `EBBTIDE_DRIVER_MEMORY` (default `4g`), `EBBTIDE_LOG_LEVEL` (default
`FATAL`: what fails is raised, and need not be logged as a stack too).
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from ebbtide.sources.files import FileDataSource

DELTA_JAR = "io.delta:delta-spark_4.2_2.13:4.4.0"

SETTINGS = {
    "spark.jars.packages": DELTA_JAR,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",  # times are compared as UTC everywhere
    "spark.databricks.delta.snapshotPartitions": "2",  # Delta's 50 triple the cost of every small commit
    "spark.sql.adaptive.enabled": "false",  # saves 10 to 20 % of the CPU of small steps
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",  # any other value sizes every vector again for each row
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # expiry is the tick's work
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def build_session(app_name: str = "ebbtide", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with Delta, tuned for small steps, or return the session that is running.

    Args:
        app_name: Name of the application.
        settings: Spark settings that override ours.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else the workers take python3 from PATH
    cores = os.cpu_count() or 2
    defaults = {
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.memory": os.environ.get("EBBTIDE_DRIVER_MEMORY", "4g"),
    }
    builder = SparkSession.builder.master(os.environ.get("EBBTIDE_MASTER", "local[*]")).appName(app_name)
    for name, value in (defaults | SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    level = os.environ.get("EBBTIDE_LOG_LEVEL", "FATAL")
    session.sparkContext.setLogLevel(level)
    logging.getLogger("py4j").setLevel(level)
    prepare(session)
    return session


def prepare(session: SparkSession) -> None:
    """Register Ebbtide's sources with a session made elsewhere."""
    session.dataSource.register(FileDataSource)


def code_version() -> str:
    """Return the version of Ebbtide that is running."""
    return importlib.metadata.version("ebbtide")
