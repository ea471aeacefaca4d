"""The changelog: per key an insertion comes only after a deletion, an update or a deletion only after an insertion or update.

Source: FLIP-544, on what sinks expect of a changelog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Per
from pyspark.sql import functions as F

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.model.changelog import TRUNCATE
from ebbtide.runtime.plan import Plan
from ebbtide.tables.spark_columns import columns


def emitted(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read what was emitted for the keys that the window's steps emitted anything for, from the first record on.

    Args:
        spark: A session with Delta.
        tables: The pipeline's; it emits every record.
        window: The versions.

    Returns:
        Key columns, `_kind`, `_order`, `_number`, whether it is `_new`: of the window, and how many TRUNCATEs came before (`_truncates`).
    """
    emissions = spark.read.format("delta").load(tables.changelog.path)
    is_truncate = F.col("_kind") == TRUNCATE
    changes = emissions.where(~is_truncate)
    emptied = F.col("_order").alias("_emptied")
    truncates = emissions.where(is_truncate).select(emptied)

    key = list(tables.sink.key)
    record = columns([*key, "_kind", "_order", "_number"])
    last_step_before = window.step_since(tables)
    is_new = F.col("_order.step") > last_step_before
    records = changes.select(
        *record,
        is_new.alias("_new"),
    )

    # There are few TRUNCATEs: each record is joined with all of them, and counts those before it.
    all_truncates = F.broadcast(truncates)
    beside_truncates = records.join(all_truncates, F.lit(True), "left")
    by_record = beside_truncates.groupBy(*record, "_new")
    n_before = F.expr("count_if(_emptied < _order)")
    counted = by_record.agg(n_before.alias("_truncates"))

    new_records = counted.where("_new")
    new_keys = new_records.select(*columns(key)).distinct()
    return counted.join(new_keys, key, "left_semi")


@rule(
    "expect_emitted_to_follow",
    "Per $key, +I must come only where the key is absent, +U and -D only where it is present.",
)
def invalid_transitions(rows: DataFrame, key: Sequence[str], orphans: bool) -> DataFrame:  # noqa: FBT001 - an expectation's argument
    """Pick the records that cannot follow the one before, per key.

    Args:
        rows: As from `emitted`.
        key: Names of the key's columns.
        orphans: The sink keeps rows that have expired in the state: an insertion may come while one is there.
    """
    # Within the records of a key between two TRUNCATEs, in order, only the one before decides what may come.
    stretch = Per.partitionBy(*columns(key), "_truncates")
    in_order = stretch.orderBy("_order", "_number")
    kind_before = F.lag("_kind").over(in_order)
    beside = rows.withColumn("_before", kind_before)
    new_rows = beside.where("_new")
    is_absent = "_kind <> '+I' AND _before = '-D'"
    if orphans:
        return new_rows.where(is_absent)
    is_inserted_twice = "_kind = '+I' AND _before <> '-D'"
    return new_rows.where(f"({is_inserted_twice}) OR ({is_absent})")


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge what the sink's changelog was made to say."""
    records = emitted(judged.spark, judged.tables, judged.window)
    orphans = judged.tables.spec.leaves_orphans
    yield judged.batch(records, invalid_transitions.expected(key=judged.key, orphans=orphans))
