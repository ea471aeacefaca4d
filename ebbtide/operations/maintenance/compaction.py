"""Compaction: the state is folded to the newest version of each live entry, the sink's small files are joined.

Runs do so by themselves as they go (`ebbtide.runtime.fold`); this job does it all at once, and leaves out on the way what has
expired by the ledger's clock (FLIP-25, "cleanup in the compaction filter").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta.table import replacing
from ebbtide.ledger.facts import Cause
from ebbtide.runtime.fold import KeepEntries, rewritten
from ebbtide.runtime.step import Stepper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compaction(spark: SparkSession, stepper: Stepper) -> bool:
    """Fold a pipeline's state and join the small files of its sink; return whether there was something to fold."""
    plan = stepper.plan
    facts = stepper.facts(Cause(what="compaction"))
    facts = facts.with_state({"is_folded": True})
    plan.sink.join_files(spark)
    if stepper.last.state.is_folded:
        return False  # nothing was appended since
    state = stepper.newest()
    files = list(state.files.values())
    keep = KeepEntries(is_whole=True, at=facts.operator_step)
    adds = rewritten(
        spark,
        plan,
        files,
        keep,
        is_whole=True,
        data_change=True,
        step=facts.step,
    )
    stepper.commit(facts, replacing(files, adds))
    return True
