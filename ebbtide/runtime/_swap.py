"""Swap: the tables of a backfill take the place of a pipeline's. Compares them, and copies the state.

| table | takes |
|---|---|
| sink | the rows that differ, in one commit: readers see the old rows before it and the new ones after it, the change feed what differs |
| changelog, quarantine | all rows of the backfill's |

All of it follows from versions of the backfill's tables that the step names, so that it is done again alike after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta import Action, Snapshot, replacing
from ebbtide.errors import BackfillError
from ebbtide.ledger import BESIDE_STATE
from ebbtide.model import Replace
from ebbtide.runtime._completeness import DECIDED, SHOWN, Difference, row_texts, unlike
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location, sync_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def net_changes(spark: SparkSession, plan: Plan, sink_version: int) -> Difference:
    """Compare a sink with that of its backfill.

    Rows are compared by the user's columns and `_sequence`: by what change of the source a row came about may differ.

    Args:
        spark: A session with Delta.
        plan: The pipeline.
        sink_version: Version of the backfill's sink.
    """
    key = plan.sink.key
    compared = [name for name in plan.sink.schema.names if name != "_changed_by"]
    rows = plan.backfill.sink.read(spark, sink_version)
    own_version = plan.delta_sink.version()
    own_rows = plan.sink.read(spark, own_version)
    decided = row_texts(rows, key, compared, DECIDED)
    shown = row_texts(own_rows, key, compared, SHOWN)
    differing = unlike(decided, shown, key)
    return Difference(differing, rows, key)


def state_actions(plan: Plan, own: Snapshot, taken: Snapshot) -> list[Action]:
    """Copy the data files of a backfill's state; return the actions that put them in the place of the state's.

    Args:
        plan: The pipeline.
        own: The newest version of its state.
        taken: That of the backfill's.
    """
    definition = plan.state.redefined(own)
    adds = taken.copied_to(plan.state.path)
    actions = [*definition, *adds]
    return replacing(own.files.values(), actions)


def refuse_gone(plan: Plan, action: Replace) -> None:
    """Refuse to continue a swap whose backfill is gone.

    Raises:
        BackfillError: it is.
    """
    turn = plan.backfill.ledger.turn
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
    turn = plan.backfill.ledger.turn
    if turn is None or turn.incarnation != incarnation:
        return
    delete_backfill(plan)


def delete_backfill(plan: Plan) -> None:
    """Delete a backfill; no power cut brings it back.

    Args:
        plan: The pipeline.
    """
    # The ledger is deleted last: it identifies a partly deleted backfill, and the next run deletes the rest. Deletions reach the
    # disk in any order: each must be there before the next one begins.
    for file in Location(plan.backfills).list_files():
        (Location(plan.backfills) / file).delete()
    for name in ("state", *BESIDE_STATE, "staged", "plan.json"):
        Location(plan.backfill.at(name)).delete()
    if Location(plan.root).is_local:
        sync_names([plan.backfills, plan.backfill.root])
    Location(plan.backfills).delete()
    if Location(plan.root).is_local:
        sync_names([plan.root])
