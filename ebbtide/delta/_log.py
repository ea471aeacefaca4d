"""Reads the commits of a Delta table's log, and Ebbtide's facts in them, without a JVM.

A commit is `_delta_log/<20 digits>.json`: actions, one a line. `commitInfo.userMetadata` has the facts as JSON.
`ebbtide.delta._snapshot` replays commits to a version of the table. Source: Delta transaction log protocol, "Delta Log Entries".
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

from ebbtide.errors import DeltaLogError
from ebbtide.model import StoredDocument
from ebbtide.storage import Location, at_once

Action = dict[str, Any]
"""One line of a commit, by its kind; or the value under one kind."""
Facts = dict[str, Any]
"""The JSON object that Ebbtide wrote into a commit."""
Read = TypeVar("Read")
LOG = "_delta_log"
"""The folder of a table's log."""
COMMIT = ".json"
"""End of the name of a commit's file, after the version."""
FACTS = StoredDocument.FORMAT_KEY
"""The key of the facts in a commit's userMetadata; its value is the format's version."""
STEP = "What a commit says of its step"
"""Name of these facts in errors."""
SOME_LOG = "a table's log"
"""Place in errors of actions whose file is unknown."""
CHECKSUM = "ebbtideChecksum"
"""Last field of the `commitInfo` of Ebbtide's commits: CRC-32 of the file, with `NO_CHECKSUM` in its own place, as 8 hexadecimal digits."""
FOOTER = "ebbtideFooter"
"""The tag of a data file with the checksum of its footer."""
UNPACKED = "ebbtideUnpacked"
"""The tag of a data file with the bytes that its rows take in memory, from `LEAST_UNPACKED` on."""
LEAST_UNPACKED = 2**20
NO_CHECKSUM = "-" * 8
WITHOUT_COPY = (
    "Without one: of a sink, a changelog or a quarantine run 'ebbtide repair --apply' or 'ebbtide refresh', which move the table's folder"
    " aside and make a new one; of a state move its folder away and run 'ebbtide refresh'; of a ledger move its folder away and run"
    " 'ebbtide pause', then 'ebbtide resume': whether the pipeline was paused, it alone knew."
)
"""Next step for a log that cannot be read."""
_STATED = re.compile(f'"{CHECKSUM}":"([0-9a-f]{{8}})"}}}}$'.encode())


def versions(table: str) -> list[int]:
    """Return the versions whose commits are still in the log, ascending."""
    numbers = []
    log = Location(table) / LOG
    for name in log.list_files():
        if not name.endswith(COMMIT):
            continue
        stem = name.removesuffix(COMMIT)
        is_version = len(stem) == 20 and stem.isdigit()
        if is_version:
            numbers.append(int(stem))
    return numbers


def each(
    table: str,
    versions: Iterable[int],
    read: Callable[[str, int], Read],
) -> list[Read]:
    """Read several commits, at once from a store; return what was read of each.

    Args:
        table: Location of the table.
        versions: Their versions.
        read: Reads one, given the table and the version.
    """
    wanted = list(versions)
    if len(wanted) <= 1 or not Location(table).is_in_object_store:
        return [read(table, version) for version in wanted]
    calls = [partial(read, table, version) for version in wanted]
    return at_once(*calls)


def commit_file(table: str, version: int) -> str:
    """Return the location of a version's commit."""
    name = f"{version:020d}{COMMIT}"
    return Location(table) / LOG / name


def actions(table: str, version: int) -> list[Action]:
    """Return a commit's actions; none if it does not exist."""
    location = commit_file(table, version)
    return read_actions(location)


def checksum(table: str, version: int) -> str | None:
    """Return the checksum of a commit's file; None if it does not exist."""
    location = commit_file(table, version)
    raw = Location(location).read_bytes()
    if raw is None:
        return None
    return _checksum(raw)


def read_actions(location: str) -> list[Action]:
    """Return the actions in a file of the log, one a line; none if it does not exist.

    Raises:
        DeltaLogError: it is torn, or its bytes have changed.
    """
    raw = Location(location).read_bytes()
    if raw is None:
        return []
    _refuse_other_bytes(location, raw)
    actions: list[Action] = []
    for line in raw.splitlines():
        if line.strip():
            action = _action(location, line)
            actions.append(action)
    if not actions:
        raise _damaged(location, "no action")
    return actions


def _action(location: str, line: bytes) -> Action:
    try:
        action = json.loads(line)
    except ValueError as error:
        raise _damaged(location, str(error)) from error
    if not isinstance(action, dict):
        raise _damaged(location, type(action).__name__)
    return action


