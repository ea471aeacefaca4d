"""A folder of files as a source. Listing it takes no Spark; `ebbtide.sources._files` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ebbtide.errors import ConfigError
from ebbtide.sources import _listing as listing
from ebbtide.sources._after_read import AfterRead, Read
from ebbtide.sources._source import Backlog, BatchPlanner, Discovery, News, Source, SourceBatch
from ebbtide.sources._span import Span
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor

BYTES_IN_DRIVER = 4 * 2**20
"""Maximum bytes of files that the driver reads itself: a Spark job costs more."""


@dataclass(frozen=True)
class FileSource(Source):
    """A folder of JSON-lines files; each is read once, in the order of their names.

    Args:
        path: The folder.
        patterns: Files to read; see `ebbtide.sources._listing.matches`.
        in_order: Refuse a new file below one that was read from its own folder (arrival mode).
        counts_repeats: A record that is read twice counts twice (arrival mode, without positions); see `ebbtide.sources._listing.discover`.
        min_age_ms: Least time since a file was written.
        max_files_per_step: Files that one step reads.
        max_bytes_per_step: Stored bytes that one step reads; a larger file is a separate step.
        after_read: Has files leave that were read; None: they stay.
    """

    path: str
    patterns: tuple[str, ...] = listing.PATTERNS
    in_order: bool = False
    counts_repeats: bool = False
    min_age_ms: int = 0
    max_files_per_step: int = 1000
    max_bytes_per_step: int = 256 * 2**20
    after_read: AfterRead | None = None
    _seen: listing.Seen = field(default_factory=listing.Seen, init=False, repr=False, compare=False)

    @staticmethod
    def folders_like(pattern: str) -> list[str]:
        """Return the folders that a pattern with `*`, `?` and `[...]` in its last name matches; hidden ones (`.`, `_`) are left out.

        Args:
            pattern: Location of the folder above them, and the pattern of their names.
        """
        return listing.folders_like(pattern)

    def after_reading(self, pipeline: str, move_to: str | None, after_ms: int) -> FileSource:
        """Return it with files that leave once they are read; see `ebbtide.sources._after_read`."""
        return replace(self, after_read=AfterRead(self.path, pipeline, move_to, after_ms))

    def refuse_absent(self) -> None:
        """See `Source`."""
        listing.refuse_absent(self.path)

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Span | None = None,
    ) -> Discovery:
        """See `Source` and `ebbtide.sources._listing.discover`."""
        return self._discover(read, now_ms, None)

    def look(self, read: Mapping[str, int | None], now_ms: int, since: Span | None = None) -> Discovery:
        """See `Source`: between looks at all files only names are looked at that are new."""
        return self._discover(read, now_ms, self._seen)

    def news(self) -> News | None:
        """See `Source`."""
        return Location(self.path).news()

    def _discover(self, read: Mapping[str, int | None], now_ms: int, seen: listing.Seen | None) -> Discovery:
        left = [] if self.after_read is None else self.after_read.left(read)
        return listing.discover(
            self.path,
            self.patterns,
            read,
            in_order=self.in_order,
            min_age_ms=self.min_age_ms,
            now_ms=now_ms,
            counts_repeats=self.counts_repeats,
            seen=seen,
            left=left,
        )

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of all files, in a run's reading order.

        Raises:
            ConfigError: there are files, but none matches.
        """
        from ebbtide.sources._files import read_lines

        found = self.discover({}, now_ms=0)
        if found.nothing_matched:
            raise ConfigError.of(found.nothing_matched)
        for number, (name, size) in enumerate(found.parts):
            for batch in read_lines(self.path, name, number, size=size):
                yield from batch["value"].to_pylist()

    def unchanged(self, read: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return the files that were read, without those that have changed since."""
        changed = set(listing.changed_files(self.path, read))
        return {name: size for name, size in read.items() if name not in changed}

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """See `Source`: files that were moved away since, but for those in the archive."""
        left = [] if self.after_read is None else self.after_read.archived()
        return listing.missing(self.path, self.patterns, read, left)

    @property
    def stays_ms(self) -> int | None:
        """See `Source`."""
        return None if self.after_read is None else self.after_read.after_ms

    def leaving(self, read: Read) -> list[str]:
        """See `Source`."""
        return [] if self.after_read is None else list(self.after_read.leaving(read))

    def leave(self, parts: Sequence[str], read: Read) -> None:
        """See `Source`."""
        if self.after_read is not None and parts:
            self.after_read.leave(parts, read)

    def forget_lost(self) -> None:
        """See `Source`."""
        if self.after_read is not None:
            self.after_read.forget()

    def backlog(self, found: Discovery) -> Backlog:
        """See `Source`."""
        sizes = [size or 0 for _, size in found.parts]
        return Backlog(files=len(sizes), bytes=sum(sizes), oldest_file_ms=found.oldest_ms)

    def planner(self, found: Discovery, location: str) -> BatchPlanner:
        """See `Source`."""
        from ebbtide.sources._files import FilePlanner

        return FilePlanner(found.parts, self.max_files_per_step, self.max_bytes_per_step)

    def batch(self, executor: Executor, offset: Any, max_record_bytes: int) -> SourceBatch:
        """See `Source`: the offset names the files, which the tasks read directly."""
        from ebbtide.sources._files import FileRecords

        files = offset["files"]
        sizes = [size for _, size in files]
        n_bytes = sum(filter(None, sizes))
        is_little = None not in sizes and n_bytes <= BYTES_IN_DRIVER
        folders = {} if self.after_read is None else {name: self.after_read.folder_of(name) for name, _ in files}
        records = FileRecords(executor, self.path, files, max_record_bytes, is_little=is_little, folders=folders)
        return SourceBatch(records, parts=files)
