"""Finds changes of a state by other clients since a step. Only steps may change its rows; joining its files changes none."""

from __future__ import annotations

from ebbtide.delta import Log, Snapshot


def foreign_change(version: int, state: Snapshot) -> tuple[str, list[int]]:
    """Return the newest foreign change of a state since a step, and the versions that have the rows of that step.

    Args:
        version: Version of the step.
        state: The newest version.

    Returns:
        Version and operation of the change, empty without one; the versions that have the rows of the step, in order.
    """
    # Cheap first: without a commit that changes rows no snapshot is built.
    table = state.table
    own = [version]
    since = range(version + 1, state.version + 1)
    commits = (Log(table).commit(later) for later in since)
    if not any(commit.changed_files() for commit in commits):
        return "", [*own, *since]
    at = Snapshot.read(table, version)
    if at is None:
        return "", own
    # Rows are compared by the data files that hold them. A commit that changes no rows gives one more set of files with the
    # same rows; a change that is undone, as by RESTORE, ends in a set that is known, and is forgotten then.
    same_rows = [at.files.keys()]
    changed_by = ""
    while at.version < state.version:
        actions = Log(table).commit(at.version + 1)
        at = at.after(actions)
        files = at.files.keys()
        if files in same_rows:
            changed_by = ""
            own.append(at.version)
        elif actions.changed_files():
            info = actions.info()
            operation = info.get("operation", "unknown")
            changed_by = f"version {at.version}, {operation}"
        elif not changed_by:
            same_rows.append(files)
            own.append(at.version)
    return changed_by, own
