"""Which batch each check of a pipeline judges, by which expectations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from great_expectations.expectations.expectation import BatchExpectation
from pyspark.sql import DataFrame, SparkSession

from ebbtide.model.durations import to_ms
from ebbtide.quality import expectations as shells
from ebbtide.rules import changelog, expiry, keys, ordering, quarantine, writes
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.tables import Tables


@dataclass(frozen=True)
class Batch:
    """Rows, and what is expected of them.

    Args:
        rows: The batch.
        expectations: All judge the same rows.
    """

    rows: DataFrame
    expectations: list[BatchExpectation]


def batches(spark: SparkSession, tables: Tables, check: str, window: VersionRange, clock_ms: int) -> Iterator[Batch]:
    """Yield what a check judges; nothing where it has nothing to judge.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        check: One of `ebbtide.quality.checks.CHECKS`, by name.
        window: The versions to judge.
        clock_ms: The time, epoch ms.
    """
    key, allowed = list(tables.sink.key), tables.spec.checks
    if check == "ordering":
        yield Batch(ordering.sink_changes(spark, tables, window), [shells.ExpectChangesToRisePerKey(key=key)])
        yield Batch(ordering.decisions(spark, tables, window), [shells.ExpectSinkToShowDecisions()])
        if tables.spec.sequence:
            decided = [shells.ExpectSequencesToDecide(), shells.ExpectValuesToArrive(severity="warning")]
            yield Batch(ordering.sequenced(spark, tables, window), decided)
        if tables.spec.emits_every:
            follows = shells.ExpectEmittedToFollow(key=key, orphans=tables.spec.leaves_orphans)
            yield Batch(changelog.emitted(spark, tables, window), [follows])
    elif check == "expiry":
        if tables.state.operator.ttls:
            late, stored = to_ms(allowed.expiry_grace), to_ms(allowed.cleanup_within)
            yield Batch(
                expiry.entries(spark, tables, window, clock_ms),
                [
                    shells.ExpectEntriesToExpire(grace_ms=late),
                    shells.ExpectEntriesToExpire(grace_ms=0, severity="warning"),
                    shells.ExpectExpiredEntriesToBeDeleted(grace_ms=stored, severity="warning"),
                ],
            )
    elif check == "unique_key":
        yield Batch(keys.sink_keys(spark, tables, window), [shells.ExpectKeysToBeUnique(key=key)])
    elif check == "quarantine_rate":
        rate = shells.ExpectQuarantineRateToStayBelow(max_rate=allowed.max_quarantine_rate)
        yield Batch(quarantine.steps(spark, tables, window), [rate])
    elif check == "foreign_writes":
        yield Batch(writes.commits(spark, tables, window), [shells.ExpectCommitsToBeOurs()])
