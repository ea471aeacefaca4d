"""Lists the files of a folder that a run reads: files that match, were not read before, and are old enough.

A file is identified by its name below the folder (`partition=0/0001.json`) and its size. Its modification time decides only
its age: a clone or a copy has new times. Files are read in the order of their whole names.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from itertools import pairwise
from pathlib import Path

import pyarrow.fs as pafs

from ebbtide.amounts import amount, named
from ebbtide.errors import FileChangedError, LateFileError, SourceReadError
from ebbtide.redaction import printable
from ebbtide.sources._source import Discovery
from ebbtide.storage import FoundFile, Location

PATTERNS = (
    "*.json",
    "*.json.gz",
    "*.jsonl",
    "*.jsonl.gz",
    "*.ndjson",
    "*.ndjson.gz",
)
"""JSON lines, plain or gzip. Unfinished files (.tmp, .part, .crdownload) do not match."""
_LAST_NUMBER = re.compile(r"(?P<before>.*?)(?P<number>[0-9]+)(?P<behind>[^0-9]*)", re.DOTALL)
"""A name by its last number."""
NAMED = 5
"""Maximum number of files that a message names."""
WHOLE_LOOK_S = 30.0
"""Least time from one look of a run at all files to the next; in between only names are looked at that are new."""
WHOLE_LOOK_SHARE = 0.05
"""Maximum share of the time for such looks."""
SETTLED_NS = 2_000_000_000
"""Age of a folder's last change from which on its time shows the next one, on disks that count time in seconds too."""


@dataclass
class Seen:
    """The result of the looks of one run at a folder.

    A name that was seen is not asked about again until all are: then a file that has changed since it was read is found.

    Args:
        now_s: A monotonic clock.

    Attributes:
        names: Of files that were read, and of those that match no pattern.
        n_unmatched: Number of those that match none.
        folders: Path of each local folder to its last change, epoch ns, as of the last look; none in a store.
        found: What the last look found.
    """

    now_s: Callable[[], float] = time.monotonic
    names: set[str] = field(default_factory=set)
    n_unmatched: int = 0
    folders: dict[str, int] = field(default_factory=dict)
    found: Discovery | None = None
    _due_s: float = 0.0
    _is_settled: bool = False

    def is_due(self) -> bool:
        """Return whether it is time to look at all files."""
        return self.now_s() >= self._due_s

    def forget(self) -> None:
        """Begin a look at all files."""
        self.names.clear()
        self.folders.clear()
        self.n_unmatched = 0
        self.found = None

    def note(self, found: Discovery, began_s: float) -> None:
        """Note what a look has found that began at a time of the monotonic clock."""
        now_s = self.now_s()
        if self.is_due():
            self._due_s = now_s + max(WHOLE_LOOK_S, (now_s - began_s) / WHOLE_LOOK_SHARE)
        self.found = found
        # A file that comes in the moment of a folder's last change may leave that change's time.
        settled_ns = time.time_ns() - int((now_s - began_s) * 1e9) - SETTLED_NS
        self._is_settled = bool(self.folders) and all(at_ns < settled_ns for at_ns in self.folders.values())

    def has_no_news(self) -> bool:
        """Return whether the last look left nothing to read, nor to wait for, and no local folder has changed since."""
        is_idle = self.found is not None and not self.found.parts and not self.found.young
        return is_idle and self._is_settled and all(map(self._is_unchanged, self.folders.items()))

    @staticmethod
    def _is_unchanged(folder: tuple[str, int]) -> bool:
        path, at_ns = folder
        try:
            return Path(path).stat().st_mtime_ns == at_ns
        except OSError:
            return False


def refuse_absent(path: str) -> None:
    """Refuse a source that is not a folder.

    Raises:
        SourceReadError: it does not exist, or is a file.
    """
    if not Location(path).is_folder():
        raise SourceReadError.of(
            f"The source folder '{path}' does not exist.",
            next_step="Create it, or correct source.path in the spec.",
        )


def folders_like(pattern: str) -> list[str]:
    """Return the folders that a pattern matches; see `FileSource.folders_like`."""
    above, _, name = pattern.rpartition("/")
    fs, path = Location(above).file_system()
    selector = pafs.FileSelector(path, allow_not_found=True)
    found = []
    for info in fs.get_file_info(selector):
        folder = info.base_name
        is_folder = info.type == pafs.FileType.Directory
        is_hidden = folder.startswith((".", "_"))
        if is_folder and not is_hidden and fnmatchcase(folder, name):
            found.append(Location(above) / folder)
    return sorted(found)


