"""Foreign writes: only the pipeline changes its tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.ledger.foreign_writes import DataCommit, data_commits
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
    commits = [
        *data_commits(name, "sink", tables.at("sink"), sink_versions),
        *data_commits(name, "state", tables.state.path, state_versions),
    ]
    rows = [_row(commit, name) for commit in commits]
    return spark.createDataFrame(rows, COMMITS)


def _row(commit: DataCommit, pipeline: str) -> CommitRow:
    return (
        commit.table,
        commit.version,
        datetime.fromtimestamp(commit.at_ms / 1000, UTC),
        commit.operation,
        pipeline if commit.is_own else None,
    )


@rule("expect_commits_to_be_ours", "Every change of the tables must be the pipeline's own.")
def foreign_commits(commits: DataFrame) -> DataFrame:
    """Pick the commits that the pipeline did not make.

    Args:
        commits: As from the function `commits`.
    """
    return commits.where("pipeline IS NULL")


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge who wrote to the sink and the state."""
    found = commits(judged.spark, judged.tables, judged.window)
    yield judged.batch(found, foreign_commits.expected())
