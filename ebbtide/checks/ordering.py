"""Ordering: changes reach the sink in order, and the sink shows what the state decided.

Source: DESIGN, "Expectations"; FLIP-544, on what a disordered changelog does to a sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Per
from pyspark.sql import functions as F

from ebbtide.checks import changelog
from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.model.changelog import ORDER
from ebbtide.model.entries import DELETE
from ebbtide.runtime.plan import Plan
from ebbtide.tables.spark_columns import columns, json_text, spark_schema


def sink_changes(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read the sink's change feed.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per changed row and image: key columns, `_changed_by`, `_change_type`, `_commit_version`.
    """
    schema = _change_schema(tables)
    if window.sink_since >= window.sink_until:  # Delta refuses to read from a version that is not there yet
        return spark.createDataFrame([], spark_schema(schema))
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", window.sink_since + 1)
        .option("endingVersion", window.sink_until)
        .load(tables.sink.path)
    )
    feed_columns = columns(schema.names)
    return feed.select(*feed_columns)


def _change_schema(tables: Plan) -> pa.Schema:
    sink = tables.sink
    key_fields = [sink.columns.field(name) for name in sink.key]
    fields = [
        *key_fields,
        pa.field("_changed_by", ORDER),
        pa.field("_change_type", pa.string()),
        pa.field("_commit_version", pa.int64()),
    ]
    return pa.schema(fields)


@rule("expect_changes_to_rise_per_key", "Per $key, _changed_by must rise from change to change.")
def disordered_changes(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the changes whose `_changed_by` is not after that of the row before, per key.

    Args:
        changes: As from `sink_changes`.
        key: Names of the key's columns.
    """
    change_type = F.col("_change_type")
    is_old_image = change_type.isin("delete", "update_preimage")
    is_new_image = change_type.isin("insert", "update_postimage")
    # A commit that updates a row writes both its images: the old one comes first.
    image = F.when(is_old_image, 0).otherwise(1)
    per_key = Per.partitionBy(*columns(key))
    history = per_key.orderBy("_commit_version", image)
    before = F.lag("_changed_by").over(history)
    beside = changes.withColumn("_before", before)
    written = beside.where(is_new_image)
    is_disordered = "_changed_by IS NULL OR _changed_by <= _before"
    return written.where(is_disordered)


def decisions(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read, for the keys that changed, what the state decided last and what the sink shows.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; keys count that either table changed.

    Returns:
        One row per key: key columns, `_decided` and `_shown`: the row as JSON with its `_changed_by`, null if it must not
        be, or is not, there. Keys that a TRUNCATE swept, or of which the state keeps no decision, are left out.
    """
    names = list(tables.sink.key)
    key = columns(names)
    keys = _changed_keys(spark, tables, window)
    last_decisions = _last_decisions(spark, tables, window, keys)
    sink = tables.sink.read(spark, window.sink_until)
    present = sink.join(keys, names, "left_semi")

    # Rows are compared as JSON, with the change that wrote them: nulls are written, so that no column is missing.
    row_columns = columns(tables.sink.columns.names)
    row = F.struct(*row_columns, "_changed_by")
    row_text = json_text(row)
    must_be_there = F.col("_change") != DELETE
    decided_text = F.when(must_be_there, row_text)
    decided = last_decisions.select(
        *key,
        decided_text.alias("_decided"),
    )
    shown = present.select(
        *key,
        row_text.alias("_shown"),
    )
    return decided.join(shown, names, "left")


def _last_decisions(spark: SparkSession, tables: Plan, window: VersionRange, keys: DataFrame) -> DataFrame:
    """Read the last decision on each of some keys, but of those that a TRUNCATE swept."""
    decided = tables.state.decided(spark, window.state_until)
    last = decided.join(keys, list(tables.sink.key), "left_semi")
    facts = window.last_step(tables)
    if facts is None or not facts.frontier.floor:
        return last
    is_swept = tables.delta_sink.below(facts.frontier.floor)
    return last.where(~is_swept)


def _changed_keys(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read the keys of which the sink or the state has changed within the window."""
    key = columns(tables.sink.key)
    last_step_before = window.step_since(tables)
    decided = tables.state.decided_since(spark, window.state_until, last_step_before)
    decided_keys = decided.select(*key)
    written = sink_changes(spark, tables, window)
    written_keys = written.select(*key)
    keys = written_keys.union(decided_keys)
    return keys.distinct()


def sequenced(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read what the state says of the rows it wrote by their sequence.

    Args:
        spark: A session with Delta.
        tables: The pipeline's; it goes by sequence.
        window: The versions.

    Returns:
        One row per key that is live, or may have lost its row: key columns, `_sequence`, whether it has a `_conflict`, the columns
        for whose value it `_waits`.
    """
    last_step_before = window.step_since(tables)
    entries = tables.state.latest_versions(spark, window.state_until, last_step_before)
    judged = entries.where("NOT _removed AND (_conflict OR NOT _tombstone)")
    # A column whose value was not sent has no sequence at which it was last known.
    unknown = F.map_filter(
        "_columns",
        lambda _, known_at: known_at.isNull(),
    )
    waits = F.map_keys(unknown)
    key = columns(tables.spec.key)
    return judged.select(
        *key,
        "_sequence",
        "_conflict",
        waits.alias("_waits"),
    )


@rule(
    "expect_sequences_to_decide",
    "A key's sequence must tell which of its changes came last; add a column to order.sequence that does.",
)
def undecided_keys(rows: DataFrame) -> DataFrame:
    """Pick the keys of which the sequence does not tell which content is the row, or whether one of those taken back is.

    Args:
        rows: As from `sequenced`.
    """
    return rows.where("_conflict")


@rule("expect_values_to_arrive", "A value that an update left out must be known from an earlier change.")
def missing_values(rows: DataFrame) -> DataFrame:
    """Pick the rows that show null since a value was not sent and has not been found yet.

    Args:
        rows: As from `sequenced`.
    """
    n_waits = F.size("_waits")
    return rows.where(n_waits > 0)


@rule("expect_sink_to_show_decisions", "The sink must show, per key, what the state decided last.")
def decision_mismatches(decided: DataFrame) -> DataFrame:
    """Pick the keys whose row in the sink is not the one that was decided.

    Args:
        decided: As from `decisions`.
    """
    shown_row = F.col("_shown")
    is_as_decided = F.col("_decided").eqNullSafe(shown_row)
    return decided.where(~is_as_decided)


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge what the sink was made to show, change by change and at the end."""
    asked = (judged.spark, judged.tables, judged.window)
    yield judged.batch(sink_changes(*asked), disordered_changes.expected(key=judged.key))
    yield judged.batch(decisions(*asked), decision_mismatches.expected())
    if judged.tables.spec.sequence:
        values = missing_values.expected("warning")
        yield judged.batch(sequenced(*asked), undecided_keys.expected(), values)
    if judged.tables.spec.emits_every:
        yield from changelog.judge(judged)
