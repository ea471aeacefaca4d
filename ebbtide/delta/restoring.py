"""Brings a table back to an earlier version, as a commit of its own: as far as the files of that version are still there."""

from __future__ import annotations

from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import replacing
from ebbtide.errors import HistoryGoneError
from ebbtide.paths import exists


def restoring(now: Snapshot, version: int, *, data_change: bool = True) -> list[Action]:
    """Return the actions that bring a table back to an earlier version, whole.

    Args:
        now: Its newest version.
        version: The earlier one.
        data_change: Rows change by that. Else only the columns that they have.

    Raises:
        HistoryGoneError: its data files, or the commits that name them, are gone.
    """
    before = Snapshot.read(now.table, version)
    if before is None or before.version != version:
        raise _gone(now.table, version, "its commit is deleted")
    n_gone = sum(not exists(file.location(now.table)) for file in before.files.values())
    if n_gone:
        raise _gone(now.table, version, f"{n_gone} of its data files deleted, as by VACUUM")
    actions: list[Action] = [{"metaData": before.metadata}]
    for id_, file in before.files.items():
        if id_ not in now.files:
            add = {**file.add, "dataChange": data_change}
            actions.append({"add": add})
    goes = [file for id_, file in now.files.items() if id_ not in before.files]
    return replacing(goes, actions, data_change=data_change)


def _gone(table: str, version: int, what: str) -> HistoryGoneError:
    return HistoryGoneError.of(
        f"The table '{table}' cannot be brought back to version {version}.",
        got=what,
        allowed="a version whose files are all there",
    )
