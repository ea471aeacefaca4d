"""Publish: bring sink, changelog and quarantine to what the last step decided. As often as needed: done already, it does nothing."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.errors import LeaseLostError, SpecChangedError
from ebbtide.ledger.facts import Head, StepFacts
from ebbtide.ledger.tables import OwnTable
from ebbtide.model.step import StepKind
from ebbtide.paths import delete
from ebbtide.runtime.completeness import DECIDED, SHOWN, decided_rows, differences
from ebbtide.runtime.foreign import UNSURE, foreign_rows
from ebbtide.runtime.lacking import append_lacking
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.swap import drop_swapped, publish_swap
from ebbtide.sinks.stage import restore_stage
from ebbtide.spec.ddl import parse_ddl
from ebbtide.state_table.change_set import StepChanges
from ebbtide.state_table.columns import columns, spark_schema


def publish(spark: SparkSession, plan: Plan, head: Head) -> Counter[str]:
    """Bring the sink to the last decision.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        head: Its last step.

    Returns:
        The step's counts; none of a step that decides nothing for the sink.
    """
    facts = head.facts
    if facts is None:
        return Counter()
    if facts.kind is StepKind.RESET:
        _empty(spark, plan, facts)
    if facts.kind is StepKind.REPAIR:
        _repair(spark, plan, facts)
        append_lacking(plan)
    if facts.kind is StepKind.MIGRATION:
        _restore_tables(spark, plan, facts)
        _alter(spark, plan, facts)
        _reselect(spark, plan, facts)
    if facts.kind is StepKind.REWIND:
        _rewind(spark, plan, facts)
    if facts.kind is StepKind.SOURCE:
        _discard_read(plan, facts)
    if facts.kind is StepKind.SWAP:
        _swap(spark, plan, facts)
    if not facts.kind.is_published:
        return Counter()
    counts = plan.state.counts(head.version, facts)
    _publish_changes(spark, plan, head.version, facts, counts)
    emits_truncate = plan.spec.emits_every and facts.floor_raised
    emits = counts["emitted"] > 0 or emits_truncate
    if emits and _lacks(plan.changelog.last_step(), facts):
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
) -> None:
    sink = plan.sink
    n_overwritten = counts["updated"] + counts["deleted"] + counts["filled"]
    overwrites = n_overwritten > 0 or facts.floor_raised
    changes_sink = overwrites or counts["inserted"] > 0
    if not (changes_sink and _lacks(sink.last_step(), facts)):
        return
    changes = StepChanges(plan.state.path, version, plan.operator)
    is_empty_before = not overwrites and facts.kind is not StepKind.ADOPT
    sink.apply(spark, changes, facts, only_inserts=is_empty_before)


def _rewind(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Finish a rewind: the tables beside the state go back too, and what was read since is read again."""
    _restore_tables(spark, plan, facts)
    _discard_read(plan, facts)


