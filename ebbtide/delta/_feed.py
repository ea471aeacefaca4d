"""The change feed of a table between two versions, and whether it can be read."""

from __future__ import annotations

import hashlib

from ebbtide.delta._data_file import DataFile
from ebbtide.delta._log import Action, Commit, Log
from ebbtide.storage import Location


def commit_hash(table: str, version: int) -> str:
    """Return the hash of a version's commit; empty if the commit does not exist."""
    location = Log(table).commit_file(version)
    raw = Location(location).read_bytes()
    if raw is None:
        return ""
    return hashlib.sha256(raw).hexdigest()[:16]


def readable_since(table: str, since: int, until: int) -> int:
    """Return the version after which the change feed can be read; `since` if all of it can.

    VACUUM deletes the files of old changes, and a cleanup of the log the commits that name them.
    """
    # From the newest back: a reader of the feed cannot get past the first version that is missing.
    for version in range(until, since, -1):
        actions = Log(table).commit(version)
        files = feed_files(table, actions)
        is_whole = bool(actions) and all(Location(file).exists() for file in files)
        if not is_whole:
            return version
    return since


def feed_files(table: str, actions: Commit) -> list[str]:
    """Return the locations of the files from which the change feed of a commit is read."""
    # A commit with change files is read from these only; without them its adds and removes are the changes.
    changes = [action["cdc"] for action in actions if "cdc" in action]
    read = changes or actions.changed_files()
    locations = []
    for action in read:
        file = DataFile(action)
        locations.append(file.location(table))
    return locations


def gap(table: str, since: int, until: int) -> str:
    """Return the reason why the feed lacks the changes after one version, up to another; empty if it has them."""
    readable = readable_since(table, since, until)
    if readable > since:
        return f"the changes in versions {since + 1} to {readable} are gone, as by VACUUM"
    for version in range(since + 1, until + 1):
        actions = Log(table).commit(version)
        if _defines(actions):
            return f"the columns or properties were changed in version {version}"
    return ""


def has_changes(table: str, since: int, until: int) -> bool:
    """Return whether rows may have changed after one version, up to another; joining files changes none."""
    for version in range(since + 1, until + 1):
        actions = Log(table).commit(version)
        is_unknown = not actions  # the commit was cleaned up
        may_change = is_unknown or actions.changed_files() or _defines(actions)
        if may_change:
            return True
    return False


def _defines(actions: list[Action]) -> bool:
    """Return whether a commit changes the columns or properties of the table."""
    return any("metaData" in action for action in actions)
