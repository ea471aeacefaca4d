"""Publish: bring sink, changelog and quarantine to what the last step decided. As often as needed: done already, it does nothing."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyspark.sql import SparkSession

from ebbtide.delta import log
from ebbtide.ledger.facts import Head, StepFacts
from ebbtide.model.step import StepKind
from ebbtide.paths import delete
from ebbtide.runtime.plan import Plan
from ebbtide.sinks.sink import Bounds
from ebbtide.state_table.change_set import StepChanges
from ebbtide.state_table.size import TableSize


def publish(spark: SparkSession, plan: Plan, head: Head, sink_size: TableSize) -> Counter[str]:
    """Bring the sink to the last decision.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        head: Its last step.
        sink_size: Of the sink.

    Returns:
        The step's counts; none of a step that decides nothing for the sink.
    """
    facts = head.facts
    if facts is None:
        return Counter()
    if facts.kind is StepKind.RESET:
        _empty(spark, plan, facts)
    if not facts.kind.is_published:
        return Counter()
    counts = plan.state.counts(head.version, facts)
    _publish_changes(spark, plan, head.version, facts, counts, sink_size)
    emits_truncate = plan.spec.emits_every and facts.floor_raised
    emits = counts["emitted"] > 0 or emits_truncate
    if emits and plan.changelog.last_step() < facts.step:
        changes = StepChanges(plan.state.path, head.version, plan.operator)
        plan.changelog.append(changes.emitted(plan.changelog.schema), facts)
    plan.quarantine.append(facts)
    return counts


def _publish_changes(
    spark: SparkSession,
    plan: Plan,
    version: int,
    facts: StepFacts,
    counts: Counter[str],
    sink_size: TableSize,
) -> None:
    sink = plan.sink
    n_overwritten = counts["updated"] + counts["deleted"] + counts["filled"]
    overwrites = n_overwritten > 0 or facts.floor_raised
    changes_sink = overwrites or counts["inserted"] > 0
    if not changes_sink or sink.last_step() >= facts.step:
        return
    bounds = None
    if overwrites and sink_size.is_large(spark):
        bounds = _bounds(plan, version)
    changes = StepChanges(plan.state.path, version, plan.operator)
    sink.apply(
        spark,
        changes,
        facts,
        only_inserts=not overwrites,
        bounds=bounds,
    )


def _bounds(plan: Plan, version: int) -> Bounds | None:
    """Return the range of the first key column in what was decided: a row may change whose key none of the records had."""
    spec = plan.spec
    name = spec.key[0]
    type_ = spec.table.columns.field(name).type
    can_prune = pa.types.is_integer(type_) or pa.types.is_string(type_)
    if not can_prune:
        return None
    bounds = log.bounds(plan.state.path, version, name)
    if bounds is None:
        return None
    least, greatest = bounds
    return name, least, greatest


def _empty(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Finish a reset: nothing is left of what the tables showed."""
    if plan.sink.last_step() < facts.step:
        plan.sink.empty(spark, facts)
    if log.versions(plan.changelog.path):
        plan.changelog.empty(facts)
    delete(plan.at("staged"))
    plan.quarantine.empty(facts)
    if plan.checkpoint.query_id == facts.query_id:
        plan.checkpoint.discard()
