"""Backlog of a pipeline: records in its source that no step has read, by the source and the tables' logs. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Snapshot
from ebbtide.ledger.facts import Head
from ebbtide.runtime.belonging import OwnTables, refuse_misfits_at_rest
from ebbtide.runtime.kinds import positioned_source
from ebbtide.runtime.plan import Plan
from ebbtide.sources.positioned import matching
from ebbtide.sources.source import Backlog
from ebbtide.sources.span import span_of, stored_form_of
from ebbtide.spec.pipeline import Pipeline
from ebbtide.spec.several import UpsertPipelines
from ebbtide.tables.state.layout import files_noted


@dataclass(frozen=True)
class Lag:
    """The backlog of a pipeline.

    Args:
        pipeline: Its name.
        backlog: Files, bytes and records that wait.
        behind_ms_of: Partition to the age of its oldest waiting or held record, ms; 0 if none waits. Partitions of unknown age are left out.
        fingerprint: Changes whenever records arrive or are read.
    """

    pipeline: str
    backlog: Backlog
    behind_ms_of: Mapping[int, int]
    fingerprint: str

    @property
    def behind_ms(self) -> int | None:
        """Age of the oldest waiting record, ms; None if none waits or its age is unknown."""
        waits = [ms for partition, ms in self.behind_ms_of.items() if self.backlog.is_behind(partition)]
        return max(waits, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return the backlog as plain values; None for what the source does not have."""
        return {
            "pipeline": self.pipeline,
            "files": self.backlog.files,
            "bytes": self.backlog.bytes,
            "records": self.backlog.total_records,
            "partitions": dict(self.backlog.records),
            "held": dict(self.backlog.held),
            "behind_ms": self.behind_ms,
            "behind_ms_of": dict(self.behind_ms_of),
        }

    def text(self) -> str:
        """Write it for people."""
        return ", ".join(self._parts()) or "nothing waits"

    def line(self) -> str:
        """Write it for a terminal."""
        return f"{self.pipeline}: {self.text()}"

    def _parts(self) -> Iterator[str]:
        backlog = self.backlog
        if backlog.files and backlog.bytes is None:
            yield f"{amount(backlog.files, 'table')} changed"
        elif backlog.files:
            yield f"waiting: {amount(backlog.files, 'file')}, {amount(backlog.bytes or 0, 'byte')}"
        for what, records in (("waiting", backlog.records), ("held by an open transaction", backlog.held)):
            shares = [f"{number}: {n:,}" for number, n in sorted(records.items()) if n]
            if shares:
                yield f"{what}: {amount(sum(records.values()), 'record')} (partition {', '.join(shares)})"
        if self.behind_ms is not None:
            yield f"the oldest for {self.behind_ms / 1000:,.1f} s"


def lag(spec: Pipeline, root: str, clock_ms: int) -> Lag:
    """Measure how far a pipeline is behind its source.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.

    Raises:
        TableMismatchError, CheckpointMismatchError: see `ebbtide.runtime.belonging`.
        SourceReadError: the source cannot be read.
        SourceUnavailableError: it does not answer.
        SourceLostError, FileChangedError, LateFileError: the next run would refuse it.
    """
    plan = Plan.under(root, spec)
    commit = plan.state.last()
    head = Head.at_rest(commit)
    snapshot = Snapshot.read(plan.at("state"))
    refuse_misfits_at_rest(plan, OwnTables(plan), head, snapshot)
    files = snapshot.files.values() if snapshot else ()
    files_read = files_noted(plan.at("state"), files)
    since = plan.follows_on(span_of(head.facts.source.position))
    found = plan.source.discover(files_read, clock_ms, since)
    backlog = plan.source.backlog(found)
    behind_ms_of = {partition: 0 for partition in backlog.records if not backlog.is_behind(partition)}
    for partition, oldest_ms in backlog.oldest_ms.items():
        behind_ms_of[partition] = max(clock_ms - oldest_ms, 0)
    found_text = repr((found.parts, stored_form_of(found.span)))
    return Lag(spec.name, backlog, behind_ms_of, sha256(found_text.encode()).hexdigest()[:16])


@dataclass(frozen=True)
class UnreadTopics:
    """Topics that match the pattern of several pipelines, and that none of them reads.

    Args:
        several: Their name.
        pattern: Pattern of the topics to read.
        topics: The topics that no pipeline reads.
    """

    several: str
    pattern: str
    topics: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the topics as plain values."""
        return {"pipelines": self.several, "topics": self.pattern, "unread_topics": list(self.topics)}

    def text(self) -> str:
        """Write it for people."""
        if not self.topics:
            return f"all topics like '{self.pattern}' are read"
        listed = ", ".join(self.topics)
        return f"topics like '{self.pattern}' that no pipeline reads: {listed}"

    def line(self) -> str:
        """Write it for a terminal."""
        return f"{self.several}: {self.text()}"


def unread_topics(several: UpsertPipelines) -> UnreadTopics | None:
    """Return the topics that none of several pipelines reads; None if they name no pattern.

    Args:
        several: The pipelines.

    Raises:
        SourceReadError: the brokers refuse the client.
        SourceUnavailableError: they do not answer.
    """
    if several.topics is None:
        return None
    there = positioned_source(several.pipelines[0]).names()
    left = set(matching(there, several.topics)) - several.topics_read
    for pattern in several.ignored_topics:
        left.difference_update(matching(left, pattern))
    return UnreadTopics(several.name, several.topics, tuple(sorted(left)))
