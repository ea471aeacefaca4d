"""Reads the commits of a Delta table's log, Ebbtide's facts in them, and its checkpoints, without a JVM.

A commit is `_delta_log/<20 digits>.json`: actions, one a line. `commitInfo.userMetadata` has the facts as JSON.
`ebbtide.delta._snapshot` replays commits to a version of the table. A checkpoint is one file or
several, with or without sidecars. Source: Delta transaction log protocol, "Delta Log Entries", "Checkpoints".
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

from pydantic_core import from_json

from ebbtide.errors import DeltaLogError
from ebbtide.model import StoredDocument
from ebbtide.storage import Location, ParquetFile, Together

Action = dict[str, Any]
"""One line of a commit, by its kind; or the value under one kind."""
Facts = dict[str, Any]
"""The JSON object that Ebbtide wrote into a commit."""
Read = TypeVar("Read")
SOME_LOG = "a table's log"
"""Place in errors of actions whose file is unknown."""
CHECKSUM = "ebbtideChecksum"
"""Last field of the `commitInfo` of Ebbtide's commits: CRC-32 of the file, with `NO_CHECKSUM` in its own place, as 8 hexadecimal digits."""
FOOTER = "ebbtideFooter"
"""The tag of a data file with the checksum of its footer."""
UNPACKED = "ebbtideUnpacked"
"""The tag of a data file with the bytes that its rows take in memory, if at least `LEAST_UNPACKED`."""
LEAST_UNPACKED = 2**20
KEY_RANGE = "ebbtideKeyRange"
"""The tag of a data file with the range of its keys' hashes; see `ebbtide.delta._key_range`."""
NO_CHECKSUM = "-" * 8
ENGINE = "Ebbtide"
"""The `engineInfo` of commits that join files: no step's facts say whose they are."""
JOINED = {"operation": "OPTIMIZE", "engineInfo": ENGINE}
"""Fields of the `commitInfo` of a commit that joins files."""
WITHOUT_COPY = (
    "Without one: of a sink, a changelog or a quarantine run 'ebbtide repair --apply' or 'ebbtide refresh', which move the table's folder"
    " aside and make a new one; of a state move its folder away and run 'ebbtide refresh'; of a ledger move its folder away and run"
    " 'ebbtide pause --reason TEXT', then 'ebbtide resume': whether the pipeline was paused, it alone knew."
)
"""Next step for a log that cannot be read."""
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-f-]{36}))?\.(?P<kind>parquet|json)"
)
KEPT_KINDS = ("add", "metaData", "protocol", "txn", "domainMetadata")
"""Kinds of actions of a checkpoint that its version has."""
KINDS = (*KEPT_KINDS, "remove")
"""These, and those of files that were removed before."""
SIDECAR = "sidecar"
"""The kind of action that names a further file of a checkpoint."""
_STATED = re.compile(f'"{CHECKSUM}":"([0-9a-f]{{8}})"}}}}$'.encode())


