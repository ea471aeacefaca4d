"""Files of a folder leave it once they are read: they move to an archive, or are deleted.

Before files leave, `_after_read/PIPELINE.json` in the source's folder says which one is the last of them: `{"ebbtide": 1, "step": 12,
"name": "0012.jsonl"}`. A state that has not read that file is older than the leaving: it was restored, or begins again. Then the archive
is listed, and read; deleted files are refused. So other runs read one small file, however much has left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ebbtide.errors import SourceLostError, StoredFormatError
from ebbtide.storage import FoundFile, Location

FOLDER = "_after_read"
"""Folder of the notes: names that begin with `_` are never read as records."""
FORMAT = 1
Read = Mapping[str, tuple[int | None, int]]
"""Name of each file that was read, to its bytes and the step that read it."""


@dataclass(frozen=True)
class AfterRead:
    """The leaving of the files of one pipeline.

    Args:
        path: The source's folder.
        pipeline: Name of the pipeline.
        move_to: The archive; None: files are deleted.
        after_ms: How long ago the step that read a file must have been made.
    """

    path: str
    pipeline: str
    move_to: str | None
    after_ms: int

    @property
    def _note(self) -> Location:
        return Location(self.path) / f"{FOLDER}/{self.pipeline}.json"

    def last_left(self) -> str | None:
        """Return the name of the file that has left last; None: none has.

        Raises:
            StoredFormatError: a newer release has noted it.
        """
        raw = self._note.read_bytes()
        if raw is None:
            return None
        noted = json.loads(raw)
        if noted["ebbtide"] != FORMAT:
            raise StoredFormatError.of(
                f"A newer Ebbtide wrote '{self._note}': use that release or newer.", got=f"format {noted['ebbtide']}"
            )
        return str(noted["name"])

    def archived(self) -> list[FoundFile]:
        """Return the files of the archive; none if files are deleted, or if it does not exist."""
        try:
            return [] if self.move_to is None else Location(self.move_to).walk()
        except FileNotFoundError:
            return []

    def left(self, read: Mapping[str, int | None]) -> list[FoundFile]:
        """Return the files that have left and that a state has not read: none if it has read the last of them.

        Args:
            read: Files that the state has read.

        Raises:
            SourceLostError: they are gone: deleted, or not in the archive.
        """
        last = self.last_left()
        if last is None or last in read:
            return []
        found = self.archived()
        if any(file.name == last for file in found) or (Location(self.path) / last).is_file():
            return found
        raise SourceLostError.of(
            f"Files have left '{self.path}' by source.after_read that this state of '{self.pipeline}' has not read.",
            got=f"no '{last}', the last of them, {self._where}; the state was restored from before, or begins again",
            allowed="the state that has read them, or the files",
            next_step="Restore a newer copy of the tables, or the files under their names; or run 'ebbtide refresh --accept-loss' to rebuild"
            " the tables from the remaining ones, and note the loss.",
        )

    @property
    def _where(self) -> str:
        return "there" if self.move_to is None else f"there or in '{self.move_to}'"

    def folder_of(self, name: str) -> str:
        """Return the folder that a file is in: the source's, or the archive."""
        is_there = self.move_to is None or (Location(self.path) / name).is_file()
        return self.path if is_there or self.move_to is None else self.move_to

    def leaving(self, read: Read) -> Iterator[str]:
        """Yield the files that leave, by the steps that read them; changed ones stay, and the next run refuses them.

        Args:
            read: Files that may leave.
        """
        there = {file.name: file.size for file in Location(self.path).walk()}
        in_order = sorted(read, key=lambda name: (read[name][1], name))
        for name in in_order:
            size, _ = read[name]
            if name in there and size in (None, there[name]):
                yield name

    def leave(self, names: Sequence[str], read: Read) -> None:
        """Have files leave; the next vacuum continues where a process was killed.

        Args:
            names: The files, in the order of `leaving`.
            read: See `leaving`.
        """
        last = names[-1]
        _, step = read[last]
        self._note_last(last, step)
        for name in reversed(names):  # the noted one first: while it is there, none has been deleted
            file = Location(self.path) / name
            if self.move_to is None:
                file.delete()
            else:
                file.move_to(Location(self.move_to) / name)

    def forget(self) -> None:
        """Forget what is lost: a user has accepted that. What is in the archive still counts."""
        found = self.archived()
        if found:
            self._note_last(found[-1].name, 0)
        else:
            self._note.delete()

    def _note_last(self, name: str, step: int) -> None:
        note = {"ebbtide": FORMAT, "step": step, "name": name}
        self._note.replace_bytes(json.dumps(note, ensure_ascii=False).encode())
