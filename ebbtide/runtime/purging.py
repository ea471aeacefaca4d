"""The physical part of an erasure: files on disk that may hold erased rows are deleted, and the logs of the tables are cut.

It follows the step that erases, under the lease, and can be done again at any place where it ended: while `erasures/unfinished` is there, the next run,
or the next erasure, does it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide.amounts import amount
from ebbtide.delta import log
from ebbtide.delta.erasing import Found, cut_log, unnamed
from ebbtide.delta.snapshot import Snapshot
from ebbtide.ledger.erasures import erased_keys, is_unfinished, mark_finished
from ebbtide.ledger.facts import NoStep
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.runtime.erasing import doomed_in
from ebbtide.runtime.local_copies import drop_copies
from ebbtide.storage.paths import delete, delete_unfinished, is_local

if TYPE_CHECKING:
    from ebbtide.runtime.plan import Plan
    from ebbtide.runtime.step import Stepper


NOW = "gone now"


@dataclass(frozen=True)
class Place:
    """One place that an erasure has looked at.

    Args:
        name: Name of the place.
        found: Rows, files and bytes.
        fate: `gone now`, `gone by DATE` or `not ours`, with a reason.
    """

    name: str
    found: Found
    fate: str = NOW

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"place": self.name, **asdict(self.found), "fate": self.fate}

    def text(self, *, is_planned: bool) -> str:
        """Return it as text for a terminal."""
        found = self.found
        parts = []
        if found.rows:
            parts.append(amount(found.rows, "row"))
        parts.append(amount(found.files, "file"))
        if found.bytes:
            parts.append(amount(found.bytes, "byte"))
        fate = self.fate.replace(NOW, "will be gone") if is_planned else self.fate
        if found.files == found.rows == 0:
            return f"{self.name}: {fate}"
        return f"{self.name}: {', '.join(parts)}: {fate}"


def finish_purge(stepper: Stepper) -> None:
    """Do the physical part of an erasure that was interrupted; nothing happens without one. Call it once the last step is published."""
    last = stepper.last
    if isinstance(last, NoStep) or last.state.erased is None or not is_unfinished(stepper.plan.root):
        return
    purge(stepper, last.state.erased)


def purge(stepper: Stepper, name: str) -> list[Place]:
    """Delete the files that may hold erased rows, and cut the logs.

    Args:
        stepper: Holds the lease; the last step is published.
        name: Name of the file of the ledger.

    Returns:
        What was found, by place.
    """
    plan = stepper.plan
    places = []
    for table in ("state", *BESIDE_STATE):
        places += _purge_table(plan, table, name)
    places.append(Place("local copies", drop_copies(plan, erased_keys(plan.root, name), name)))
    logs = _delete_logs(plan)
    if logs.files:
        places.append(Place("logs of commands", logs))
    delete(plan.at("staged"))
    delete(plan.rehearsal)
    stepper.plan = replace(plan)  # its tables have read logs that are cut
    stepper.open()
    mark_finished(plan.root)
    return places


def _purge_table(plan: Plan, name: str, erasures: str) -> list[Place]:
    table = plan.at(name)
    if name == "sink" and plan.sink_log is None:
        return []
    snapshot = Snapshot.read(table)
    if snapshot is None:
        return []
    doomed = doomed_in(plan, name, erased_keys(plan.root, erasures))
    old = unnamed(snapshot, doomed)
    for location in old.holding:
        delete(location)
    delete_unfinished(table, older_than_s=0)
    n_log_files = cut_log(puts_of(table), table, _last_info)
    delete_unfinished(f"{table}/{log.LOG}", older_than_s=0)
    places = [Place(f"{name}: log", Found(files=n_log_files))]
    if old.unreadable:
        left = Found(files=len(old.unreadable))
        places.append(
            Place(f"{name}: unreadable files", left, "gone by the next vacuum after 7 days: they cannot be read")
        )
    return places


def _last_info(snapshot: Snapshot) -> dict[str, object]:
    """Return the `commitInfo` of a commit that changes nothing: it repeats the facts of the newest own commit, which goes with the log."""
    newest = next(log.own_commits(snapshot.table), None)
    info: dict[str, object] = {"operation": "ERASE"}
    if newest is not None:
        _, facts = newest
        info["userMetadata"] = json.dumps(facts, separators=(",", ":"))
    return info


def _delete_logs(plan: Plan) -> Found:
    """Delete the logs of Spark under the root, as each may show values; those of processes that run here stay until these end."""
    folder = Path(plan.all_pipelines, ".logs")
    total = Found()
    if not is_local(plan.root):
        return total
    for log_file in sorted(folder.glob("*-*.log")):
        pid = log_file.stem.rpartition("-")[2]
        if not pid.isdigit() or Path("/proc", pid).exists():
            continue
        with contextlib.suppress(OSError):
            size = log_file.stat().st_size
            log_file.unlink()
            total += Found(0, 1, size)
    return total
