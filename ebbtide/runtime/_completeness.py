"""Compares a sink with the rows that it must show, key by key: in Spark, at given versions of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.entries import SinkChange
from ebbtide.executors import Executor
from ebbtide.frames import arrow_frame, column, columns, json_text, spark_schema
from ebbtide.ledger import StepFacts
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._way_back import OwnVersions, SinkHistory

DECIDED = "_decided"
"""The row that the state shows, as JSON; null: it shows none."""
SHOWN = "_shown"
"""A row that the sink has, as JSON; null: it has none."""
ROWS = "_rows"
"""Column: number of the sink's rows with the key."""


@dataclass(frozen=True)
class SinkDifference:
    """The keys whose row in a sink is not the one that it must have.

    Args:
        differing: A row for each: key columns, `_decided`, `_shown`, `_rows`.
        key: Names of the key's columns.
    """

    differing: DataFrame
    key: tuple[str, ...]

    @classmethod
    def found(
        cls, executor: Executor, plan: Plan, facts: StepFacts, *, state_version: int, sink_version: int
    ) -> SinkDifference:
        """Compare the sink with the state.

        Keys are left out that were acknowledged and have not changed since. Where the state forgets rows that stay in the sink, keys
        that it does not show are compared with the sink's way back (`SinkHistory`), if other clients have changed rows and there is one.

        Args:
            plan: The pipeline, whose state is kept; see `SinkHistory.is_kept`.
            facts: Of its last step.
            state_version: Version of the state to read.
            sink_version: Version of the sink.
        """
        rows = _differences(executor.spark(), plan, facts, state_version=state_version, sink_version=sink_version)
        return SinkDifference(rows, plan.sink.key)

    @classmethod
    def to_backfill(cls, executor: Executor, plan: Plan, sink_version: int) -> SinkRows:
        """Compare a sink with that of its backfill.

        Rows are compared by the user's columns and `_sequence`: by what change of the source a row came about may differ.

        Args:
            sink_version: Version of the backfill's sink.
        """
        key = plan.sink.key
        compared = [name for name in plan.sink.schema.names if name != "_changed_by"]
        spark = executor.spark()
        rows = plan.backfill.sink.read(spark, sink_version)
        own_version = plan.delta_sink.version()
        own_rows = plan.sink.read(spark, own_version)
        decided = row_texts(rows, key, compared, DECIDED)
        shown = row_texts(own_rows, key, compared, SHOWN)
        differing = unlike(decided, shown, key)
        return SinkRows(differing, key, rows)

    def damages(self) -> dict[str, int]:
        """Count the rows that the sink lacks (`missing`), has differently (`other`), has in excess (`extra`) or several times (`repeated`)."""
        decided = F.col(DECIDED)
        shown = F.col(SHOWN)
        is_decided = decided.isNotNull()
        is_shown = shown.isNotNull()
        are_unlike = decided != shown
        is_repeated = F.col(ROWS) > 1
        counts = self.differing.agg(
            F.count_if(is_decided & ~is_shown).alias("missing"),
            F.count_if(is_decided & is_shown & are_unlike).alias("other"),
            F.count_if(~is_decided).alias("extra"),
            F.count_if(is_repeated).alias("repeated"),
        )
        [row] = counts.collect()
        return dict(row.asDict())

    def counts(self) -> dict[str, int]:
        """Count the rows that come (`added`), change (`changed`) and go (`deleted`)."""
        is_coming = F.col(DECIDED).isNotNull()
        is_there = F.col(SHOWN).isNotNull()
        counted = self.differing.agg(
            F.count_if(is_coming & ~is_there).alias("added"),
            F.count_if(is_coming & is_there).alias("changed"),
            F.count_if(~is_coming).alias("deleted"),
        )
        [row] = counted.collect()
        return dict(row.asDict())

    def keys(self, most: int) -> list[dict[str, Any]]:
        """Return some of the keys that differ, the least first."""
        key = columns(self.key)
        keys = self.differing.select(*key)
        least = keys.orderBy(*key).limit(most)
        rows = least.collect()
        return [row.asDict() for row in rows]


