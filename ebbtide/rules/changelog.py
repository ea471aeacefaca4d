"""The changelog: per key an insertion comes only after a deletion, an update or a deletion only after an insertion or update.

Source: FLIP-544, on what sinks expect of a changelog.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Per
from pyspark.sql import functions as F

from ebbtide.model.changelog import TRUNCATE
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import columns


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
    order = F.col("_order")
    truncates = emissions.where(is_truncate).select(order.alias("_emptied"))
    changes = emissions.where(~is_truncate)
    key = list(tables.sink.key)
    record = columns([*key, "_kind", "_order", "_number"])
    is_new = F.col("_order.step") > window.step_since(tables)
    records = changes.select(*record, is_new.alias("_new"))
    # There are few TRUNCATEs: each record is joined with all of them, and counts those before it.
    beside_truncates = records.join(F.broadcast(truncates), F.lit(True), "left")
    by_record = beside_truncates.groupBy(*record, "_new")
    n_before = F.expr("count_if(_emptied < _order)")
    counted = by_record.agg(n_before.alias("_truncates"))
    new_keys = counted.where("_new").select(*columns(key))
    return counted.join(new_keys.distinct(), key, "left_semi")


def misplaced(rows: DataFrame, key: Sequence[str], orphans: bool) -> DataFrame:  # noqa: FBT001 - an expectation's argument
    """Pick the records that cannot follow the one before, per key.

    Args:
        rows: As from `emitted`.
        key: Names of the key's columns.
        orphans: The sink keeps rows that have expired in the state: an insertion may come while one is there.
    """
    # Within the records of a key between two TRUNCATEs, in order, only the one before decides what may come.
    stretch = Per.partitionBy(*columns(key), "_truncates")
    in_order = stretch.orderBy("_order", "_number")
    before = F.lag("_kind").over(in_order)
    inserted_twice = "_kind = '+I' AND _before <> '-D'"
    not_there = "_kind <> '+I' AND _before = '-D'"
    is_misplaced = not_there if orphans else f"({inserted_twice}) OR ({not_there})"
    beside = rows.withColumn("_before", before)
    return beside.where("_new").where(is_misplaced)