def discover(  # noqa: PLR0913 - what is listed, what is known of it, and what is refused
    path: str,
    patterns: Sequence[str],
    read: Mapping[str, int | None],
    *,
    in_order: bool,
    min_age_ms: int,
    now_ms: int,
    counts_repeats: bool = False,
    seen: Seen | None = None,
    left: Sequence[FoundFile] = (),
) -> Discovery:
    """List a folder and classify its files.

    Args:
        path: The folder.
        patterns: See `matches`.
        read: Files read before, to their sizes in bytes; None if unknown.
        in_order: Refuse a new file below one that was read from its own folder (arrival mode).
        min_age_ms: Least time since a file was written.
        now_ms: The present time for ages, epoch ms.
        counts_repeats: A record that is read twice counts twice: refuse a file that was read and has moved to a folder below.
        seen: What earlier looks of this run have found; noted here. Default: all is looked at.
        left: Files that have left the folder and are to be read where they are.

    Raises:
        SourceReadError: the folder cannot be listed, a new file or an outside folder is reached by a symbolic link, or
            a name is not UTF-8.
        FileChangedError: a file that was read has another size, or has moved.
        LateFileError: `in_order`, and such a file exists.
    """
    seen = seen or Seen()
    began_s = seen.now_s()
    if seen.is_due():
        seen.forget()
    elif seen.found is not None and seen.has_no_news():
        return seen.found
    seen.found = None  # until this look has ended
    matching: list[FoundFile] = []
    unmatched: list[str] = []
    is_matching = matcher(patterns)
    files_there, elsewhere = _listed(path, seen)
    for file in _with_left(files_there, left):
        if is_matching(file.name):
            matching.append(file)
        else:
            unmatched.append(file.name)
    names = [file.name for file in matching]
    _refuse_undecodable(path, names)
    _refuse_changed(path, matching, read)
    new = [file for file in matching if file.name not in read]
    linked_folders = [name for name in elsewhere if _may_hold_matching(name, patterns)]
    _refuse_linked(path, [file.name for file in new], linked_folders)
    if counts_repeats:
        listed = {*unmatched, *names}
        _refuse_moved(path, new, read, listed)
    if in_order:
        _refuse_late(path, new, read)
        _refuse_unpadded(path, [file.name for file in new])
    files = new
    if min_age_ms:  # otherwise times are ignored: a store's clock may be ahead of ours
        newest_ms = now_ms - min_age_ms
        files = _old_enough(new, newest_ms, in_order=in_order)
    parts = tuple((file.name, file.size) for file in files)
    # A folder that is empty because its files were read and archived is fine.
    n_unmatched = seen.n_unmatched + len(unmatched)
    is_archived = bool(read) and not n_unmatched
    is_expected = bool(matching) or is_archived or bool(seen.names)
    found = Discovery(
        parts,
        streams=bool(parts),
        young=len(new) - len(parts),
        unmatched=n_unmatched,
        oldest_ms=min((file.modified_ms for file in new if file.modified_ms is not None), default=None),
        nothing_matched=None if is_expected else _nothing_matched(path, patterns, unmatched),
    )
    # Where records count twice, a file that was moved must be missed at its former place: then all names are looked at.
    if is_expected and not counts_repeats:
        seen.names.update(unmatched)
        seen.names.update(file.name for file in matching if file.name in read)
        seen.n_unmatched = n_unmatched
    seen.note(found, began_s)
    return found


def _with_left(there: list[FoundFile], left: Sequence[FoundFile]) -> list[FoundFile]:
    """Return the files of a folder and those that have left it, by name; one that is in both places counts where it was."""
    if not left:
        return there
    by_name = {file.name: file for file in (*left, *there)}
    return [by_name[name] for name in sorted(by_name)]


