"""Folds: small files of the tables are joined between steps, so that their number, and what a step reads, stays bounded.

A fold changes no entry and no row of the sink, and is not a step: a reader of the tables sees the same before and after it, and
one that is lost is done after a later step. It comes after a step is published, when nothing has to be found in that step's own
files any more. The whole state is folded once the added files are as large as the result of the last such fold, since
only then the old versions of all entries go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ebbtide.columns import entry_table
from ebbtide.delta import Action, DataFile, Snapshot
from ebbtide.ledger import writer_of
from ebbtide.runtime._plan import Plan
from ebbtide.tables import Keep, KeepEntries, RewriteEntries, StoredEntries
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.tables import StateTable


def nothing_first() -> None:
    """Do nothing before a fold."""


def fold_state(
    executor: Executor,
    plan: Plan,
    snapshot: Snapshot,
    begin: Callable[[], None] = nothing_first,
) -> Snapshot:
    """Join small files of the state, if there is something to gain.

    Args:
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
    rewrite = StateRewrite(plan, group, KeepEntries(is_whole), is_whole=is_whole, data_change=False)
    adds = rewrite.written(executor)
    return writer_of(plan.state.path).join(snapshot, group, adds, {})


@dataclass(frozen=True)
class StateRewrite:
    """Writes some data files of the state again, with the entries that stay.

    Args:
        plan: The pipeline.
        files: The data files.
        keep: Which entries stay.
        is_whole: They are all files of the state.
        data_change: Entries go, or change; else only versions of them that do not count.
        into: The pipeline with other columns, which `keep` gives the entries. Default: it has the same.
    """

    plan: Plan
    files: Sequence[DataFile]
    keep: Keep
    is_whole: bool
    data_change: bool
    into: Plan | None = None

    @property
    def work(self) -> RewriteEntries:
        """The work of a worker: it writes a part of the entries."""
        entries = StoredEntries(self.plan.state.stored_in(self.files), packed(self.plan.operator))
        return RewriteEntries(entries, self._target.writer(), self.keep, self.is_whole, self.data_change)

    def written(self, executor: Executor) -> list[Action]:
        """Write the new files; return the actions that add them."""
        state = self.plan.state
        target = self._target
        work = self.work
        parts = executor.map(work, work.entries.parts(), is_little=work.entries.is_small, at=lambda part: part.middle())
        adds = [add for part in parts for add in part]
        for rows in (state.notes_in(self.files), state.acknowledged_in(self.files)):
            if len(rows):
                columns = dict(zip(rows.column_names, rows.columns, strict=True))
                notes = entry_table(target.schema, columns, len(rows))
                adds.append(target.add_rows(notes, data_change=self.data_change))
        return adds

    @property
    def _target(self) -> StateTable:
        return (self.into or self.plan).state
