"""Which rows each check of a pipeline judges, by which expectations: the functions that `ebbtide.quality.checks` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from pyspark.sql import DataFrame, SparkSession

from ebbtide.model.durations import to_ms
from ebbtide.quality import expectations
from ebbtide.quality.masking import BOOKKEEPING
from ebbtide.quality.spec_expectations import expectation_of
from ebbtide.rules import (
    changelog,
    completeness,
    event_time,
    expiry,
    keys,
    ordering,
    quarantine,
    schema_drift,
    source_loss,
    writes,
)
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import columns

WARNING = FailureSeverity.WARNING
ResultFormat = Literal["SUMMARY", "COMPLETE"]


@dataclass(frozen=True)
class Batch:
    """Rows, and what is expected of them.

    Args:
        rows: The batch.
        expectations: All judge the same rows.
        result_format: How much Great Expectations reports: SUMMARY, at most 20 values; COMPLETE, as many as the
            expectation gives.
        shown: Columns whose values results may show; None: all of them.
    """

    rows: DataFrame
    expectations: Sequence[BatchExpectation]
    result_format: ResultFormat = "SUMMARY"
    shown: frozenset[str] | None = None


@dataclass(frozen=True)
class Judged:
    """What a check is asked about.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions to judge.
        clock_ms: The time, epoch ms.
    """

    spark: SparkSession
    tables: Plan
    window: VersionRange
    clock_ms: int

    @property
    def key(self) -> list[str]:
        """The sink's key."""
        return list(self.tables.sink.key)

    def batch(
        self, rows: DataFrame, expectations: Sequence[BatchExpectation], result_format: ResultFormat = "SUMMARY"
    ) -> Batch:
        """Return a batch whose results show nothing personal; arguments as `Batch`."""
        spec = self.tables.spec
        shown = None
        if spec.personal:
            names = BOOKKEEPING.union(spec.table.columns.names, spec.sink_table.columns.names)
            shown = names - spec.personal
        return Batch(rows, expectations, result_format, shown)


def judge_ordering(judged: Judged) -> Iterator[Batch]:
    """Judge what the sink was made to show, change by change and at the end."""
    asked = (judged.spark, judged.tables, judged.window)
    spec = judged.tables.spec
    changes = ordering.sink_changes(*asked)
    rises = expectations.ExpectChangesToRisePerKey(key=judged.key)
    yield judged.batch(changes, [rises])
    decisions = ordering.decisions(*asked)
    yield judged.batch(decisions, [expectations.ExpectSinkToShowDecisions()])
    if spec.sequence:
        sequenced = ordering.sequenced(*asked)
        decides = expectations.ExpectSequencesToDecide()
        arrives = expectations.ExpectValuesToArrive(severity=WARNING)
        yield judged.batch(sequenced, [decides, arrives])
    if spec.emits_every:
        emitted = changelog.emitted(*asked)
        follows = expectations.ExpectEmittedToFollow(
            key=judged.key,
            orphans=spec.leaves_orphans,
        )
        yield judged.batch(emitted, [follows])


def judge_complete(judged: Judged) -> Iterator[Batch]:
    """Judge the whole sink beside the whole state."""
    differences = completeness.compared(judged.spark, judged.tables, judged.window)
    if differences is not None:
        yield judged.batch(differences, [expectations.ExpectSinkToBeComplete()])


def judge_expiry(judged: Judged) -> Iterator[Batch]:
    """Judge how long entries that have expired are still there."""
    if not judged.tables.operator.expiry.ttls:
        return
    allowed = judged.tables.spec.checks
    late = to_ms(allowed.expiry_grace)
    stored = to_ms(allowed.cleanup_within)
    entries = expiry.entries(judged.spark, judged.tables, judged.window, judged.clock_ms)
    yield judged.batch(
        entries,
        [
            expectations.ExpectEntriesToExpire(grace_ms=late),
            expectations.ExpectEntriesToExpire(grace_ms=0, severity=WARNING),
            expectations.ExpectExpiredEntriesToBeDeleted(grace_ms=stored, severity=WARNING),
        ],
    )


def judge_unique_key(judged: Judged) -> Iterator[Batch]:
    """Judge the sink's keys."""
    rows = keys.sink_keys(judged.spark, judged.tables, judged.window)
    is_unique = expectations.ExpectKeysToBeUnique(key=judged.key)
    yield judged.batch(rows, [is_unique])


def judge_quarantine_rate(judged: Judged) -> Iterator[Batch]:
    """Judge the share of bad records of each step."""
    steps = quarantine.steps(judged.spark, judged.tables, judged.window)
    max_rate = judged.tables.spec.checks.max_quarantine_rate
    stays_below = expectations.ExpectQuarantineRateToStayBelow(max_rate=max_rate)
    yield judged.batch(steps, [stays_below])


def judge_event_time(judged: Judged) -> Iterator[Batch]:
    """Judge how old the newest event is."""
    max_delay = judged.tables.spec.checks.max_event_delay
    if max_delay is None:
        return
    newest = event_time.newest_event(judged.spark, judged.tables, judged.clock_ms)
    is_recent = expectations.ExpectNewestEventToBeRecent(max_delay_ms=to_ms(max_delay))
    yield judged.batch(newest, [is_recent])


def judge_schema_drift(judged: Judged) -> Iterator[Batch]:
    """Judge the columns of the source that were left out."""
    left_out = schema_drift.columns(judged.spark, judged.tables, judged.window)
    are_known = expectations.ExpectColumnsToBeKnown(severity=WARNING)
    yield judged.batch(left_out, [are_known])


def judge_source_loss(judged: Judged) -> Iterator[Batch]:
    """Judge what was lost of the source."""
    losses = source_loss.noted(judged.spark, judged.tables, judged.window)
    yield judged.batch(losses, [expectations.ExpectRecordsToBeRead()])


def judge_foreign_writes(judged: Judged) -> Iterator[Batch]:
    """Judge who wrote to the sink and the state."""
    commits = writes.commits(judged.spark, judged.tables, judged.window)
    yield judged.batch(commits, [expectations.ExpectCommitsToBeOurs()])


def judge_expectations(judged: Judged) -> Iterator[Batch]:
    """Judge the rules of a project's own on the sink's rows, without Ebbtide's own columns."""
    spec = judged.tables.spec
    given = [expectation_of(each) for each in spec.checks.expectations]
    sink = judged.tables.sink.read(judged.spark, judged.window.sink_until)
    names = spec.sink_table.columns.names
    rows = sink.select(*columns(names))
    # Of a query's rows Great Expectations reports none in a summary, and at most 200 in full.
    queries = [each for each in given if isinstance(each, UnexpectedRowsExpectation)]
    others = [each for each in given if not isinstance(each, UnexpectedRowsExpectation)]
    if queries:
        yield judged.batch(rows, queries, "COMPLETE")
    if others:
        yield judged.batch(rows, others)
