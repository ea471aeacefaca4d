"""The physical part of an erasure: files on disk that may hold erased rows are deleted, and the logs of the tables are cut.

It is here since a run does it too: that of a pipeline whose erasure was interrupted, and that of a view over erased rows. All else about an
erasure is in `ebbtide.operations._erase`.

It follows the step that erases, under the lease, and can be done again at any place where it ended: while `erasures/unfinished` is there, the next run,
or the next erasure, does it.

A materialized view that reads the sink may show values of erased rows in any column. It gets that file too: its next run computes it from scratch, deletes
all other files of its tables, and has the views that read it do the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebbtide.delta import Held, Log, Snapshot
from ebbtide.ledger import ErasureLedger, NoStep, writer_of
from ebbtide.model import Decision
from ebbtide.runtime._erasing import ErasureKey
from ebbtide.runtime._leftovers import delete_leftovers
from ebbtide.runtime._local_copies import drop_copies
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.runtime._plan import Plan
    from ebbtide.runtime._step import Stepper


@dataclass(frozen=True)
class Purged:
    """The files that were deleted, by place, and those that could not be read, which stay until a vacuum."""

    deleted: dict[str, Held]
    unreadable: dict[str, Held]


def finish_purge(stepper: Stepper) -> None:
    """Do the physical part of an erasure that was interrupted; nothing happens without one. Call it once the last step is published."""
    last = stepper.last
    if isinstance(last, NoStep) or last.state.erased is None or stepper.plan.erasures.unfinished() is None:
        return
    purge(stepper, last.state.erased)


def purge(stepper: Stepper, name: str) -> Purged:
    """Delete the files that may hold erased rows, and cut the logs.

    Args:
        stepper: Holds the lease; the last step is published.
        name: Name of the file of the ledger.

    Returns:
        What was found: the tables by their names.
    """
    plan = stepper.plan
    mark = plan.erasures.unfinished()
    _mark_views(plan)
    purged = Purged({}, {})
    for table in ("state", *Decision.OWN_OUTPUTS):
        _purge_table(plan, table, name, purged)
    purged.deleted["local copies"] = drop_copies(plan, plan.erasures.keys(name), name)
    left = delete_leftovers(plan.all_pipelines)
    if left.files:
        purged.deleted["logs of commands, files of ended sessions of SQL"] = left
    _finish(stepper, mark)
    return purged


def purge_view(stepper: Stepper, mark: bytes) -> None:
    """Delete the former files of a view's tables, after it was computed from scratch, and cut their logs.

    Args:
        stepper: Holds the lease; the last step is published.
        mark: That of the erasure, read before the view was computed.
    """
    plan = stepper.plan
    _mark_views(plan)
    for name in ("state", *Decision.OWN_OUTPUTS):
        table = plan.at(name)
        snapshot = Snapshot.read(table)
        if snapshot is not None:
            for file in snapshot.unnamed_files():
                (Location(table) / file).delete()
            _cut(table)
    plan.drop_older_copies(stepper.last)
    delete_leftovers(plan.all_pipelines)
    _finish(stepper, mark)


def _finish(stepper: Stepper, mark: bytes | None) -> None:
    """Delete staged files, reopen the tables with cut logs, and record that the erasure is finished."""
    plan = stepper.plan
    Location(plan.at("staged")).delete()
    Location(plan.rehearsal).delete()
    stepper.plan = replace(plan)
    stepper.open()
    plan.erasures.mark_finished(mark)


def _mark_views(plan: Plan) -> None:
    """Have the views that read the sink be computed from scratch: their files may hold erased rows."""
    # Before the log is cut: a view whose run has begun sees the mark at its next run, one that begins later reads a sink without the rows.
    for name, inputs in plan.views_beside().items():
        if inputs is not None and plan.spec.name in inputs:
            ErasureLedger(Location(plan.all_pipelines) / name).mark_unfinished()


def _purge_table(plan: Plan, name: str, erasures: str, purged: Purged) -> None:
    table = plan.at(name)
    if name == "sink" and plan.sink_log is None:
        return
    snapshot = Snapshot.read(table)
    if snapshot is None:
        return
    doomed = ErasureKey.of(plan).doomed_in(name, plan.erasures.keys(erasures))
    old = doomed.unnamed(snapshot)
    for location in old.holding:
        Location(location).delete()
    # Files that the step has replaced are among them: this is all that the table had.
    purged.deleted[name] = old.found
    purged.deleted[f"{name}: log"] = Held(files=_cut(table))
    if old.unreadable:
        purged.unreadable[f"{name}: unreadable files"] = Held(files=len(old.unreadable))


def _cut(table: str) -> int:
    """Cut the log of a table, and delete what died writers have left in its folders; return the number of files of the log deleted."""
    Location(table).delete_unfinished(older_than_s=0)
    n_log_files = writer_of(table).cut_log(table, _last_info)
    Log(table).folder.delete_unfinished(older_than_s=0)
    return n_log_files


def _last_info(snapshot: Snapshot) -> dict[str, object]:
    """Return the `commitInfo` of a commit without changes. It repeats the facts of the pipeline's newest commit, deleted with the log."""
    newest = next(Log(snapshot.table).own_commits(), None)
    info: dict[str, object] = {"operation": "ERASE"}
    if newest is not None:
        _, facts = newest
        info["userMetadata"] = json.dumps(facts, separators=(",", ":"))
    return info