def missing(
    path: str, patterns: Sequence[str], read: Mapping[str, int | None], left: Sequence[FoundFile] = ()
) -> str | None:
    """Name files that were read and no longer exist; None if all exist.

    Args:
        path: The folder.
        patterns: See `matches`.
        read: Files read before.
        left: See `discover`.

    Raises:
        SourceReadError: see `discover`.
    """
    found = discover(
        path,
        patterns,
        {},
        in_order=False,
        min_age_ms=0,
        now_ms=0,
        left=left,
    )
    there = {name for name, _ in found.parts}
    names = sorted(read.keys() - there)
    if not names:
        return None
    n_missing = len(names)
    n_read = amount(len(read), "file")
    first = named(names, NAMED)
    return f"{n_missing} of {n_read} that were read are not in '{path}': {first}"


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a file matches one of some patterns; see `matches`."""
    if "*" in patterns:
        return lambda _: True
    # Patterns of a name as one expression: a folder may have a million names.
    of_names = [translate(pattern) for pattern in patterns if "/" not in pattern]
    of_paths = [pattern for pattern in patterns if "/" in pattern]
    is_name = re.compile("|".join(of_names)).match if of_names else None

    def is_matching(name: str) -> bool:
        if is_name is not None and is_name(_own_name(name)):
            return True
        return any(matches(name, pattern) for pattern in of_paths)

    return is_matching


def matches(name: str, pattern: str) -> bool:
    """Return whether a file matches a pattern: `*`, `?` and `[...]` as in a shell, none of them across folders.

    A pattern without a slash matches the file's name in any folder; one with a slash matches the whole path.

    Example:
        >>> matches("a/b.json", "*.json"), matches("a/b.json", "a/*.json"), matches("a/b.json", "/*.json")
        (True, True, False)
    """
    if "/" not in pattern:
        return fnmatchcase(_own_name(name), pattern)
    parts = name.split("/")
    globs = pattern.lstrip("/").split("/")
    if len(parts) != len(globs):
        return False
    return all(map(fnmatchcase, parts, globs))


def _may_hold_matching(folder: str, patterns: Sequence[str]) -> bool:
    """Return whether files in a folder, at any depth, may match one of the patterns."""
    parts = folder.split("/")
    for pattern in patterns:
        globs = pattern.lstrip("/").split("/")
        is_deeper = len(globs) > len(parts)
        if "/" not in pattern or (is_deeper and all(map(fnmatchcase, parts, globs))):
            return True
    return False


def _listed(path: str, seen: Seen | None = None) -> tuple[list[FoundFile], list[str]]:
    """List a folder: its files without those that were seen, and links to folders elsewhere, which are not entered."""
    links: list[str] = []
    seen = seen or Seen()
    try:
        files = Location(path).walk(links.append, seen.names, seen.folders.__setitem__)
    except OSError as error:
        refuse_absent(path)
        raise SourceReadError.of(
            f"The source folder '{path}' cannot be listed: {error}.",
            next_step="Make it readable and run again.",
        ) from error
    # A link to a folder of the source adds no files: each is read at its real place.
    elsewhere = [name for name in links if not Location(path).has_within(name)]
    return files, elsewhere


def _refuse_undecodable(path: str, names: Sequence[str]) -> None:
    """Refuse names that offsets cannot store and readers cannot open."""
    if not _is_utf_8("".join(names)):
        undecodable = [_escaped(name) for name in names if not _is_utf_8(name)]
        raise SourceReadError.of(
            f"In '{path}' files have names that are not UTF-8; nothing was read.",
            got=named(undecodable, NAMED),
            allowed="names in UTF-8",
            next_step="Rename them, with bash for instance: mv $'a\\xff.jsonl' a.jsonl",
        )


def _is_utf_8(name: str) -> bool:
    """Return whether a name is UTF-8: other names have lone surrogates in place of their bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(name: str) -> str:
    """Return a name with non-UTF-8 bytes escaped like in shell quotes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def changed_files(path: str, read: Mapping[str, int | None]) -> list[str]:
    """Return the names of files whose size differs from the size when they were read.

    Args:
        path: The folder.
        read: Files read before, to their sizes in bytes; None if unknown.

    Raises:
        SourceReadError: the folder cannot be listed.
    """
    files, _ = _listed(path)
    return [file.name for file in _changed(files, read)]


def _changed(files: Sequence[FoundFile], read: Mapping[str, int | None]) -> list[FoundFile]:
    return [file for file in files if read.get(file.name) not in (None, file.size)]


def _refuse_changed(path: str, files: Sequence[FoundFile], read: Mapping[str, int | None]) -> None:
    changed = [f"{file.name} with {file.size} bytes, read with {read[file.name]}" for file in _changed(files, read)]
    if changed:
        raise FileChangedError.of(
            f"In '{path}' files have changed since they were read; added records would be lost.",
            got=named(changed, NAMED),
            allowed="files that do not change after they were read",
            next_step="Restore them and put added records into new files; by sequence, 'ebbtide run --accept-changed-files' reads them again; or run 'ebbtide refresh' to read everything again.",
        )


def _refuse_linked(path: str, names: Sequence[str], folders: Sequence[str]) -> None:
    """Refuse links: a writer of the folder could make any file of the machine be read, and bad records keep their bytes.

    Args:
        path: The folder.
        names: New files; some may be links.
        folders: Links to folders elsewhere, whose files may match.
    """
    linked = sorted([*folders, *(name for name in names if Location(path).is_linked(name))])
    if linked:
        raise linked_error(path, linked)


def linked_error(path: str, linked: Sequence[str]) -> SourceReadError:
    """Return the error for files and folders that are reached by a symbolic link."""
    return SourceReadError.of(
        f"In '{path}' files or folders are reached by symbolic links; they were not read.",
        got=named(linked, NAMED),
        allowed="files of the folder itself",
        next_step="Put the files there, or hard links to them, or let source.path name the folder that the links lead to.",
    )


def _refuse_moved(
    path: str,
    new: Sequence[FoundFile],
    read: Mapping[str, int | None],
    listed: Collection[str],
) -> None:
    """Refuse new files with the name and size of a file that was read from a folder above and is gone from there."""
    # Sibling folders, such as partitions or days, may have different files with the same name and size.
    gone: dict[tuple[str, int], list[str]] = {}
    for name, size in read.items():
        if size and name not in listed:
            file_read = _own_name(name), size
            gone.setdefault(file_read, []).append(name)
    moved = []
    for file in new:
        found = _own_name(file.name), file.size
        for name in gone.get(found, ()):
            folder = name.removesuffix(_own_name(name))
            if file.name.startswith(folder):
                moved.append(f"{file.name}, read as {name}")
    if moved:
        raise FileChangedError.of(
            f"In '{path}' files that were read are gone, and files with their names and sizes are in folders below. Records read twice would count twice.",
            got=named(moved, NAMED),
            allowed="files that stay where they were read, or leave the source's folder",
            next_step="Move them back, out of the folder, or to one below whose name begins with '_', which is not read; give a file that is new another name; or run 'ebbtide refresh' to read everything again.",
        )


def _refuse_late(path: str, new: Sequence[FoundFile], read: Mapping[str, int | None]) -> None:
    newest_read: dict[str, str] = {}
    for name in read if new else ():
        folder = _folder(name)
        newest_read[folder] = max(name, newest_read.get(folder, ""))
    late = []
    for file in new:
        folder = _folder(file.name)
        newest = newest_read.get(folder, "")
        if file.name < newest:
            late.append(file.name)
    if late:
        folder = _folder(late[0])
        newest = newest_read[folder]
        raise LateFileError.of(
            f"In '{path}' a file has appeared below '{newest}', which was already read.",
            got=named(late, NAMED),
            allowed="new files with greater names than those read from their folder, since order: arrival follows names",
            next_step=f"Rename it above '{newest}', or run 'ebbtide refresh' to read everything again.",
        )


def _refuse_unpadded(path: str, names: Sequence[str]) -> None:
    """Refuse files whose last number says another order than their names.

    Names are compared with their neighbours: of names that differ in their last number only, a shorter one behind a longer one
    has the smaller number. Numbers before it, such as a partition of Kafka, order nothing.

    Args:
        path: The folder.
        names: The files, in the order of their names.
    """
    for name, following in pairwise(names):
        if len(name) <= len(following):
            continue
        parts, further = _LAST_NUMBER.fullmatch(name), _LAST_NUMBER.fullmatch(following)
        are_alike = parts and further and parts.group("before", "behind") == further.group("before", "behind")
        if are_alike:
            raise LateFileError.of(
                f"In '{path}' files are numbered without leading zeros: their names say another order than their numbers. Nothing was read.",
                got=f"{name} before {following}",
                allowed="names in the order of their writing, since order: arrival and order: upsert follow names",
                next_step="Rename them with leading zeros, and let the writer pad its numbers (Aiven's sinks: {{start_offset:padding=true}}); "
                "or order by a sequence.",
            )


def _old_enough(new: Sequence[FoundFile], newest_ms: int, *, in_order: bool) -> list[FoundFile]:
    """Leave out young files; in order, also later files of the same folder, or the young one would be late."""
    files = []
    held_folders = set()
    for file in new:
        folder = _folder(file.name)
        is_young = file.modified_ms is not None and file.modified_ms > newest_ms
        if is_young:
            held_folders.add(folder)
        is_held = in_order and folder in held_folders
        if not is_young and not is_held:
            files.append(file)
    return files


def _nothing_matched(path: str, patterns: Sequence[str], unmatched: Sequence[str]) -> str:
    content = (
        f"what does not match: {printable(named(list(map(_escaped, unmatched)), NAMED))}"
        if unmatched
        else "it has no files"
    )
    allowed = ", ".join(patterns)
    return (
        f"No file in '{path}' or its folders matches source.pattern ({allowed}); {content}. "
        "Names that begin with '_' or '.' are never read."
    )


def _folder(name: str) -> str:
    folder, _, _ = name.rpartition("/")
    return folder


def _own_name(name: str) -> str:
    _, _, own_name = name.rpartition("/")
    return own_name


def changed_while_read(path: str, name: str, *, listed: int, found: int | None) -> FileChangedError:
    """Return the error for a file whose size is not the one that it was listed with."""
    location = Location(path) / name
    return FileChangedError.of(
        f"The source file '{location}' has changed since it was listed; nothing of the step was committed.",
        got="no file" if found is None else f"{found} bytes",
        allowed=f"the {listed} bytes that were listed",
        next_step="Run again when it is complete. Put files in place by renaming them, or set source.min_age.",
    )
