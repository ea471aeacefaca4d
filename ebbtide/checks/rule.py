"""What a check is made of: rows, rules that must find none among them, and what the check is asked about.

A module of rules has functions that read rows, rules, and a `judge` that pairs them. Nothing here loads Great Expectations:
`ebbtide.checks.great_expectations.expectations` makes an expectation from each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from ebbtide.checks.version_range import VersionRange
from ebbtide.model.sequences import LOG_POSITIONS
from ebbtide.runtime.plan import Plan

ResultFormat = Literal["SUMMARY", "COMPLETE"]
Severity = Literal["critical", "warning"]
BOOKKEEPING = frozenset(
    {
        *(
            "_changed_by",
            "_change_type",
            "_commit_version",
            "_before",
            "_kind",
            "_order",
            "_number",
            "_truncates",
            "_new",
        ),
        *("_step", "_stamp_ms", "_ttl_ms", "_overdue_ms", "_state", "_removed", "_tombstone", "_conflict", "_waits"),
        *("_rows", "table", "version", "at", "operation", "pipeline", "step", "records", "quarantined", "rate", "op"),
        *("unknown_column", "newest_event_ms", "behind_ms"),
        *LOG_POSITIONS,
    }
)
"""Columns of rows to judge that hold no value of a user's column."""


@dataclass(frozen=True)
class Rule:
    """A condition that no row of a batch may meet. Calling it picks the rows that break it.

    Args:
        expectation: Name of the expectation that is made from it: `expect_keys_to_be_unique`.
        template: What must hold, in a sentence with `$argument` in place of arguments.
        broken: Picks the rows that break it; its arguments behind the rows are those of the expectation.
    """

    expectation: str
    template: str
    broken: Callable[..., DataFrame]

    def __call__(self, rows: DataFrame, *positional: Any, **named: Any) -> DataFrame:
        """Pick the rows that break it."""
        return self.broken(rows, *positional, **named)

    def expected(self, severity: Severity = "critical", **arguments: Any) -> Expected:
        """Return the rule with its arguments.

        Args:
            severity: What a row that breaks it means.
            arguments: Those of `broken` behind the rows.
        """
        return Expected(self, arguments, severity)


@dataclass(frozen=True)
class Expected:
    """A rule with its arguments, as a batch is judged by it.

    Args:
        rule: The rule.
        arguments: By name; JSON values.
        severity: What a row that breaks it means.
    """

    rule: Rule
    arguments: Mapping[str, Any]
    severity: Severity


def rule(expectation: str, template: str) -> Callable[[Callable[..., DataFrame]], Rule]:
    """Make a function that picks broken rows a rule; arguments as `Rule`."""

    def made(broken: Callable[..., DataFrame]) -> Rule:
        return Rule(expectation, template, broken)

    return made


@dataclass(frozen=True)
class Batch:
    """Rows, and what is expected of them.

    Args:
        rows: The batch.
        expectations: All judge the same rows: rules, or expectations of Great Expectations.
        result_format: How much Great Expectations reports: SUMMARY, at most 20 values; COMPLETE, as many as the
            expectation gives.
        shown: Columns whose values results may show; None: all of them.
    """

    rows: DataFrame
    expectations: Sequence[Any]
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

    def batch(self, rows: DataFrame, *expectations: Any, result_format: ResultFormat = "SUMMARY") -> Batch:
        """Return a batch whose results show nothing personal; arguments as `Batch`."""
        spec = self.tables.spec
        shown = None
        if spec.personal:
            names = BOOKKEEPING.union(spec.table.columns.names, spec.sink_table.columns.names)
            shown = names - spec.personal
        return Batch(rows, expectations, result_format, shown)
