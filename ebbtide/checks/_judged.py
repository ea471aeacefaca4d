"""The input of a check, and its batches: rows with expectations.

A module of rules has functions for rows, rules, and a `judge` that pairs them. Nothing here loads Great Expectations or Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ebbtide.changelog import SequenceColumns
from ebbtide.checks._engines import Broken, Engines
from ebbtide.checks._inputs import ChangeFeed, TableRows
from ebbtide.checks._rule import Rows
from ebbtide.checks._version_range import VersionRange
from ebbtide.columns import columns_named
from ebbtide.runtime import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ResultFormat = Literal["SUMMARY", "COMPLETE"]
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
        *("refusal", "unknown_column", "newest_event_ms", "behind_ms", "_file", "_files", "_bytes"),
        *SequenceColumns.LOG_POSITIONS,
    }
)
"""Columns of rows to judge that hold no value of a user's column."""


@dataclass(frozen=True)
class Batch:
    """Rows and the expectations on them.

    Args:
        rows: The batch. For expectations of Great Expectations: a frame of Spark's or pandas'.
        expectations: All judge the same rows: rules, or expectations of Great Expectations.
        result_format: Report size of Great Expectations: SUMMARY, at most 20 values; COMPLETE, all values of the
            expectation.
        shown: Columns whose values results may show; None: all of them.
        broken: Rows that break each rule; None for expectations of Great Expectations.
    """

    rows: Any
    expectations: Sequence[Any]
    result_format: ResultFormat = "SUMMARY"
    shown: frozenset[str] | None = None
    broken: Sequence[Broken] | None = None


@dataclass(frozen=True)
class Judged:
    """The input of a check.

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
        """Spark's session, started on first use, for rules that need it."""
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
        names = [*sink.key, "_changed_by"]
        columns = columns_named(sink.schema, names)
        return ChangeFeed(
            sink.path,
            self.window.sink_since,
            self.window.sink_until,
            columns,
        )

    @property
    def state_rows(self) -> TableRows:
        """All rows of the state table."""
        state = self.tables.state
        return TableRows(state.path, self.window.state_until, state.schema)

    def batch(
        self,
        rows: Any,
        *expectations: Any,
        result_format: ResultFormat = "SUMMARY",
        broken: Sequence[Broken] | None = None,
    ) -> Batch:
        """Return a batch whose results show nothing personal; arguments as `Batch`. Rules are run now, unless it is known what breaks them."""
        spec = self.tables.spec
        shown = None
        if spec.personal:
            names = BOOKKEEPING.union(spec.table.columns.names, spec.sink_table.columns.names)
            shown = names - spec.personal
        if isinstance(rows, Rows):
            broken = self.engines.broken(rows, expectations)
        return Batch(rows, expectations, result_format, shown, broken)
