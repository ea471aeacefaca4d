"""Judges a check of a pipeline, as a run does. Great Expectations is loaded by the first judgment: that takes as long as to collect all tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.checks import Engines, Verdict, VersionRange, checks_of
from ebbtide.checks._judged import Batch, Judged
from ebbtide.runtime import Plan, system_clock


def validate(check: str, found: Iterable[Batch], docs: Path | None, keep: int) -> Verdict:
    """See `ebbtide.checks.great_expectations.validate`."""
    from ebbtide.checks.great_expectations import validate as loaded

    return loaded.validate(check, found, docs, keep)


def sample_of(verdict: Verdict, expectation: str) -> list[dict[str, Any]]:
    """Return the sample of what an expectation found."""
    [finding] = [each for each in verdict.findings if each.expectation == expectation]
    return finding.sample


def n_broken(tables: Plan, check: str) -> int:
    """Return how many rows break the rules of a check, judged in this process and without Great Expectations."""

    def session() -> SparkSession:
        raise AssertionError("a session was asked for")

    [judge] = [each.load() for each in checks_of(tables.spec) if each.name == check]
    here = Judged(Engines(session), tables, VersionRange.after(tables), 0)
    return sum(broken.count for batch in judge(here) for broken in batch.broken)


def verdict_of(
    spark: SparkSession | None,
    tables: Plan,
    check: str,
    *,
    clock_ms: int | None = None,
    last_good: dict[str, Any] | None = None,
    docs: Path | None = None,
    on_spark: bool = False,
) -> Verdict:
    """Return what a check comes to in this process, as a run judges tables of this size.

    Args:
        spark: The session. None: there is none, and none may be asked for.
        tables: The pipeline's.
        check: Name of the check.
        clock_ms: The time. Default: now.
        last_good: Up to which versions it was judged good last.
        docs: Where Data Docs are written. Default: none are.
        on_spark: Judge it on Spark, too: both must find the same.
    """
    [judge] = [each.load() for each in checks_of(tables.spec) if each.name == check]
    window = VersionRange.after(tables, last_good)
    now_ms = system_clock() if clock_ms is None else clock_ms

    def session() -> SparkSession:
        assert spark is not None, "a session was asked for"
        return spark

    here = Judged(Engines(session), tables, window, now_ms)
    verdict = validate(check, judge(here), docs, 2)
    if on_spark:
        there = Judged(Engines(session, most_rows=0), tables, window, now_ms)
        assert validate(check, judge(there), None, 2).findings == verdict.findings
    return verdict
