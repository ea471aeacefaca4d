"""What a check is made of: rows, rules that must find none among them, and what the check is asked about.

Both halves are SQL that DuckDB and Spark read alike: the rows are a query over named inputs, a rule is a condition on the rows. A
module of rules has functions that name rows, rules, and a `judge` that pairs them. Nothing here loads Great Expectations or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ebbtide.checks.dialects import Dialect
from ebbtide.checks.engines import Broken, Engines
from ebbtide.checks.inputs import ChangeFeed, GivenRows, Input, TableRows
from ebbtide.checks.version_range import VersionRange
from ebbtide.model.sequences import LOG_POSITIONS
from ebbtide.runtime.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


Condition = Callable[..., str]
"""Writes a condition: (dialect, **arguments)."""


@dataclass(frozen=True)
class Rows:
    """Rows to judge.

    Args:
        inputs: What the query reads, by name.
        query: Writes the query; a rule sees the columns that it selects.
        columns: Columns that samples show.
        order: Columns that samples are ordered by.
    """

    inputs: Mapping[str, Input]
    query: Callable[[Dialect], str]
    columns: Sequence[str]
    order: Sequence[str]

    @classmethod
    def given(cls, rows: pa.Table, query: str = "SELECT * FROM facts") -> Rows:
        """Return rows that are at hand, `facts`; no table is read."""
        return cls({"facts": GivenRows(rows)}, lambda _: query, rows.column_names, rows.column_names)


@dataclass(frozen=True)
class Rule:
    """A condition that no row of a batch may meet.

    Args:
        expectation: Name of the expectation that is made from it: `expect_keys_to_be_unique`.
        template: What must hold, in a sentence with `$argument` in place of arguments.
        condition: Writes the condition; its arguments behind the dialect are those of the expectation.
    """

    expectation: str
    template: str
    condition: Condition

    def expected(self, severity: Severity = "critical", **arguments: Any) -> Expected:
        """Return the rule with its arguments.

        Args:
            severity: What a row that breaks it means.
            arguments: Those of `condition` behind the dialect.
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


def rule(expectation: str, template: str) -> Callable[[Condition], Rule]:
    """Make a function that writes a condition a rule; arguments as `Rule`."""

    def made(condition: Condition) -> Rule:
        return Rule(expectation, template, condition)

    return made


@dataclass(frozen=True)
class Batch:
    """Rows, and what is expected of them.

    Args:
        rows: The batch. For expectations of Great Expectations: a frame of Spark's or pandas'.
        expectations: All judge the same rows: rules, or expectations of Great Expectations.
        result_format: How much Great Expectations reports: SUMMARY, at most 20 values; COMPLETE, as many as the
            expectation gives.
        shown: Columns whose values results may show; None: all of them.
        broken: What breaks each of the rules; None of expectations of Great Expectations.
    """

    rows: Any
    expectations: Sequence[Any]
    result_format: ResultFormat = "SUMMARY"
    shown: frozenset[str] | None = None
    broken: Sequence[Broken] | None = None


@dataclass(frozen=True)
class Judged:
    """What a check is asked about.

    Args:
        engines: Where rules run.
        tables: The pipeline's.
        window: The versions to judge.
        clock_ms: The time, epoch ms.
    """

    engines: Engines
    tables: Plan
    window: VersionRange
    clock_ms: int

    @property
    def spark(self) -> SparkSession:
        """Spark's session, started now if it was not: for what cannot be judged without."""
        return self.engines.session()

    @property
    def key(self) -> list[str]:
        """The sink's key."""
        return list(self.tables.sink.key)

    @property
    def sink_rows(self) -> TableRows:
        """The rows of the sink."""
        sink = self.tables.delta_sink
        return TableRows(sink.path, self.window.sink_until, sink.schema)

    @property
    def sink_feed(self) -> ChangeFeed:
        """The window's changes of the sink: key columns and `_changed_by`."""
        sink = self.tables.delta_sink
        columns = [sink.schema.field(name) for name in (*sink.key, "_changed_by")]
        return ChangeFeed(sink.path, self.window.sink_since, self.window.sink_until, pa.schema(columns))

    @property
    def state_rows(self) -> TableRows:
        """All rows of the state table."""
        state = self.tables.state
        return TableRows(state.path, self.window.state_until, state.schema)

    def batch(self, rows: Rows | DataFrame, *expectations: Any, result_format: ResultFormat = "SUMMARY") -> Batch:
        """Return a batch whose results show nothing personal; arguments as `Batch`. Rules are run now."""
        spec = self.tables.spec
        shown = None
        if spec.personal:
            names = BOOKKEEPING.union(spec.table.columns.names, spec.sink_table.columns.names)
            shown = names - spec.personal
        broken = self.engines.broken(rows, expectations) if isinstance(rows, Rows) else None
        return Batch(rows, expectations, result_format, shown, broken)
