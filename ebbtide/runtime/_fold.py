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
from ebbtide.tables import Keep, KeepEntries, RewriteEntries, StoredEntries
from ebbtide.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    group = plan.state.files_to_fold(snapshot)
    if not group:
        return snapshot
    begin()
    is_whole = len(group) == len(snapshot.files)
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
        keys = entry_table(
            target.schema, dict(zip(acknowledged.column_names, acknowledged.columns, strict=True)), len(acknowledged)
        )
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
) -> RewriteEntries:
    """Return the work that writes entries again; arguments as `rewritten`."""
    entries = StoredEntries(plan.state.stored_in(files), packed(plan.operator))
    return RewriteEntries(entries, into.state.writer(), keep, is_whole, data_change)
