"""Schema drift: the source has no columns that the schema lacks."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.runtime.plan import Plan


def columns(
    spark: SparkSession,
    tables: Plan,
    window: VersionRange,
) -> DataFrame:
    """Read which columns of records were left out, as the spec is now.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per step and column: `step`, `unknown_column`. None of columns that the spec has by now, or leaves out on purpose.
    """
    spec = tables.spec
    known = {
        *spec.table.columns.names,
        *spec.renamed.values(),
        *spec.ignored_columns,
    }
    rows = []
    for version, facts in tables.state.steps():
        if version <= window.state_since:
            break  # the newest come first
        if version > window.state_until:
            continue
        rows += [(facts.step, name) for name in facts.read.ignored_columns if name not in known]
    return spark.createDataFrame(rows, "step BIGINT, unknown_column STRING")


@rule(
    "expect_columns_to_be_known",
    "The source must have no columns that the schema lacks, but those under ignored_columns.",
)
def unknown_columns(found: DataFrame) -> DataFrame:
    """Pick the columns that were left out: all.

    Args:
        found: As from `columns`.
    """
    return found


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the columns of the source that were left out."""
    left_out = columns(judged.spark, judged.tables, judged.window)
    yield judged.batch(left_out, unknown_columns.expected("warning"))
