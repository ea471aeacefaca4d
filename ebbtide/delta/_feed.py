"""The change feed of a table between two versions, and whether it can be read."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.delta._data_file import DataFile
from ebbtide.delta._log import Action, Commit, Log
from ebbtide.storage import Location


@dataclass(frozen=True)
class Feed:
    """The changes of a table after one version, up to another.

    Args:
        table: Location of the table.
        since: The version before the first change.
        until: The version of the last change.
    """

    table: str
    since: int
    until: int

    def readable_since(self) -> int:
        """Return the version after which the feed can be read; `since` if all of it can.

        VACUUM deletes the files of old changes, and a cleanup of the log the commits that name them.
        """
        # From the newest back: a reader of the feed cannot get past the first version that is missing.
        for version in range(self.until, self.since, -1):
            actions = Log(self.table).commit(version)
            files = feed_files(self.table, actions)
            is_whole = bool(actions) and all(Location(file).exists() for file in files)
            if not is_whole:
                return version
        return self.since

    def gap(self) -> str:
        """Return the reason why it lacks changes; empty if it has all."""
        readable = self.readable_since()
        if readable > self.since:
            return f"the changes in versions {self.since + 1} to {readable} are gone, as by VACUUM"
        for version in self._versions():
            actions = Log(self.table).commit(version)
            if _defines(actions):
                return f"the columns or properties were changed in version {version}"
        return ""

    def has_changes(self) -> bool:
        """Return whether rows may have changed; joining files changes none."""
        for version in self._versions():
            actions = Log(self.table).commit(version)
            is_unknown = not actions  # the commit was cleaned up
            may_change = is_unknown or actions.changed_files() or _defines(actions)
            if may_change:
                return True
        return False

    def _versions(self) -> range:
        return range(self.since + 1, self.until + 1)


def feed_files(table: str, actions: Commit) -> list[str]:
    """Return the locations of the files with the change feed of a commit."""
    # A commit with change files is read from these only; without them its adds and removes are the changes.
    changes = [action["cdc"] for action in actions if "cdc" in action]
    read = changes or actions.changed_files()
    locations = []
    for action in read:
        file = DataFile(action)
        locations.append(file.location(table))
    return locations


def _defines(actions: list[Action]) -> bool:
    """Return whether a commit changes the columns or properties of the table."""
    return any("metaData" in action for action in actions)