def with_checksum(content: bytes) -> bytes:
    """Replace the placeholder in a commit's first line by the checksum of the commit."""
    placeholder = _stating(NO_CHECKSUM)
    stated = _stating(_checksum(content))
    return content.replace(placeholder, stated, 1)


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def _stating(checksum: str) -> bytes:
    """Return the end of the first line with a checksum. No text value can contain it: its quotes would be escaped."""
    return f'"{CHECKSUM}":"{checksum}"}}}}\n'.encode()


def _refuse_other_bytes(location: str, raw: bytes) -> None:
    """Refuse a commit whose bytes do not fit its checksum; commits of other clients have none."""
    first_line, _, _ = raw.partition(b"\n")
    stated = _STATED.search(first_line)
    if stated is None:
        return
    start, end = stated.span(1)
    # The checksum was computed with the placeholder in its place.
    before = raw[:start]
    after = raw[end:]
    without = before + NO_CHECKSUM.encode() + after
    if with_checksum(without) != raw:
        raise _damaged(location, "another checksum")


def _damaged(location: str, got: str) -> DeltaLogError:
    return DeltaLogError.of(
        f"The file '{location}' of a Delta table's log is torn or damaged.",
        got=got,
        next_step=f"Restore it from a copy. {WITHOUT_COPY}",
    )


def facts(table: str, version: int) -> Facts | None:
    """Return the facts in a commit; None if Ebbtide did not make it. Errors are those of `facts_in`."""
    location = commit_file(table, version)
    commit = read_actions(location)
    return facts_in(commit, location)


def facts_in(actions: Iterable[Action], location: str = SOME_LOG) -> Facts | None:
    """Return the facts among a commit's actions; None if Ebbtide did not make it.

    Args:
        actions: Actions of the commit.
        location: Its file, for errors.

    Raises:
        StoredFormatError: a newer release wrote it.
        DamagedFileError: its facts name no format.
    """
    for action in actions:
        info = action.get("commitInfo", {})
        text = info.get("userMetadata", "null")
        try:
            metadata = json.loads(text)
        except ValueError:
            continue
        if isinstance(metadata, dict) and FACTS in metadata:
            StoredDocument(STEP, location).refuse_newer_format(metadata)
            return metadata
    return None


def added(table: str, version: int) -> list[str]:
    """Return the locations of the data files that a commit added."""
    paths = [add["path"] for add in adds(table, version)]
    return [file_location(table, path) for path in paths]


def footer_of(add: Action) -> str | None:
    """Return the checksum of a data file's footer, given its `add`; None if it was not noted."""
    tags = add.get("tags") or {}
    return tags.get(FOOTER)


def adds(table: str, version: int) -> list[Action]:
    """Return the values under `add` in a commit."""
    commit = actions(table, version)
    return [action["add"] for action in commit if "add" in action]


def file_location(table: str, path: str) -> str:
    """Return the location of a file that a log names.

    Args:
        table: Location of the table.
        path: Path as in the log: relative to the table or absolute, percent-encoded.

    Raises:
        DeltaLogError: it leads out of the table.
    """
    # The protocol allows a path anywhere, as in a shallow clone. It is refused: a writer of the log could have Ebbtide read files to
    # which that writer has no access. None of Ebbtide's own tables has such a path.
    given = unquote(path)
    folder = f"{table.rstrip('/')}/"
    scheme, is_uri, rest = given.partition(":/")
    is_local_uri = is_uri and scheme == "file"
    location = given
    if is_local_uri:
        location = f"/{rest.lstrip('/')}"
    is_absolute = bool(is_uri) or given.startswith("/")
    if not is_absolute:
        location = folder + given
    leads_up = ".." in location.split("/")
    if leads_up or not location.startswith(folder):
        raise DeltaLogError.of(
            f"The log of the Delta table '{table}' names a file that is not in the table's folder.",
            got=path,
            allowed=f"files below '{table}'",
            next_step="If the table is a shallow clone, make a deep one; else restore the log.",
        )
    return location


def changed_files(actions: Iterable[Action]) -> list[Action]:
    """Return the values under `add` and `remove` that change rows; joining files changes none."""
    changed = []
    for action in actions:
        file = action.get("add") or action.get("remove")
        # The protocol requires `dataChange`; without it a change is assumed.
        if file and file.get("dataChange", True):
            changed.append(file)
    return changed


def commit_info(actions: Iterable[Action]) -> Action:
    """Return a commit's `commitInfo`; empty without one."""
    for action in actions:
        if "commitInfo" in action:
            info: Action = action["commitInfo"]
            return info
    return {}


def last_step(table: str) -> int:
    """Return the last step that changed a table, 0 before the first."""
    newest = next(own_commits(table), None)
    if newest is None:
        return 0
    _, own = newest
    return int(own["step"])


def own_commits(table: str) -> Iterator[tuple[int, Facts]]:
    """Yield (version, facts) of Ebbtide's commits, the newest first."""
    newest_first = reversed(versions(table))
    for version in newest_first:
        own = facts(table, version)
        if own is not None:
            yield version, own