@dataclass(frozen=True)
class Log:
    """The log of a table.

    Args:
        table: Location of the table.
        seen: Names of its files as one look found them, sorted; None: each question lists them.
    """

    table: str
    seen: tuple[str, ...] | None = None

    FOLDER: ClassVar = "_delta_log"
    """Name of the folder of a log, in the table's."""
    COMMIT: ClassVar = ".json"
    """End of the name of a commit's file, after the version."""

    @property
    def folder(self) -> Location:
        """Its folder."""
        return Location(self.table) / self.FOLDER

    def look(self) -> Log:
        """Return it with the names that it has now: one listing answers all that is asked of these."""
        return Log(self.table, tuple(self.folder.entries()))

    def versions(self) -> list[int]:
        """Return the versions whose commits are still in the log, ascending; none without a table."""
        return versions_in(self.names())

    def newest_first(self) -> Iterator[int]:
        """Yield the versions whose commits are still in the log, descending: only the names that are asked for are read."""
        for name in reversed(self.names()):
            yield from versions_in([name])

    def is_beyond(self, version: int) -> bool:
        """Return whether it has a commit of a later version."""
        if self.seen is None and Location(self.table).is_local:
            return self.folder.has_file_like(lambda name: any(later > version for later in versions_in([name])))
        return any(later > version for later in self.versions())

    def whole_versions(self) -> list[int]:
        """Return the same by the same listing, of a log without gaps.

        Raises:
            DeltaLogError: a commit is missing.
        """
        names = self.names()
        versions = versions_in(names)
        checkpoint, _ = newest_checkpoint(names)
        refuse_gaps(self.table, checkpoint, [version for version in versions if version > checkpoint])
        return versions

    def is_there(self) -> bool:
        """Return whether it has a commit."""
        if self.seen is None and Location(self.table).is_local:
            return self.folder.has_file_like(_is_commit)
        return any(map(_is_commit, self.names()))

    def names(self, until: int | None = None) -> list[str]:
        """Return the names of its files, sorted, without those of versions after `until`."""
        names = self.folder.entries() if self.seen is None else list(self.seen)
        if until is None:
            return names
        early = []
        for name in names:
            version = name[:20]
            if version.isdigit() and int(version) <= until:
                early.append(name)
        return early

    def has(self, version: int) -> bool:
        """Return whether a version is still in it: its commit, or a checkpoint of it."""
        if self.commit_file(version).is_file():
            return True
        checkpoint, _ = newest_checkpoint(self.names(version))
        return checkpoint == version

    def commit_file(self, version: int) -> Location:
        """Return the location of a version's commit."""
        return self.folder / f"{version:020d}{self.COMMIT}"

    def commit(self, version: int) -> Commit:
        """Return a version's commit; one without actions if it does not exist.

        Raises:
            DeltaLogError: it is torn, or its bytes have changed.
        """
        return Commit.read(self.commit_file(version))

    def each(self, versions: Iterable[int], read: Callable[[int], Read]) -> list[Read]:
        """Read several commits, in parallel from a store; return the content of each.

        Args:
            versions: Their versions.
            read: Reads one, given the version.
        """
        wanted = list(versions)
        if len(wanted) <= 1 or not Location(self.table).is_in_object_store:
            return [read(version) for version in wanted]
        calls = [partial(read, version) for version in wanted]
        return Together.at_once(*calls)

    def checksum(self, version: int) -> str | None:
        """Return the checksum of a commit's file, 8 hexadecimal digits; None if it does not exist."""
        raw = self.commit_file(version).read_bytes()
        if raw is None:
            return None
        return _checksum(raw)

    def hash_of(self, version: int) -> str:
        """Return the hash of a version's commit, which identifies it among commits of this number; empty if it does not exist."""
        raw = self.commit_file(version).read_bytes()
        if raw is None:
            return ""
        return hashlib.sha256(raw).hexdigest()[:16]

    def own_commits(self) -> Iterator[tuple[int, Facts]]:
        """Yield (version, facts) of Ebbtide's commits, the newest first."""
        for version in self.newest_first():
            own = self.commit(version).facts()
            if own is not None:
                yield version, own

    def last_step(self) -> int:
        """Return the last step that changed the table, 0 before the first."""
        newest = next(self.own_commits(), None)
        if newest is None:
            return 0
        _, own = newest
        return int(own["step"])

    def added(self, version: int) -> list[str]:
        """Return the locations of the data files that a commit added."""
        return [self.location_of(add["path"]) for add in self.commit(version).adds()]

    def location_of(self, path: str) -> str:
        """Return the location of a file that the log names.

        Args:
            path: Path as in the log: relative to the table or absolute, percent-encoded.

        Raises:
            DeltaLogError: it leads out of the table.
        """
        # The protocol allows a path anywhere, as in a shallow clone. It is refused: a writer of the log could have Ebbtide read files to
        # which that writer has no access. None of Ebbtide's own tables has such a path.
        given = unquote(path)
        folder = f"{self.table.rstrip('/')}/"
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
                f"The log of the Delta table '{self.table}' names a file that is not in the table's folder.",
                got=path,
                allowed=f"files below '{self.table}'",
                next_step="If the table is a shallow clone, copy its rows to a new table (CREATE TABLE ... AS SELECT); else restore the log.",
            )
        return location


