"""Which batch each check of a pipeline judges, by which expectations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from great_expectations.expectations.expectation import BatchExpectation
from pyspark.sql import DataFrame, SparkSession

from ebbtide.model.ttl import TimeCharacteristic, to_ms
from ebbtide.rules import expiry, keys, ordering, quarantine, writes
from ebbtide.rules.window import Window
from ebbtide.streaming.tables import Tables
from expectations import shells


@dataclass(frozen=True)
class Batch:
    """Rows, and what is expected of them.

    Args:
        rows: The batch.
        expectations: All judge the same rows.
    """

    rows: DataFrame
    expectations: list[BatchExpectation]


def batches(spark: SparkSession, tables: Tables, check: str, window: Window, clock_ms: int) -> Iterator[Batch]:
    """Yield what a check judges; nothing where it has nothing to judge.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        check: One of `expectations.checks.CHECKS`, by name.
        window: The versions to judge.
        clock_ms: The time, epoch ms.
    """
    key, allowed = list(tables.spec.key), tables.spec.checks
    if check == "ordering":
        yield Batch(ordering.sink_changes(spark, tables, window), [shells.ExpectChangesToRisePerKey(key=key)])
        yield Batch(ordering.decisions(spark, tables, window), [shells.ExpectSinkToShowDecisions()])
    elif check == "expiry":
        due_ms = _due_ms(tables, clock_ms)
        if due_ms is not None:
            late, stored = (due_ms - to_ms(grace) for grace in (allowed.expiry_grace, allowed.cleanup_within))
            yield Batch(
                expiry.entries(spark, tables, window),
                [
                    shells.ExpectEntriesToExpire(due_ms=late),
                    shells.ExpectEntriesToExpire(due_ms=due_ms, severity="warning"),
                    shells.ExpectExpiredEntriesToBeDeleted(due_ms=stored, severity="warning"),
                ],
            )
    elif check == "unique_key":
        yield Batch(keys.sink_keys(spark, tables, window), [shells.ExpectKeysToBeUnique(key=key)])
    elif check == "quarantine_rate":
        rate = shells.ExpectQuarantineRateToStayBelow(max_rate=allowed.max_quarantine_rate)
        yield Batch(quarantine.steps(spark, tables, window), [rate])
    elif check == "foreign_writes":
        yield Batch(writes.commits(spark, tables, window), [shells.ExpectCommitsToBeOurs()])


def _due_ms(tables: Tables, clock_ms: int) -> int | None:
    """Return the stamp up to which nothing may live; None where nothing expires (yet)."""
    ttl, found = tables.spec.ttl, tables.state.last()
    if ttl is None or found is None:
        return None
    by_event = ttl.time_characteristic is TimeCharacteristic.EVENT_TIME
    clock = found[1].watermark_ms if by_event else clock_ms
    return None if clock is None else clock - ttl.ttl_ms