def _swap(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Finish a swap: the tables beside the state take the backfill's rows, and the source is read on from where that stands."""
    publish_swap(spark, plan, facts, _lacks)
    _discard_read(plan, facts)
    drop_swapped(plan, facts)


def _restore_tables(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Bring the tables beside the state back to the versions that a step names."""
    for name, version in facts.restores.items():
        table = plan.at(name)
        if not _lacks(OwnTable(table, name).last_step(), facts):
            continue
        if name == "sink":
            plan.sink.restore(spark, version, facts)
        else:
            restore_stage(table, version, facts, name)


def _repair(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Bring the sink to what the state shows, whatever it has now."""
    if not _lacks(plan.sink.last_step(), facts):
        return
    state_version = plan.state.snapshot().version
    sink_version = plan.sink.version()
    # Kept while it is used: the rows to be written and the keys to be deleted are both taken from it.
    differing = differences(
        spark,
        plan,
        facts,
        state_version=state_version,
        sink_version=sink_version,
    )
    differing = differing.where(f"NOT {UNSURE}").cache()  # a repair was refused where there was one
    key = columns(plan.sink.key)
    decided = decided_rows(spark, plan, facts, state_version).select(*columns(plan.sink.schema.names))
    foreign = foreign_rows(spark, plan, facts, state_version=state_version, sink_version=sink_version)
    if foreign is not None:
        forgotten = foreign.rows.join(decided, list(plan.sink.key), "left_anti")
        decided = decided.unionByName(forgotten)
    lacking = differing.where(F.col(DECIDED).isNotNull()).select(*key)
    rows = decided.join(lacking, list(plan.sink.key), "left_semi")
    present = differing.where(F.col(SHOWN).isNotNull()).select(*key)
    plan.sink.replace(spark, present, rows, facts)
    differing.unpersist()


def _alter(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Give sink and changelog the columns that a migration decided.

    Raises:
        SpecChangedError: the spec is not the one that was migrated to.
    """
    if facts.schema_change is None:
        return
    has_changelog = bool(log.versions(plan.changelog.path))
    lacks_sink = _lacks(plan.sink.last_step(), facts) and not facts.reselects
    lacks_changelog = has_changelog and _lacks(plan.changelog.last_step(), facts)
    if lacks_sink or lacks_changelog:
        _refuse_unmigrated(plan, facts)
    before = parse_ddl(facts.columns_before or "").columns
    if lacks_sink:
        plan.sink.alter(spark, before, facts.schema_change, facts)
    if lacks_changelog:
        plan.changelog.alter(spark, before, facts.schema_change, facts)


def _reselect(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Bring the sink to what the state shows after a migration of a transform, under other columns too.

    Raises:
        SpecChangedError: the spec is not the one that was migrated to.
    """
    if not facts.reselects:
        return
    if _lacks(plan.sink.last_step(), facts):
        _refuse_unmigrated(plan, facts)
        if _has_other_columns(spark, plan):
            rows = decided_rows(spark, plan, facts, plan.state.snapshot().version)
            plan.sink.overwrite(spark, rows, facts)
        else:
            _repair(spark, plan, facts)
    plan.quarantine.append(facts)


def _has_other_columns(spark: SparkSession, plan: Plan) -> bool:
    """Return whether the sink has other columns than the spec says."""
    version = plan.sink.version()
    stored = plan.sink.read(spark, version)
    wanted = spark_schema(plan.sink.schema)
    types_wanted = [(field.name, field.dataType) for field in wanted]
    types_stored = [(field.name, field.dataType) for field in stored.schema]
    return types_stored != types_wanted


def _refuse_unmigrated(plan: Plan, facts: StepFacts) -> None:
    """Refuse to finish a migration with another spec than its own."""
    if plan.spec.misfits(facts.spec):
        raise SpecChangedError.of(
            f"The migration of '{facts.pipeline}' in step {facts.step} is not finished, and the spec is not that of it.",
            got=plan.spec.identity,
            allowed=facts.spec,
            next_step="Run 'ebbtide run' or 'ebbtide migrate --apply' with that spec first.",
        )


def _lacks(last_step: int, facts: StepFacts) -> bool:
    """Return whether a table lacks a step.

    Args:
        last_step: The last step that wrote the table.
        facts: The step's.

    Raises:
        LeaseLostError: a later step wrote it: another run has gone on.
    """
    if last_step > facts.step:
        raise LeaseLostError.of(
            f"Another run has gone on with '{facts.pipeline}'.",
            got=f"step {facts.step}, after step {last_step}",
            next_step="Nothing was written twice; start the run again.",
        )
    return last_step < facts.step


def _empty(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Finish a reset: nothing is left of what the tables showed."""
    if _lacks(plan.sink.last_step(), facts):
        plan.sink.empty(spark, facts)
    if log.versions(plan.changelog.path):
        plan.changelog.empty(facts)
    plan.quarantine.empty(facts)
    _discard_read(plan, facts)


def _discard_read(plan: Plan, facts: StepFacts) -> None:
    """Discard what is staged and Spark's checkpoint, unless a run has begun another: the source is read again."""
    delete(plan.at("staged"))
    if plan.checkpoint.id_to_discard == facts.query_id:
        plan.checkpoint.discard()
