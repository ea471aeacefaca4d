"""Folds: small files of the tables are joined between steps, so that their number, and what a step reads, stays bounded.

A fold changes no entry and no row of the sink, and is not a step: a reader of the tables sees the same before and after it, and
one that is lost is done after a later step. It comes after a step is published, when nothing has to be found in that step's own
files any more. The whole state is folded once the added files are as large as the result of the last such fold, since
only then the old versions of all entries go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ebbtide.columns import entry_table
from ebbtide.delta import Action, DataFile, Snapshot
from ebbtide.ledger import writer_of
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._workers.deciding import packed
from ebbtide.tables import BASE, Keep, KeepEntries, Rewrite, StoredEntries
from ebbtide.tables._joining import small_files
from ebbtide.tables._state.layout import columns_by_name
from ebbtide.tables._state.rewriting import ROWS_IN_PART
from ebbtide.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE_BYTES = 64 * 2**20
"""Minimum added bytes for folding the whole state."""


def nothing_first() -> None:
    """Do nothing before a fold."""


def fold_state(
    spark: SparkSession,
    plan: Plan,
    step: int,
    snapshot: Snapshot,
    begin: Callable[[], None] = nothing_first,
) -> Snapshot:
    """Join small files of the state, if there is something to gain.

    Args:
        spark: The session.
        plan: The pipeline.
        step: Number of the last step, which is published.
        snapshot: The newest version of the state.
        begin: Called first, if there is something to gain. Default: nothing is.

    Returns:
        The newest version then.
    """
    files = list(snapshot.files.values())
    group = files if _grew(files) else small_files(files, ROWS_IN_PART)
    if not group:
        return snapshot
    begin()
    is_whole = len(group) == len(files)
    adds = rewritten(
        spark,
        plan,
        group,
        KeepEntries(is_whole),
        is_whole=is_whole,
        data_change=False,
        step=step,
    )
    return writer_of(plan.state.path).join(snapshot, group, adds, {})


def _grew(files: Sequence[DataFile]) -> bool:
    """Return whether enough was added since the last fold of the whole state to fold it again."""
    base_bytes = 0
    added_bytes = 0
    for file in files:
        if BASE.items() <= file.tags.items():
            base_bytes += file.size
        else:
            added_bytes += file.size
    # As much as the base: so a whole fold writes at most twice the bytes added since the last one.
    needed_bytes = max(base_bytes, WHOLE_BYTES)
    return added_bytes >= needed_bytes


def rewritten(
    spark: SparkSession,
    plan: Plan,
    files: Sequence[DataFile],
    keep: Keep,
    *,
    is_whole: bool,
    data_change: bool,
    step: int,
    into: Plan | None = None,
) -> list[Action]:
    """Write what stays of some data files of the state.

    Args:
        spark: The session.
        plan: The pipeline.
        files: The data files.
        keep: Which entries stay.
        is_whole: They are all files of the state.
        data_change: Entries go, or change; else only versions of them that do not count.
        step: Number of the step, for the notes.
        into: The pipeline with other columns, which `keep` gives the entries. Default: it has the same.

    Returns:
        The actions that add the new files.
    """
    state = plan.state
    target = (into or plan).state
    rewrite = rewriting(plan, into or plan, files, keep, is_whole=is_whole, data_change=data_change)
    entries = rewrite.entries
    parts = run_tasks(spark, rewrite, entries.parts(), in_driver=entries.is_small)
    adds = [add for part in parts for add in part]
    files_read = state.files(files)
    if files_read:
        adds.append(target.note_file(files_read.items(), step, data_change=data_change))
    acknowledged = state.acknowledged_in(files)
    if len(acknowledged):
        keys = entry_table(target.schema, columns_by_name(acknowledged), len(acknowledged))
        adds.append(target.add_rows(keys, data_change=data_change))
    return adds


def rewriting(
    plan: Plan,
    into: Plan,
    files: Sequence[DataFile],
    keep: Keep,
    *,
    is_whole: bool,
    data_change: bool,
) -> Rewrite:
    """Return the work that writes entries again; arguments as `rewritten`."""
    target = into.state
    entries = StoredEntries(plan.state.stored_in(files), packed(plan.operator))
    return Rewrite(
        entries,
        target.stored_in([]),
        target.schema,
        target.bounded,
        keep,
        is_whole,
        data_change,
    )