def versions_in(names: Iterable[str]) -> list[int]:
    """Return the versions of the commits among the sorted names of a log's files, ascending."""
    # In one expression: a log may have tens of thousands.
    return [int(name[:20]) for name in names if len(name) == 25 and name[20:] == Log.COMMIT and name[:20].isdigit()]


def _is_commit(name: str) -> bool:
    return bool(versions_in([name]))


class Commit(list[Action]):
    """The actions of a commit, in the order of its lines.

    Args:
        actions: Its actions; none if there is no such commit.
        location: Its file, for errors.
    """

    FORMAT: ClassVar = StoredDocument.FORMAT_KEY
    """Key of the facts' format, a number."""
    FACTS: ClassVar = "What a commit says of its step"
    """Name of the facts in errors."""

    def __init__(self, actions: Iterable[Action] = (), location: str = SOME_LOG) -> None:
        super().__init__(actions)
        self.location = location

    @classmethod
    def read(cls, location: str) -> Commit:
        """Read a file of the log, one action a line; no action if it does not exist.

        Raises:
            DeltaLogError: it is torn, or its bytes have changed.
        """
        raw = Location(location).read_bytes()
        if raw is None:
            return cls((), location)
        _refuse_other_bytes(location, raw)
        actions = cls((), location)
        for line in raw.splitlines():
            if line.strip():
                action = _action(location, line)
                actions.append(action)
        if not actions:
            raise _damaged(location, "no action")
        return actions

    def info(self) -> Action:
        """Return its `commitInfo`; empty without one."""
        for action in self:
            if "commitInfo" in action:
                info: Action = action["commitInfo"]
                return info
        return {}

    def facts(self) -> Facts | None:
        """Return the facts that Ebbtide wrote into it, as JSON; None if Ebbtide did not make it.

        Raises:
            StoredFormatError: a newer release wrote it.
            DamagedFileError: its facts name no format.
        """
        for action in self:
            info = action.get("commitInfo", {})
            text = info.get("userMetadata", "null")
            try:
                metadata = json.loads(text)
            except ValueError:
                continue
            if isinstance(metadata, dict) and self.FORMAT in metadata:
                StoredDocument(self.FACTS, self.location).refuse_newer_format(metadata)
                return metadata
        return None

    def is_own(self) -> bool:
        """Return whether Ebbtide made it: it has facts, or joins files."""
        return self.info().get("engineInfo") == ENGINE or self.facts() is not None

    def adds(self) -> list[Action]:
        """Return the values under `add`."""
        return [action["add"] for action in self if "add" in action]

    def changed_files(self) -> list[Action]:
        """Return the values under `add` and `remove` that change rows; joining files changes none."""
        changed = []
        for action in self:
            file = action.get("add") or action.get("remove")
            # The protocol requires `dataChange`; without it a change is assumed.
            if file and file.get("dataChange", True):
                changed.append(file)
        return changed


def _action(location: str, line: bytes) -> Action:
    try:
        action = from_json(line)
    except ValueError:
        # The standard library takes more: texts that are not Unicode. It judges what the quick decoder refuses.
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
    whole = memoryview(raw)
    computed = 0
    for piece in (whole[:start], NO_CHECKSUM.encode(), whole[end:]):
        computed = zlib.crc32(piece, computed)
    if f"{computed:08x}".encode() != stated[1]:
        raise _damaged(location, "another checksum")