@dataclass(frozen=True)
class SinkRows(SinkDifference):
    """The same with the rows themselves, which a sink takes.

    Args:
        rows: All rows that it must have.
    """

    rows: DataFrame

    @classmethod
    def newest(cls, executor: Executor, plan: Plan, facts: StepFacts) -> Self:
        """Compare the newest version of a sink with the rows that the state keeps; arguments as `SinkDifference.found`."""
        kept = _KeptRows.newest(executor.spark(), plan, facts)
        sink_version = plan.delta_sink.version()
        # Kept in memory: the rows to be written and the keys to be deleted are both taken from it.
        differing = kept.differing(sink_version).cache()
        sink_columns = columns(plan.sink.schema.names)
        rows = kept.shown().select(*sink_columns)
        return cls(differing, plan.sink.key, rows)

    @property
    def present(self) -> DataFrame:
        """The keys among them that the sink has."""
        is_there = F.col(SHOWN).isNotNull()
        found = self.differing.where(is_there)
        return found.select(*columns(self.key))

    @property
    def coming(self) -> DataFrame:
        """The rows that it must have of them."""
        is_coming = F.col(DECIDED).isNotNull()
        decided = self.differing.where(is_coming)
        lacking = decided.select(*columns(self.key))
        return self.rows.join(lacking, list(self.key), "left_semi")


def rows_to_show(executor: Executor, plan: Plan, facts: StepFacts, *, leaves_accepted: bool) -> DataFrame:
    """Read the rows that the sink must have by the newest version of the state; arguments as `SinkDifference.found`.

    Args:
        facts: Facts of its last step.
        leaves_accepted: Leave out rows whose key was acknowledged and has not changed since.
    """
    kept = _KeptRows.newest(executor.spark(), plan, facts)
    rows = kept.shown()
    if leaves_accepted:
        return kept.without_accepted(rows)
    return rows


def _differences(
    spark: SparkSession, plan: Plan, facts: StepFacts, *, state_version: int, sink_version: int
) -> DataFrame:
    """Return a row for each differing key, see `SinkDifference.found`."""
    kept = _KeptRows(spark, plan, facts, state_version)
    found = kept.differing(sink_version)
    history = SinkHistory(plan, facts)
    if not history.may_forget:
        return found
    own = history.own_versions(state_version, sink_version)
    expected = _rows_by_way_back(spark, history, own)
    if expected is None:
        return found
    key = list(plan.sink.key)
    names = plan.sink.columns.names
    sink_rows = plan.sink.read(spark, sink_version)
    decided = row_texts(expected, key, names, DECIDED)
    sink = row_texts(sink_rows, key, names, SHOWN)
    differing = unlike(decided, sink, key)
    forgotten = differing.join(kept.shown(), key, "left_anti")
    more = forgotten.select(*columns(key), DECIDED, SHOWN, ROWS)
    return found.unionByName(more)


