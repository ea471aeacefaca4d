"""Swap: the tables of a backfill take the place of a pipeline's. What the state's commit has decided is brought to the others here.

| table | takes |
|---|---|
| sink | the rows that differ, in one commit: readers see the old rows before it and the new ones after it, the change feed what differs |
| changelog, quarantine | all rows of the backfill's |
| checkpoint | it is discarded: the source is read on from where the backfill stands |

All of it follows from versions of the backfill's tables that the step names, so that it is done again alike after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta.snapshot import Action, DataFile, Snapshot
from ebbtide.delta.table import create_if_absent, read_rows, replacing
from ebbtide.errors import BackfillError
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.decision import Replace
from ebbtide.paths import copy_file, delete, join, list_files
from ebbtide.runtime.completeness import DECIDED, SHOWN, as_text, unlike
from ebbtide.runtime.plan import Plan
from ebbtide.sinks.stage import commit_stage
from ebbtide.state_table.columns import columns


@dataclass(frozen=True)
class NetChanges:
    """What differs between a sink and a backfill's.

    Args:
        differing: A row for each key of which they differ: key columns, `_decided`, `_shown`, `_rows`.
        rows: All rows of the backfill's sink.
        key: Names of the key's columns.
    """

    differing: DataFrame
    rows: DataFrame
    key: tuple[str, ...]

    @property
    def present(self) -> DataFrame:
        """The keys among them that the sink has."""
        return self.differing.where(F.col(SHOWN).isNotNull()).select(*columns(self.key))

    @property
    def coming(self) -> DataFrame:
        """The rows that they are to have."""
        lacking = self.differing.where(F.col(DECIDED).isNotNull()).select(*columns(self.key))
        return self.rows.join(lacking, list(self.key), "left_semi")

    def counts(self) -> dict[str, int]:
        """Count the rows that come (`added`), become others (`changed`) and go (`deleted`)."""
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
        found = self.differing.select(*key)
        least = found.orderBy(*key).limit(most)
        rows = least.collect()
        return [row.asDict() for row in rows]


def net_changes(spark: SparkSession, plan: Plan, sink_version: int) -> NetChanges:
    """Compare a sink with that of the backfill beside it.

    Rows are compared by the user's columns and `_sequence`: by what change of the source a row came about may differ.

    Args:
        spark: A session with Delta.
        plan: The pipeline.
        sink_version: Version of the backfill's sink.
    """
    key = plan.sink.key
    compared = [name for name in plan.sink.schema.names if name != "_changed_by"]
    text = as_text(compared)
    rows = plan.backfill.sink.read(spark, sink_version)
    decided = rows.select(*columns(key), text.alias(DECIDED))
    own = plan.sink.read(spark, plan.delta_sink.version())
    shown = own.select(*columns(key), text.alias(SHOWN))
    return NetChanges(unlike(decided, shown, key), rows, key)


def state_actions(plan: Plan, own: Snapshot, taken: Snapshot) -> list[Action]:
    """Copy the data files of a backfill's state; return the actions that put them in the place of the state's.

    Args:
        plan: The pipeline.
        own: The newest version of its state.
        taken: That of the backfill's.
    """
    definition = plan.state.redefined(own)
    adds = list(_copied(taken, plan.state.path))
    return replacing(own.files.values(), [*definition, *adds])


def replace_rows(spark: SparkSession, plan: Plan, facts: StepFacts, name: str, action: Replace) -> None:
    """Give a table the rows of the backfill's.

    Args:
        spark: The session to write in.
        plan: The pipeline.
        facts: The step's.
        name: The table's.
        action: Which rows.

    Raises:
        BackfillError: the backfill is not there any more.
    """
    _refuse_gone(plan, action)
    if name != "sink":
        _take_rows(plan, name, facts, action)
    elif action.version is not None:
        changes = net_changes(spark, plan, action.version)
        _publish_sink(spark, plan, changes, facts)


def _publish_sink(spark: SparkSession, plan: Plan, changes: NetChanges, facts: StepFacts) -> None:
    if plan.delta_sink.how == "merge":
        plan.delta_sink.overwrite(spark, changes.rows, facts)  # by MERGE it would be two commits
    else:
        plan.delta_sink.replace(spark, changes.present, changes.coming, facts)


def _take_rows(plan: Plan, name: str, facts: StepFacts, action: Replace) -> None:
    """Put all rows of one of the backfill's tables in the place of those that are there."""
    location = plan.at(name)
    taken = None if action.version is None else Snapshot.read(plan.backfill.at(name), action.version)
    if name == "changelog":
        plan.changelog.create()
        adds = [] if taken is None else list(_copied(taken, location))
    else:
        create_if_absent(puts_of(location), location, plan.quarantine.columns, {}, name="quarantine")
        rows = plan.quarantine.columns.empty_table() if taken is None else read_rows(taken, plan.quarantine.columns)
        adds = plan.quarantine.added(rows)
    commit_stage(location, lambda found: replacing(found.files.values(), adds), facts, name)


def _copied(taken: Snapshot, to: str) -> Iterator[Action]:
    """Copy a table's data files into another one; yield the actions that add them there."""
    for file in taken.files.values():
        copy_file(file.location(taken.table), DataFile(file.add).location(to))
        yield {"add": {**file.add, "dataChange": True}}


def _refuse_gone(plan: Plan, action: Replace) -> None:
    """Refuse to go on with a swap whose backfill is not there any more."""
    turn = plan.backfill.turn
    if turn is None or turn.incarnation != action.incarnation:
        raise BackfillError.of(
            f"The backfill that '{plan.spec.name}' is being given is gone from '{plan.backfills}'.",
            next_step="Put its folder back; or run 'ebbtide refresh' to rebuild all tables from the source.",
        )


def drop_swapped(plan: Plan, incarnation: str) -> None:
    """Delete a backfill once all its tables are swapped in; not another one that was begun since.

    Args:
        plan: The pipeline.
        incarnation: The backfill's.
    """
    turn = plan.backfill.turn
    if turn is None or turn.incarnation != incarnation:
        return
    # The ledger goes last: a backfill that is gone in part is known by it, and the next run deletes the rest.
    for file in list_files(plan.backfills):
        delete(join(plan.backfills, file))
    for name in ("state", *BESIDE_STATE, "checkpoint", "staged", "plan.json"):
        delete(plan.backfill.at(name))
    delete(plan.backfills)
