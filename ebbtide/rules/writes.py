"""Foreign writes: nobody but the pipeline changes its tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan

COMMITS = "table STRING, version BIGINT, at TIMESTAMP, operation STRING, pipeline STRING"


def commits(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read the commits that changed data of the sink or the state; joining files changes none.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per commit: `table`, `version`, `at`, `operation`, and the `pipeline` that says it made it, or null.
    """
    rows = []
    for name, location, since, until in (
        ("sink", tables.sink.path, window.sink_since, window.sink_until),
        ("state", tables.state.path, window.state_since, window.state_until),
    ):
        for version in log.versions(location):
            if not since < version <= until:
                continue
            found = log.actions(location, version)
            files = [action.get("add") or action.get("remove") or action.get("cdc") for action in found]
            if not any(file and file.get("dataChange", True) for file in files):
                continue
            info: dict[str, Any] = next((action["commitInfo"] for action in found if "commitInfo" in action), {})
            mine = any(
                action.get("txn", {}).get("appId", "").startswith(f"{tables.spec.name}/") for action in found
            ) and log.facts(location, version)
            at = datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)
            rows.append((name, version, at, info.get("operation"), tables.spec.name if mine else None))
    return spark.createDataFrame(rows, COMMITS)


def foreign(found: DataFrame) -> DataFrame:
    """Pick the commits that the pipeline did not make.

    Args:
        found: As from `commits`.
    """
    return found.where("pipeline IS NULL")
