"""Backlog of a pipeline: records in its source that no step has read, by the source and the tables' logs. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Self

from ebbtide.amounts import amount, in_words
from ebbtide.runtime import AtRest, Plan
from ebbtide.sources import Backlog, Discovery, FileSource, Span
from ebbtide.spec import Pipeline, UpsertPipelines


@dataclass(frozen=True)
class Lag:
    """The backlog of a pipeline.

    Args:
        pipeline: Its name.
        backlog: Files, bytes and records that wait.
        file_behind_ms: Age of the oldest waiting file, ms; None if none waits or its age is unknown.
        behind_ms_of: Partition to the age of its oldest waiting or held record, ms; 0 if none waits. Partitions of unknown age are left out.
        fingerprint: A digest that changes when records arrive or are read.
    """

    pipeline: str
    backlog: Backlog
    file_behind_ms: int | None
    behind_ms_of: Mapping[int, int]
    fingerprint: str

    @classmethod
    def of(cls, spec: Pipeline, root: str, clock_ms: int) -> Lag:
        """Measure a pipeline's backlog.

        Args:
            root: Folder of all pipelines' tables.
            clock_ms: The time, epoch ms.

        Raises:
            TableMismatchError: see `Diagnosis`.
            SourceReadError: the source cannot be read.
            SourceUnavailableError: it does not answer.
            SourceLostError, FileChangedError, LateFileError: the next run would refuse it.
        """
        return cls.at_rest(AtRest.of(spec, root), clock_ms)

    @classmethod
    def at_rest(cls, found: AtRest, clock_ms: int) -> Lag:
        """Measure the backlog of a pipeline that was looked at; errors as `of`."""
        return _lag(found.plan, found.discovered(clock_ms), clock_ms)

    @property
    def behind_ms(self) -> int | None:
        """Age of the oldest waiting record or file, ms; None if none waits or its age is unknown."""
        ages_ms = [] if self.file_behind_ms is None else [self.file_behind_ms]
        for partition, age_ms in self.behind_ms_of.items():
            if self.backlog.is_behind(partition):
                ages_ms.append(age_ms)
        return max(ages_ms, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return the backlog as plain values; None for values that the source does not have."""
        backlog = self.backlog
        return {
            "pipeline": self.pipeline,
            "files": backlog.files,
            "bytes": backlog.bytes,
            "records": backlog.total_records,
            "partitions": dict(backlog.records),
            "held": dict(backlog.held),
            "behind_ms": self.behind_ms,
            "behind_ms_of": dict(self.behind_ms_of),
        }

    @property
    def is_empty(self) -> bool:
        """True if nothing waits."""
        return not any(self._parts())

    def text(self) -> str:
        """Describe the backlog."""
        parts = ", ".join(self._parts())
        return parts or "nothing waits"

    def line(self) -> str:
        """Return the backlog as a line for a terminal."""
        return f"{self.pipeline}: {self.text()}"

    def _parts(self) -> Iterator[str]:
        backlog = self.backlog
        if backlog.files and backlog.bytes is None:
            tables = amount(backlog.files, "table")
            yield f"{tables} changed"
        elif backlog.files:
            files = amount(backlog.files, "file")
            n_bytes = amount(backlog.bytes or 0, "byte")
            yield f"waiting: {files}, {n_bytes}"
        elif backlog.is_unknown:
            yield "known once a run asks the query of Spark"
        yield from _by_partition("waiting", backlog.records)
        yield from _by_partition("held by an open transaction", backlog.held)
        if self.behind_ms is not None:
            yield f"the oldest for {in_words(self.behind_ms)}"


def _by_partition(what: str, n_records_of: Mapping[int, int]) -> Iterator[str]:
    """Yield the number of records, and the share of each partition, in words; nothing if there is none.

    Args:
        what: State of the records.
        n_records_of: Partition to its number of records.
    """
    shares = []
    for partition, n_records in sorted(n_records_of.items()):
        if n_records:
            shares.append(f"{partition}: {n_records:,}")
    if shares:
        total = sum(n_records_of.values())
        records = amount(total, "record")
        listed = ", ".join(shares)
        yield f"{what}: {records} (partition {listed})"


