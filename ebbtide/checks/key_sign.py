"""Keys: the sink has one row per key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.runtime.plan import Plan
from ebbtide.tables.state.columns import columns


def sink_keys(
    spark: SparkSession,
    tables: Plan,
    window: VersionRange,
) -> DataFrame:
    """Read the key columns of the sink's rows.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest is looked at.
    """
    sink = tables.sink.read(spark, window.sink_until)
    key_columns = columns(tables.sink.key)
    return sink.select(*key_columns)


@rule("expect_keys_to_be_unique", "$key must be unique and not null.")
def duplicate_keys(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the keys with more than one row, with their count (`_rows`), and those that have a null.

    Args:
        rows: Rows with the key's columns.
        key: Names of the key's columns.
    """
    key_columns = columns(key)
    are_null = [column.isNull() for column in key_columns]
    has_null = F.greatest(*are_null, F.lit(False))  # it takes two columns at least
    by_key = rows.groupBy(*key_columns)
    n_rows = F.count("*")
    counted = by_key.agg(n_rows.alias("_rows"))
    is_repeated = counted["_rows"] > 1
    is_broken = is_repeated | has_null
    return counted.where(is_broken)


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the sink's keys."""
    rows = sink_keys(judged.spark, judged.tables, judged.window)
    yield judged.batch(rows, duplicate_keys.expected(key=judged.key))
