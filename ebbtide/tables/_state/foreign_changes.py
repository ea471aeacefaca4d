"""Finds changes of a state by other clients since a step. Only steps may change its rows; joining its files changes none."""

from __future__ import annotations

from ebbtide.delta import Commit, Log, Snapshot


def foreign_change(version: int, state: Snapshot, *, counts_rows: bool = False) -> tuple[str, list[int]]:
    """Return the newest foreign change of a state since a step, and the versions that have the rows of that step.

    Args:
        version: Version of the step.
        state: The newest version.
        counts_rows: A commit that changes the number of rows, but says that no row changes, is a change too.

    Returns:
        Version and operation of the change, empty without one; the versions that have the rows of the step, in order.
    """
    # Cheap first: without a commit that may change rows no snapshot is built.
    table = state.table
    own = [version]
    since = range(version + 1, state.version + 1)
    commits = (Log(table).commit(later) for later in since)
    if not any(commit.changed_files() or (counts_rows and _replaces_files(commit)) for commit in commits):
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
        n_before = at.live_rows
        at = at.after(actions)
        files = at.files.keys()
        is_false = False
        if counts_rows and _replaces_files(actions):
            is_false = None not in (n_before, at.live_rows) and n_before != at.live_rows
        if files in same_rows:
            changed_by = ""
            own.append(at.version)
        elif actions.changed_files() or is_false:
            info = actions.info()
            operation = info.get("operation", "unknown")
            changed_by = f"version {at.version}, {operation}"
        elif not changed_by:
            same_rows.append(files)
            own.append(at.version)
    return changed_by, own


def _replaces_files(commit: Commit) -> bool:
    """Return whether a commit of another client adds or removes files; folds of the pipeline leave old versions of rows out."""
    return not commit.is_own() and any("add" in action or "remove" in action for action in commit)
