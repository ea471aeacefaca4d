"""Files, rows and bytes that an operation removes from tables, by place: counted from their logs, without reading rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ebbtide.amounts import amount
from ebbtide.delta import Action, DataFile, Held, Log, Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.model import Decision
from ebbtide.operations._operation import Report
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

NOW = "gone now"
"""Fate of files that are deleted at once."""
BY_VACUUM = "gone by the first 'ebbtide vacuum' after 7 days"
"""Fate of files removed from the newest version of a table: after `delta.deletedFileRetentionDuration`."""


@dataclass(frozen=True)
class Place:
    """A place that an operation looks at.

    Args:
        name: Name of the place.
        found: Rows, files and bytes.
        fate: `gone now`, `gone by DATE` or `not ours`, with a reason.
    """

    name: str
    found: Held
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


def of_files(name: str, files: Iterable[DataFile], fate: str) -> Place:
    """Return the place of some data files of a table.

    Args:
        name: Name of the table.
        files: The files; rows of a file without a count in the log are left out.
        fate: Why and when they are deleted.
    """
    total = Held()
    for file in files:
        n_rows = file.live_rows or 0
        total += Held(n_rows, 1, file.size)
    return Place(name, total, fate)


def of_table(plan: Plan, name: str, fate: str) -> list[Place]:
    """Return the place of all data files of a table's newest version; none if there is no Delta table."""
    location = plan.at(name)
    if not Log(location).is_there():
        return []
    snapshot = Snapshot.read(location, any_features=True)
    if snapshot is None or not snapshot.files:
        return []
    place = of_files(name, snapshot.files.values(), fate)
    return [place]


def of_actions(name: str, now: Snapshot, actions: Sequence[Action], fate: str) -> list[Place]:
    """Return the place of the data files that a commit removes from a table; none without any.

    Args:
        name: Name of the table.
        now: Its newest version.
        actions: The actions of the commit.
        fate: Why and when they are deleted.
    """
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    added = {action["add"]["path"] for action in actions if "add" in action}
    gone = removed - added  # a file that only gets another vector stays
    files = [file for file in now.files.values() if file.add["path"] in gone]
    if not files:
        return []
    place = of_files(name, files, fate)
    return [place]


def of_folder(name: str, location: str, fate: str) -> list[Place]:
    """Return the place of all files below a folder; none without any."""
    used = Location(location).usage()
    if not used.files:
        return []
    found = Held(files=used.files, bytes=used.bytes)
    return [Place(name, found, fate)]


def dropped(spec: Pipeline, root: str) -> Iterator[str]:
    """Yield a line for each table whose rows a refresh of a pipeline drops.

    Args:
        root: Folder of all pipelines' tables.
    """
    plan = Plan.under(root, spec)
    fate = f"dropped, {BY_VACUUM}"
    for name in ("state", *Decision.OWN_OUTPUTS):
        try:
            places = of_table(plan, name, fate)
        except EbbtideError as error:  # a refresh is the remedy for a table that cannot be read
            yield f"{spec.name}: {name}: {error}"
            continue
        for place in places:
            yield f"{spec.name}: {place.text(is_planned=True)}"


def with_places(report: Report, places: Sequence[Place]) -> Report:
    """Return the report of an operation with a line and a value for each place."""
    if not places:
        return report
    is_planned = report.step is None
    lines = list(report.lines)
    values = []
    for place in places:
        lines.append(place.text(is_planned=is_planned))
        values.append(place.as_dict())
    details = {**report.details, "places": values}
    return replace(report, lines=lines, details=details)
