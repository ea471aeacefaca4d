"""Judges a check of a pipeline, as a run does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.checks.great_expectations.checks import checks_of
from ebbtide.checks.great_expectations.validate import Verdict, validate
from ebbtide.checks.rule import Judged
from ebbtide.checks.version_range import VersionRange
from ebbtide.runtime.clock import system_clock
from ebbtide.runtime.plan import Plan


def verdict_of(
    spark: SparkSession,
    tables: Plan,
    check: str,
    *,
    clock_ms: int | None = None,
    last_good: dict[str, Any] | None = None,
    docs: Path | None = None,
) -> Verdict:
    """Return what a check comes to.

    Args:
        spark: The session.
        tables: The pipeline's.
        check: Name of the check.
        clock_ms: The time. Default: now.
        last_good: Up to which versions it was judged good last.
        docs: Where Data Docs are written. Default: none are.
    """
    [judge] = [each.load() for each in checks_of(tables.spec) if each.name == check]
    window = VersionRange.after(tables, last_good)
    judged = Judged(spark, tables, window, system_clock() if clock_ms is None else clock_ms)
    return validate(check, judge(judged), docs, 2)
