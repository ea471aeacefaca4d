"""Foreign writes: only the pipeline changes its tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.ledger.windows import is_own
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan

COMMITS = "table STRING, version BIGINT, at TIMESTAMP, operation STRING, pipeline STRING"
CommitRow = tuple[Any, ...]
"""The values of a row of `COMMITS`."""


def commits(
    spark: SparkSession,
    tables: Plan,
    window: VersionRange,
) -> DataFrame:
    """Read the commits that changed data of the sink or the state; joining files changes none.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per commit: `table`, `version`, `at`, `operation`, and the `pipeline` that says it made it, or null.
    """
    name = tables.spec.name
    sink_versions = range(window.sink_since + 1, window.sink_until + 1)
    state_versions = range(window.state_since + 1, window.state_until + 1)
    rows = [
        *_commits("sink", tables.sink.path, sink_versions, name),
        *_commits("state", tables.state.path, state_versions, name),
    ]
    return spark.createDataFrame(rows, COMMITS)


def _commits(table: str, location: str, versions: range, pipeline: str) -> Iterator[CommitRow]:
    """Yield the rows of one table's commits."""
    for version in log.versions(location):
        if version not in versions:
            continue
        actions = log.actions(location, version)
        if not log.changed_files(actions):
            continue
        info = log.commit_info(actions)
        written_ms = info.get("timestamp", 0)
        yield (
            table,
            version,
            datetime.fromtimestamp(written_ms / 1000, UTC),
            info.get("operation"),
            pipeline if is_own(pipeline, actions) else None,
        )


def foreign(commits: DataFrame) -> DataFrame:
    """Pick the commits that the pipeline did not make.

    Args:
        commits: As from the function `commits`.
    """
    return commits.where("pipeline IS NULL")
