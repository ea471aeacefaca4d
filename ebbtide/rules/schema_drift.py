"""Schema drift: the source has no columns that the schema lacks."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ebbtide.rules.version_range import VersionRange
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


def unknown(found: DataFrame) -> DataFrame:
    """Pick the columns that were left out: all.

    Args:
        found: As from `columns`.
    """
    return found
