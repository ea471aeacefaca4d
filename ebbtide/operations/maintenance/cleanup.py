"""Full-snapshot cleanup: what has expired goes from the state's newest snapshot.

Only files that hold such an entry are rewritten. Older snapshots keep it until VACUUM, as with any Delta table. The
clock is that of the last step, not the time of the job. Source: FLIP-25, "cleanup in full snapshot".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.delta.table import replacing
from ebbtide.ledger.facts import Cause, StepFacts
from ebbtide.model.codes import Mask
from ebbtide.model.entries import Step, flags
from ebbtide.operations.quarantine.drop import trim
from ebbtide.operators.operator import Operator
from ebbtide.runtime.step import Stepper
from ebbtide.tables.state.deciding import packed
from ebbtide.tables.state.rewriting import Deletion, Pick, StoredEntries, WithoutRows, merged
from ebbtide.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Gone:
    """Picks the entries that have expired or were dropped.

    Args:
        at: By this clock.
    """

    at: Step

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """See `Pick`."""
        is_dropped = flags(entries, "_removed")
        has_expired = operator.expiry.deletable(entries, self.at)
        return is_dropped | has_expired


def cleanup(spark: SparkSession, stepper: Stepper) -> bool:
    """Delete what is too old: expired and dropped entries of the state with all their versions, then records of the quarantine.

    Returns:
        Whether there was any; if there was both, two steps were made.
    """
    facts = stepper.facts(Cause(what="cleanup"))
    has_deleted = delete_entries(spark, stepper, facts, Gone(facts.operator_step))
    has_trimmed = trim(spark, stepper)
    return has_deleted or has_trimmed


def delete_entries(
    spark: SparkSession,
    stepper: Stepper,
    facts: StepFacts,
    is_doomed: Pick,
) -> bool:
    """Commit a step that deletes entries with all their versions; only files that hold one are rewritten.

    Args:
        spark: The session.
        stepper: Makes the pipeline's steps.
        facts: Facts of the step.
        is_doomed: Picks the entries.

    Returns:
        Whether there were any; if not, nothing is committed.
    """
    state = stepper.plan.state
    newest = stepper.newest()
    files = list(newest.files.values())
    stored = state.stored_in(files)
    entries = StoredEntries(stored, packed(state.operator))
    found = run_tasks(
        spark,
        Deletion(entries, is_doomed),
        entries.parts(),
        in_driver=entries.is_small,
    )
    # By data file: only files that hold a deleted entry are rewritten.
    losses = []
    for number, rows in merged(found).items():
        loss = files[number], rows.serialize()
        losses.append(loss)
    if not losses:
        return False
    without = WithoutRows(stored, state.schema, state.bounded)
    left = run_tasks(
        spark,
        without,
        losses,
        in_driver=entries.is_small,
    )
    adds = [add for each in left for add in each]
    rewritten = [file for file, _ in losses]
    stepper.commit(facts, replacing(rewritten, adds))
    return True
