"""The change feed of a table: whether it can be read between two versions."""

from __future__ import annotations

import hashlib

from ebbtide.delta import log
from ebbtide.delta.snapshot import DataFile
from ebbtide.storage.paths import exists, read_bytes


def commit_hash(table: str, version: int) -> str:
    """Return what distinguishes a version's commit from another one in its place; empty if it is not there."""
    location = log.commit_file(table, version)
    raw = read_bytes(location)
    if raw is None:
        return ""
    return hashlib.sha256(raw).hexdigest()[:16]


def readable_since(table: str, since: int, until: int) -> int:
    """Return the version from which on the change feed can be read, `since` if all of it can.

    VACUUM deletes the files of old changes, and a cleanup of the log the commits that name them.
    """
    # From the newest back: the first version that cannot be read hides all older ones from a reader of the feed.
    for version in range(until, since, -1):
        actions = log.actions(table, version)
        if not actions or not all(map(exists, feed_files(table, actions))):
            return version
    return since


def feed_files(table: str, actions: list[log.Action]) -> list[str]:
    """Return the locations of the files that the change feed of a commit is read from."""
    # A commit with change files is read from these alone; without one its adds and removes are the changes.
    shown = [action["cdc"] for action in actions if "cdc" in action]
    return [DataFile(file).location(table) for file in shown or log.changed_files(actions)]


def gap(table: str, since: int, until: int) -> str:
    """Say why the changes after one version, up to another, are not in the change feed; empty if they are."""
    readable = readable_since(table, since, until)
    if readable > since:
        return f"the changes in versions {since + 1} to {readable} are gone, as by VACUUM"
    for version in range(since + 1, until + 1):
        if any("metaData" in action for action in log.actions(table, version)):
            return f"the columns or properties were changed in version {version}"
    return ""


def has_changes(table: str, since: int, until: int) -> bool:
    """Return whether rows may have changed after one version, up to another: folds of files change none."""
    for version in range(since + 1, until + 1):
        actions = log.actions(table, version)
        if not actions or log.changed_files(actions) or any("metaData" in action for action in actions):
            return True
    return False
