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
from ebbtide.runtime.tables import Tables
from ebbtide.state_table.columns import columns


def emitted(spark: SparkSession, tables: Tables, window: VersionRange) -> DataFrame:
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
    truncates = emissions.where(is_truncate).select(F.col("_order").alias("_emptied"))
    is_new = F.col("_order.step") > window.step_since(tables)
    record = columns([*tables.sink.key, "_kind", "_order", "_number"])
    records = emissions.where(~is_truncate).select(*record, is_new.alias("_new"))
    # There are few TRUNCATEs: each record is joined with all of them, and counts those before it.
    beside_truncates = records.join(F.broadcast(truncates), F.lit(True), "left")
    n_before = F.count_if(F.col("_emptied") < F.col("_order"))
    by_record = beside_truncates.groupBy(*record, "_new")
    counted = by_record.agg(n_before.alias("_truncates"))
    key = list(tables.sink.key)
    new_keys = counted.where("_new").select(*columns(key)).distinct()
    return counted.join(new_keys, key, "left_semi")


def misplaced(rows: DataFrame, key: Sequence[str], orphans: bool) -> DataFrame:  # noqa: FBT001 - an expectation's argument
    """Pick the records that cannot follow the one before, per key.

    Args:
        rows: As from `emitted`.
        key: Names of the key's columns.
        orphans: The sink keeps rows that have expired in the state: an insertion may come while one is there.
    """
    # Within the records of a key between two TRUNCATEs, in order, only the one before decides what may come.
    stretch = Per.partitionBy(*columns(key), "_truncates")
    before = F.lag("_kind").over(stretch.orderBy("_order", "_number"))
    kind = F.col("_kind")
    after_deletion = F.col("_before") == "-D"
    after_other = F.col("_before") != "-D"
    inserted_twice = (kind == "+I") & after_other & F.lit(not orphans)
    not_there = (kind != "+I") & after_deletion
    is_misplaced = F.col("_new") & (inserted_twice | not_there)
    return rows.withColumn("_before", before).where(is_misplaced)