@dataclass(frozen=True)
class _KeptRows:
    """The rows that a state keeps for its sink.

    Args:
        spark: A session with Delta.
        plan: The pipeline; see `SinkHistory.is_kept`.
        facts: Of its last step.
        state_version: Version of the state to read.
    """

    spark: SparkSession
    plan: Plan
    facts: StepFacts
    state_version: int

    @classmethod
    def newest(cls, spark: SparkSession, plan: Plan, facts: StepFacts) -> Self:
        """Return those of the newest version of the state."""
        state = plan.state.snapshot()
        return cls(spark, plan, facts, state.version)

    def shown(self) -> DataFrame:
        """Read the rows that the sink must have, with `_step`: those that no TRUNCATE left dead."""
        rows = self.plan.state.frames.shown(self.spark, self.state_version)
        floor = self.facts.frontier.floor
        if not floor:
            return rows
        is_below = self.plan.delta_sink.below(floor)
        return rows.where(~is_below)

    def differing(self, sink_version: int) -> DataFrame:
        """Compare a version of the sink with them; see `SinkDifference`."""
        plan = self.plan
        key = list(plan.sink.key)
        names = plan.sink.columns.names
        sink_rows = plan.sink.read(self.spark, sink_version)
        decided = row_texts(self.shown(), key, names, DECIDED, "_step")
        sink = row_texts(sink_rows, key, names, SHOWN)
        rows = unlike(decided, sink, key)
        if SinkHistory(plan, self.facts).may_forget:
            is_decided = F.col(DECIDED).isNotNull()
            rows = rows.where(is_decided)
        left = self.without_accepted(rows)
        return left.select(*columns(key), DECIDED, SHOWN, ROWS)

    def without_accepted(self, rows: DataFrame) -> DataFrame:
        """Leave out rows whose key was acknowledged and has not changed since.

        Args:
            rows: The key's columns, `_step`, and further ones.
        """
        frames = self.plan.state.frames
        acknowledged = frames.acknowledged(self.spark, self.state_version)
        step = F.col("_step")
        selected = [step.alias("_accepted")]
        for shown_as, name in self.plan.spec.state_key_of.items():
            of_entry = column(name)
            selected.append(of_entry.alias(shown_as))
        accepted = acknowledged.select(*selected)
        beside = rows.join(accepted, list(self.plan.sink.key), "left")
        changed_step = F.coalesce("_step", F.lit(0))
        is_later = F.col("_accepted") > changed_step
        is_accepted = F.coalesce(is_later, F.lit(False))
        return beside.where(~is_accepted)


def _rows_by_way_back(spark: SparkSession, history: SinkHistory, own: OwnVersions) -> DataFrame | None:
    """Read the sink's rows after its way back; None if there is none, or no other client has changed the sink."""
    if not own.foreign:
        return None
    way = history.way_back(own)
    if way is None:
        return None
    plan = history.plan
    net = history.net_changes(way)
    schema = spark_schema(net.schema, nullable=True)
    changes = arrow_frame(spark, net, schema)
    sink_columns = columns(plan.sink.schema.names)
    is_there = F.col("_change") != SinkChange.DELETE
    rows = changes.where(is_there).select(*sink_columns)
    if way.version is not None:
        key = list(plan.sink.key)
        before = plan.sink.read(spark, way.version).select(*sink_columns)
        changed_keys = changes.select(*columns(key))
        unchanged = before.join(changed_keys, key, "left_anti")
        rows = unchanged.unionByName(rows)
    floor = history.last.frontier.floor
    if not floor:
        return rows
    below = plan.delta_sink.below(floor)
    is_below = F.coalesce(below, F.lit(False))
    return rows.where(~is_below)


def row_texts(
    rows: DataFrame,
    key: Sequence[str],
    names: Sequence[str],
    shown_as: str,
    *further: str,
) -> DataFrame:
    """Select of each row its key, and some of its columns as one text: a single comparison of any number of columns, of any type.

    Args:
        key: Names of the key's columns.
        names: Names of the columns of the text, JSON; see `json_text`.
        shown_as: Name of the text.
        further: Further columns to select.
    """
    row = F.struct(*columns(names))
    text = json_text(row)
    return rows.select(*columns(key), text.alias(shown_as), *further)


def unlike(decided: DataFrame, sink: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the keys whose row is not the one that was decided, or that have several.

    Args:
        decided: Key columns, once each, `_decided`, and further ones.
        sink: Key columns and `_shown`.
        key: Names of the key's columns.

    Returns:
        The columns of `decided`, `_shown` and `_rows`.
    """
    by_key = sink.groupBy(*columns(key))
    some_row = F.first(SHOWN)
    n_rows = F.count("*")
    found = by_key.agg(some_row.alias(SHOWN), n_rows.alias(ROWS))
    both = decided.join(found, list(key), "full")
    shown = F.col(SHOWN)
    is_same = F.col(DECIDED).eqNullSafe(shown)
    n_shown = F.coalesce(ROWS, F.lit(0))
    is_single = n_shown <= 1
    is_alike = is_same & is_single
    return both.where(~is_alike)
