"""Publish: bring sink, changelog and quarantine to what the last step decided. As often as needed: done already, it does nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.delta.fitting import columns_of, types_of
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import LeaseLostError, SpecChangedError
from ebbtide.ledger.facts import Head, StepFacts
from ebbtide.model.decision import (
    Action,
    Alter,
    Append,
    Replace,
    RestoreAndApply,
    Rewrite,
)
from ebbtide.paths import delete
from ebbtide.runtime.completeness import DECIDED, SHOWN, decided_rows, kept_differences, without_accepted
from ebbtide.runtime.missing_rows import append_missing
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.swap import drop_swapped, replace_rows
from ebbtide.runtime.way_back import OwnVersions, may_forget, net_changes, way_back
from ebbtide.sinks.stage import commit_stage
from ebbtide.spec.ddl import parse_ddl
from ebbtide.state_table.change_set import StepChanges
from ebbtide.state_table.columns import columns


def publish(spark: SparkSession, plan: Plan, head: Head, *, leave: Collection[str] = ()) -> Counter[str]:
    """Bring the tables beside the state to the last decision.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        head: Its last step.
        leave: Names of tables that cannot take it: a repair makes them what it decided.

    Returns:
        The step's counts; none of a step that decides nothing for the sink.
    """
    facts = head.facts
    if facts is None:
        return Counter()
    decision = facts.decision
    for name, action in decision.tables.items():
        if name not in leave and _concerns(plan, name, action) and _lacks(plan.beside(name).last_step(), facts):
            _perform(spark, plan, head.version, facts, name, action)
    if decision.begins:
        _discard_read(plan, facts)
    if decision.swapped is not None:
        drop_swapped(plan, decision.swapped)
    return Counter(decision.counts)


def _concerns(plan: Plan, name: str, action: Action) -> bool:
    """Return whether there is something to do: a table that is not there has nothing to clear, to restore or to alter.

    One of an earlier spec is cleared, restored and altered, though nothing is appended to it any more.
    """
    if name == "changelog" and isinstance(action, Append | Rewrite) and not plan.spec.emits_every:
        return False
    brings_rows = isinstance(action, Append) or (isinstance(action, Replace) and action.version is not None)
    return name == "sink" or brings_rows or bool(log.versions(plan.at(name)))


def _perform(
    spark: SparkSession,
    plan: Plan,
    version: int,
    facts: StepFacts,
    name: str,
    action: Action,
) -> None:
    """Perform the action of a step on a table that lacks it.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        version: Version of the state that holds the step.
        facts: The step's.
        name: The table's: one of `BESIDE_STATE`.
        action: What to do.
    """
    match action:
        case Replace():
            replace_rows(spark, plan, facts, name, action)
        case Rewrite():
            _rewrite(spark, plan, facts, name, action)
        case _:
            plan.beside(name).perform(action, _Work(spark, plan, version, facts))


@dataclass(frozen=True)
class _Work:
    """What a table may ask for; see `ebbtide.sinks.sink.Work`.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        version: Version of the state that holds the step.
        facts: The step's.
    """

    spark: SparkSession
    plan: Plan
    version: int
    facts: StepFacts

    @property
    def changes(self) -> StepChanges:
        """What the step decided for the sink, and emitted."""
        return StepChanges(self.plan.state.path, self.version, self.plan.operator)

    def columns_before(self, action: Alter) -> pa.Schema:
        """Return the user's columns as they were before the step.

        Raises:
            SpecChangedError: the spec is not the one that was migrated to.
        """
        _refuse_other_spec(self.plan, self.facts)
        return parse_ddl(action.columns_before).columns

    def net_changes(self, action: RestoreAndApply) -> pa.Table:
        """Return what the steps to apply again come to."""
        return net_changes(self.plan, action)


def _rewrite(spark: SparkSession, plan: Plan, facts: StepFacts, name: str, action: Rewrite) -> None:
    """Bring the sink to what the state shows, another table to what the commits of the state tell.

    Raises:
        SpecChangedError: the spec is not the one that the state has.
    """
    if name != "sink":
        append_missing(plan, name)
        commit_stage(plan.at(name), lambda _: [], facts, name)  # the mark: nothing is missing
        return
    _refuse_other_spec(plan, facts)
    _rewrite_sink(spark, plan, facts, action)


def _rewrite_sink(spark: SparkSession, plan: Plan, facts: StepFacts, action: Rewrite) -> None:
    state_version = plan.state.snapshot().version
    if action.overwrites:
        rows = decided_rows(spark, plan, facts, state_version)
        plan.delta_sink.overwrite(spark, without_accepted(spark, plan, rows, state_version), facts)
    elif action.alters and _has_other_columns(plan):
        rows = decided_rows(spark, plan, facts, state_version)
        plan.delta_sink.overwrite(spark, rows, facts)
    else:
        _repair(spark, plan, facts)


def _repair(spark: SparkSession, plan: Plan, facts: StepFacts) -> None:
    """Bring the sink to what the state shows, whatever it has now."""
    state_version = plan.state.snapshot().version
    sink_version = plan.delta_sink.version()
    if may_forget(plan, facts):  # as an older release decided it, of rows that the state may have forgotten
        own = OwnVersions.of(plan, state_version, sink_version)
        way = way_back(plan, facts, own) if own.foreign else None
        if way is not None:
            plan.delta_sink.restore_and_apply(spark, way, net_changes(plan, way), facts)
            return
    # Kept while it is used: the rows to be written and the keys to be deleted are both taken from it.
    differing = kept_differences(
        spark,
        plan,
        facts,
        state_version=state_version,
        sink_version=sink_version,
    ).cache()
    key = columns(plan.sink.key)
    decided = decided_rows(spark, plan, facts, state_version).select(*columns(plan.sink.schema.names))
    missing = differing.where(F.col(DECIDED).isNotNull()).select(*key)
    rows = decided.join(missing, list(plan.sink.key), "left_semi")
    present = differing.where(F.col(SHOWN).isNotNull()).select(*key)
    plan.delta_sink.replace(spark, present, rows, facts)
    differing.unpersist()


def _has_other_columns(plan: Plan) -> bool:
    """Return whether the sink has other columns than the spec says."""
    sink = Snapshot.read(plan.sink.path, any_features=True)
    return sink is not None and columns_of(sink.metadata) != types_of(plan.sink.schema)


def _refuse_other_spec(plan: Plan, facts: StepFacts) -> None:
    """Refuse to finish a migration or a repair with another spec than its own."""
    if plan.spec.misfits(facts.state.spec):
        raise SpecChangedError.of(
            f"The {facts.cause.what} of '{facts.pipeline}' in step {facts.step} is not finished, and its spec was another one.",
            got=plan.spec.identity,
            allowed=facts.state.spec,
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


def _discard_read(plan: Plan, facts: StepFacts) -> None:
    """Discard what is staged and Spark's checkpoint, unless a run has begun another: the source is read again."""
    delete(plan.at("staged"))
    if plan.checkpoint.id_to_discard == facts.source.query_id:
        plan.checkpoint.discard()
