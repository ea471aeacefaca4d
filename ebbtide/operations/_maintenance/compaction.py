"""Compaction: the state is folded to the newest version of each live entry, the sink's small files are joined.

Runs do this gradually (`ebbtide.runtime._fold`). This job does it all at once, and leaves out entries that have expired by the
ledger's clock (FLIP-25, "cleanup in the compaction filter"). Snapshot transformers get their entries first, as in a
cleanup. With a bound it folds some ranges of keys in each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta import DataFile
from ebbtide.ledger import Cause
from ebbtide.operations._maintenance.measuring import Done
from ebbtide.operations._maintenance.merging import merged
from ebbtide.runtime import StateRewrite, Stepper
from ebbtide.tables import KeepEntries

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def compaction(executor: Executor, stepper: Stepper, max_files: int | None = None) -> Done:
    """Fold a pipeline's state, and join the small files of its sink.

    Args:
        stepper: Makes the pipeline's steps.
        max_files: Maximum data files of the state to write; None: all, in a fold of the whole state.
    """
    plan = stepper.plan
    cause = Cause(what="compaction")
    transformed = stepper.transform(executor, stepper.facts(cause))
    facts = stepper.facts(cause)
    plan.sink.join_files(executor)
    if stepper.last.state.is_folded:
        return Done(transformed is not None, transformed=transformed)  # nothing was appended since the last fold
    state = stepper.newest()
    files = list(state.files.values())
    keep = KeepEntries(is_whole=True, at=facts.operator_step)
    rewrite = StateRewrite(plan, files, keep, is_whole=True, data_change=True)
    if max_files is not None:
        actions, left = merged(executor, state, rewrite.work, max_files)
        if actions:
            stepper.commit(facts, actions)
        return Done(bool(actions) or transformed is not None, left=left, transformed=transformed)
    facts = facts.with_state({"is_folded": True})
    adds = rewrite.written(executor)
    stepper.commit(facts, DataFile.replacing(files, adds))
    return Done(is_step=True, transformed=transformed)