def lag_of(plan: Plan, found: Discovery, last_read: Span | None, clock_ms: int) -> Lag:
    """Measure a run's backlog from its last discovery, without reading tables.

    Args:
        found: The run's last discovery, without records read since.
        last_read: The last batch of a source that is read by position: the source is asked for later records. None:
            there is none.
        clock_ms: The time, epoch ms.

    Raises:
        EbbtideError: errors of the source, as in `Lag.of`.
    """
    if last_read is not None:
        found = plan.source.discover({}, clock_ms, last_read)
    return _lag(plan, found, clock_ms)


def _lag(plan: Plan, found: Discovery, clock_ms: int) -> Lag:
    backlog = plan.source.backlog(found)
    ages_ms = _ages_ms(backlog, clock_ms)
    fingerprint = _fingerprint(found)
    oldest_ms = backlog.oldest_file_ms
    file_behind_ms = None if oldest_ms is None else max(clock_ms - oldest_ms, 0)
    return Lag(plan.spec.name, backlog, file_behind_ms, ages_ms, fingerprint)


def _fingerprint(found: Discovery) -> str:
    """Return a digest of a discovery, which changes when there is something else to read."""
    position = Span.stored_form(found.span)
    text = repr((found.parts, position))
    digest = sha256(text.encode())
    return digest.hexdigest()[:16]


def _ages_ms(backlog: Backlog, clock_ms: int) -> dict[int, int]:
    """Return partition to the age of its oldest waiting record, ms; 0 if none waits.

    A partition that is behind, and whose oldest record has no known time, has no age.
    """
    ages_ms = {}
    for partition in backlog.records:
        if not backlog.is_behind(partition):
            ages_ms[partition] = 0
    for partition, oldest_ms in backlog.oldest_ms.items():
        # A record's time is set by its producer, whose clock may be ahead of this one.
        ages_ms[partition] = max(clock_ms - oldest_ms, 0)
    return ages_ms


@dataclass(frozen=True)
class UnreadTopics:
    """Topics or folders that match the pattern of several pipelines but that none of them reads.

    Args:
        several: Their name.
        pattern: Pattern of expected sources.
        topics: The topics, or folders, that no pipeline reads.
        listed: Topics or folders.
    """

    several: str
    pattern: str
    topics: tuple[str, ...]
    listed: str = "topics"

    @classmethod
    def of(cls, several: UpsertPipelines) -> Self | None:
        """Return the topics or folders that none of several pipelines reads; None if they name no pattern.

        Args:
            several: The pipelines.

        Raises:
            SourceReadError: the brokers refuse the client.
            SourceUnavailableError: they do not answer.
        """
        pattern = several.pattern
        if pattern is None:
            return None
        first, *_ = several.pipelines
        if several.listed == "folders":
            wanted = set(FileSource.folders_like(pattern))
        else:
            source = Plan("", first).positioned_source  # all read of the same brokers
            wanted = set(source.names_like(pattern))
        unread = wanted - several.places_read
        for ignored in several.ignored:
            unread = {place for place in unread if not _is_named(place, ignored)}
        by_name = tuple(sorted(unread))
        return cls(several.name, pattern, by_name, several.listed)

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "pipelines": self.several,
            self.listed: self.pattern,
            f"unread_{self.listed}": list(self.topics),
        }

    def text(self) -> str:
        """Return them in words."""
        if not self.topics:
            return f"all {self.listed} like '{self.pattern}' are read"
        names = ", ".join(self.topics)
        unread = f"{self.listed} like '{self.pattern}' that no pipeline reads: {names}"
        return f"{unread}; ebbtide new {self.several} prints the lines to add"

    def line(self) -> str:
        """Return the topics as a line for a terminal."""
        return f"{self.several}: {self.text()}"


def _is_named(place: str, pattern: str) -> bool:
    """Return whether the last name of a topic or folder fits a pattern."""
    _, _, name = place.rpartition("/")
    return fnmatchcase(name, pattern)