def _damaged(location: str, got: str) -> DeltaLogError:
    return DeltaLogError.of(
        f"The file '{location}' of a Delta table's log is torn or damaged.",
        got=got,
        next_step=f"Restore it from a copy. {WITHOUT_COPY}",
    )


def newest_checkpoint(names: list[str]) -> tuple[int, list[str]]:
    """Return the version and the files of the newest complete checkpoint; -1 and none without one."""
    # Several writers may have written a checkpoint of one version, each in its own number of parts: they are kept apart.
    found: dict[tuple[int, str], list[str]] = {}
    n_wanted: dict[tuple[int, str], int] = {}
    for name in names:
        # A log has far more commits: the expression is for the names that may fit it.
        match = _CHECKPOINT.fullmatch(name) if name[20:31] == ".checkpoint" else None
        if match is None:
            continue
        version = int(match[1])
        n_parts = int(match["parts"] or 1)
        writer = match["uuid"] or f"of {n_parts}"
        checkpoint = (version, writer)
        found.setdefault(checkpoint, []).append(name)
        n_wanted[checkpoint] = n_parts
    whole = []
    for checkpoint, files in found.items():
        is_whole = len(files) == n_wanted[checkpoint]
        if is_whole:
            whole.append(checkpoint)
    if not whole:
        return -1, []
    # If several writers wrote one version, any of them will do: all have the same state.
    newest = max(whole)
    newest_version, _ = newest
    return newest_version, sorted(found[newest])


def refuse_gaps(table: str, checkpoint: int, since: list[int]) -> None:
    """Refuse a log with a gap after its checkpoint, or after the beginning.

    Args:
        table: Location of the table.
        checkpoint: Version of its newest checkpoint; -1 without one.
        since: Versions of the commits after it, ascending.

    Raises:
        DeltaLogError: a commit is missing.
    """
    if not since:
        return
    newest = since[-1]
    # Commits are numbered consecutively: their count shows whether one is missing.
    n_missing = newest - checkpoint - len(since)
    if n_missing == 0:
        return
    after = checkpoint if checkpoint >= 0 else "none"
    raise DeltaLogError.of(
        f"The log of the Delta table '{table}' is not whole.",
        got=f"commits {since[0]} to {newest} after the checkpoint {after}, {n_missing} missing",
        next_step=f"Restore the missing files of _delta_log. {WITHOUT_COPY}",
    )


def checkpoint_actions(table: str, name: str, kinds: Sequence[str] = KINDS) -> list[Action]:
    """Return the actions of a checkpoint's file, and of the sidecars that it names.

    Args:
        table: Location of the table.
        name: Name of the file.
        kinds: Kinds to read; the file names all files removed within the retention, which most readers do not need.
    """
    location = Log(table).folder / name
    is_json = name.endswith(".json")
    actions = Commit.read(location) if is_json else list(_parquet_actions(location, (*kinds, SIDECAR)))
    sidecars = [action[SIDECAR] for action in actions if SIDECAR in action]
    # A V2 checkpoint names sidecar files with its `add` and `remove` actions.
    for sidecar in sidecars:
        folder = Log(table).folder / "_sidecars"
        sidecar_location = Log(folder).location_of(sidecar["path"])
        actions += _parquet_actions(sidecar_location, kinds)
    return actions


def _parquet_actions(location: str, kinds: Sequence[str]) -> Iterator[Action]:
    """Yield the actions of a file with a column for each kind; each row has one of them set."""
    table = ParquetFile(location).read(columns=list(kinds))
    for kind in table.column_names:
        for action in table[kind].drop_null().to_pylist(maps_as_pydicts="strict"):
            # Parquet has all fields of a kind: those that were not written are null, and must not count as values.
            yield {kind: _without_nulls(action)}


def _without_nulls(action: Action) -> Action:
    return {name: value for name, value in action.items() if value is not None}
