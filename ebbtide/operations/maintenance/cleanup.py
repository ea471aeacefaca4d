"""Full-snapshot cleanup: what has expired goes from the state's newest snapshot.

A file that loses few of its rows gets a deletion vector, one that loses more is rewritten without them. Older snapshots keep them
until VACUUM, as with any Delta table. The clock is that of the last step, not the time of the job. Source: FLIP-25, "cleanup in full
snapshot".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.delta.snapshot import DataFile
from ebbtide.ledger.facts import Cause, StepFacts
from ebbtide.model.codes import Mask
from ebbtide.model.entries import Step, flags
from ebbtide.operations.quarantine.drop import trim
from ebbtide.operators.operator import Operator
from ebbtide.runtime.step import Stepper
from ebbtide.tables.state.deciding import packed
from ebbtide.tables.state.deletion import Doom, deletion, find, is_base
from ebbtide.tables.state.layout import may_hold_expired

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

    def doom(self, operator: Operator) -> Doom:
        """Return it with what it reads of an entry, and of a file's statistics."""
        rules = operator.expiry
        columns = {"_removed", *rules.columns, *(name for name, _ in rules.needs_tick)}

        def may_have(file: DataFile) -> bool:
            # A fold of the whole state leaves dropped entries out: in its files only time can have doomed one.
            has_own_ttls = "_ttl_ms" in operator.schema.names and not file.is_all_null("_ttl_ms")
            return not is_base(file) or has_own_ttls or may_hold_expired(file, rules, self.at)

        return Doom(self, frozenset(columns), may_have)


def cleanup(spark: SparkSession, stepper: Stepper, max_files: int | None = None) -> bool:
    """Delete what is too old: expired and dropped entries of the state with all their versions, then records of the quarantine.

    Args:
        spark: The session.
        stepper: Makes the pipeline's steps.
        max_files: See `find`.

    Returns:
        Whether there was any; if there was both, two steps were made.
    """
    facts = stepper.facts(Cause(what="cleanup"))
    doom = Gone(facts.operator_step).doom(stepper.plan.operator)
    has_deleted = delete_entries(spark, stepper, facts, doom, max_files=max_files)
    has_trimmed = trim(spark, stepper)
    return has_deleted or has_trimmed


def delete_entries(
    spark: SparkSession,
    stepper: Stepper,
    facts: StepFacts,
    doom: Doom,
    *,
    max_files: int | None = None,
) -> bool:
    """Commit a step that deletes entries with all their versions; only files that hold one are changed.

    Args:
        spark: The session.
        stepper: Makes the pipeline's steps.
        facts: Facts of the step.
        doom: Selects the entries.
        max_files: See `find`.

    Returns:
        Whether there were any; if not, nothing is committed.
    """
    state = stepper.plan.state
    newest = stepper.newest()
    stored = state.stored(newest)
    found = find(spark, stored, packed(state.operator), doom, max_files=max_files)
    if found.losses:
        actions = deletion(spark, newest, stored, found.losses, state.schema, state.bounded)
        stepper.commit(facts, actions)
    return bool(found.losses)
