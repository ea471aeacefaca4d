"""The frontier of a pipeline after each step: its clock, watermark, floor and the offsets it has read. Pure.

The next frontier is a function of the last one, the clock and the totals of a batch. All drivers call the same functions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import Field

from ebbtide.changelog import Intervals, OffsetRanges
from ebbtide.entries import Step
from ebbtide.facts import Facts
from ebbtide.model._clock import Reading, next_clock
from ebbtide.model._stored import StoredDocument

RecordOffset = tuple[str, int]
"""`source/partition` and the offset in it."""
Order = tuple[int, ...]
"""Place in the order of arrival: step, part, position."""
LogPlace = tuple[int, int]
"""Number of a log's file, and the position in it."""
MOST_LOGS = 100
"""Largest number of logs remembered; further logs are not compared."""


@dataclass(frozen=True)
class StepRules:
    """The settings of a pipeline that decide its frontier.

    Args:
        max_clock_jump_ms: Largest advance of processing time in one step.
        allowed_delay_ms: Distance of the watermark behind the greatest event time.
        ignore_downtime_over_ms: A longer pause between two runs is downtime; None: no pause is.
        leaves_orphans: The sink may keep rows that the state forgets.
    """

    max_clock_jump_ms: int
    allowed_delay_ms: int = 0
    ignore_downtime_over_ms: int | None = None
    leaves_orphans: bool = False

    def clock_after(
        self,
        last: Frontier | None,
        wall_ms: int,
        started_ms: int,
        paused_ms: int = 0,
    ) -> Reading:
        """Read the clock of a step that follows the last one.

        Args:
            last: The last frontier; None before the first step.
            wall_ms: The wall clock, epoch ms.
            started_ms: Start of the run of that step, epoch ms.
            paused_ms: Total time of pauses before the step.
        """
        last_clock = None if last is None else last.clock
        return next_clock(
            last_clock,
            wall_ms,
            started_ms=started_ms,
            ignore_over_ms=self.ignore_downtime_over_ms,
            max_jump_ms=self.max_clock_jump_ms,
            paused_ms=paused_ms,
        )

    def next_frontier(
        self,
        last: Frontier | None,
        clock: Reading,
        batch: BatchSummary | None = None,
        log_begins: tuple[int, ...] = (),
    ) -> Frontier:
        """Return the frontier of a pipeline after its next step.

        Args:
            last: The frontier before; None before the first step.
            clock: The clock of the step.
            batch: Totals over the records that it reads; None if it reads none.
            log_begins: For a first step: see `Frontier.log_begins`.

        Example:
            >>> rules = StepRules(max_clock_jump_ms=1000)
            >>> first = rules.next_frontier(None, Reading(0, 0), BatchSummary(max_event_ms=70))
            >>> second = rules.next_frontier(first, Reading(5, 5))
            >>> first.watermark_ms, second.watermark_ms
            (None, 70)
        """
        read = batch or BatchSummary()
        had_orphans = last is not None and last.orphans
        last_view = None if last is None else last.view
        last_read_ms = None if last is None else last.read_ms
        offsets = _offsets_read(last).with_ranges(read.offsets)
        return Frontier(
            clock=clock,
            watermark_ms=self.watermark_after(last),
            max_event_ms=_max_event_after(last, read),
            floor=_floor_after(last, read),
            log_begins=last.log_begins if last else log_begins,
            orphans=self.leaves_orphans or had_orphans,
            offsets=dict(offsets.read),
            total_records=_total(last, "records", read.counts.records),
            total_quarantined=_total(last, "quarantined", read.counts.bad),
            read_ms=clock.wall_ms if read.counts.records else last_read_ms,
            snapshot=_snapshot_after(last, read),
            logs=_logs_after(last.logs if last else (), read.logs),
            view=read.view or last_view,
        )

    def watermark_after(self, last: Frontier | None) -> int | None:
        """Return the watermark of the step after `last`: it follows from the events of earlier steps, and only rises.

        Args:
            last: The last frontier; None before the first step.
        """
        if last is None:
            return None
        # Events of the step itself do not count; otherwise its result would depend on the batch boundaries.
        candidates = []
        if last.watermark_ms is not None:
            candidates.append(last.watermark_ms)
        if last.max_event_ms is not None:
            candidates.append(last.max_event_ms - self.allowed_delay_ms)
        return max(candidates, default=None)


class TableVersion(Facts):
    """A version of a table that a view reads."""

    id: str = Field(description="The table's id in Delta's metadata. A table that replaces it has another id.")
    version: int = Field(description="The version.")
    commit: str = Field(
        default="",
        description="Hash of that version's commit. A table restored from a copy and written again has another hash. Empty in steps of older releases.",
    )


class ViewPosition(Facts):
    """The versions that a materialized view was computed from."""

    query: str = Field(description="Hash of its query.")
    inputs: dict[str, TableVersion] = Field(description="Name of an input to the version of its table.")

    @classmethod
    def read(cls, document: Mapping[str, Any], location: str) -> Self:
        """Read a stored position.

        Args:
            document: The stored document.
            location: Its location, for errors.

        Raises:
            StoredFormatError, DamagedFileError: see `StoredDocument.read`.
        """
        return StoredDocument("The position of a view", location).read(cls, document)


class WholeSnapshot(Facts):
    """A snapshot of the source's whole table. A row missing from it was deleted before, even if the delete never arrived.

    Its rows have a position in the source's log. Rows of an incremental snapshot do not belong to it.
    """

    lowest: tuple[int, ...] = Field(description="Least sequence of its rows.")
    highest: tuple[int, ...] = Field(description="Greatest sequence of its rows.")
    has_begun: bool = Field(description="Its first row has come.")
    has_ended: bool = Field(description="Its last row has come.")

    def follows(self, earlier: WholeSnapshot) -> bool:
        """Return whether it is the next snapshot, not a part of an earlier one. An interrupted snapshot begins again."""
        is_next = earlier.has_ended or self.has_begun
        return is_next and self.lowest > earlier.highest

    def together(self, other: WholeSnapshot) -> WholeSnapshot:
        """Merge two parts of one snapshot."""
        return WholeSnapshot(
            lowest=min(self.lowest, other.lowest),
            highest=max(self.highest, other.highest),
            has_begun=self.has_begun or other.has_begun,
            has_ended=self.has_ended or other.has_ended,
        )

    @staticmethod
    def joined(parts: Iterable[WholeSnapshot]) -> tuple[WholeSnapshot, ...]:
        """Join parts of snapshots, in any order: rows from a beginning up to the next end are one snapshot.

        Args:
            parts: Facts about some rows each.

        Example:
            >>> parts = [WholeSnapshot(lowest=(n,), highest=(n,), has_begun=n == 5, has_ended=True) for n in (5, 3)]
            >>> [part.lowest for part in WholeSnapshot.joined(parts)]
            [(3,), (5,)]
        """
        joined: list[WholeSnapshot] = []
        for part in sorted(parts, key=lambda each: each.highest):
            if joined and not part.follows(joined[-1]):
                joined[-1] = joined[-1].together(part)
            else:
                joined.append(part)
        return tuple(joined)


class LogPart(Facts):
    """Facts about a log that some of its records state."""

    connector: str = Field(description="Logical name of the connector, source.name; empty if records have none.")
    epoch: int = Field(description="Number of times that the source's log had restarted before.")
    base: str = Field(description="Name of the log's files, without number.")
    server: str = Field(description="The server that executed the changes; empty for snapshot rows, or if unknown.")
    lowest: LogPlace = Field(description="Lowest place of the records.")
    highest: LogPlace = Field(description="Greatest place.")
    oldest_ms: int | None = Field(description="Least event time, epoch ms.")
    newest_ms: int | None = Field(description="Greatest event time, epoch ms.")

    @property
    def log(self) -> tuple[str, int]:
        """The connector, and the epoch of its log."""
        return self.connector, self.epoch

    @property
    def place_text(self) -> str:
        """The place where it begins, in words."""
        number, position = self.lowest
        return f"{self.base}.{number:06d} from position {position} on"

    def together(self, other: LogPart) -> LogPart:
        """Merge two parts of one log and server."""
        return self.model_copy(
            update={
                "lowest": min(self.lowest, other.lowest),
                "highest": max(self.highest, other.highest),
                "oldest_ms": min(_known(self.oldest_ms, other.oldest_ms), default=None),
                "newest_ms": max(_known(self.newest_ms, other.newest_ms), default=None),
            }
        )


class SourceLog(Facts):
    """The part of a source's log that was read. Stored with each step.

    The binary log of MySQL and MariaDB consists of one server's files, with one name and rising numbers. Places in another
    server's log cannot be compared with these. The connector's name identifies the server that it reads.
    """

    connector: str = Field(description="Logical name of the connector, source.name; empty if records have none.")
    epoch: int = Field(description="Number of times that the source's log had restarted before.")
    bases: tuple[str, ...] = Field(description="Names of the log's files, without numbers.")
    servers: tuple[str, ...] = Field(description="Servers that executed its changes.")
    highest: LogPlace = Field(description="Highest place that was read.")
    newest_ms: int | None = Field(description="Greatest event time that was read, epoch ms.")

    @classmethod
    def of(cls, part: LogPart) -> Self:
        """Begin a log with its first records."""
        return cls(
            connector=part.connector,
            epoch=part.epoch,
            bases=(part.base,),
            servers=(part.server,) if part.server else (),
            highest=part.highest,
            newest_ms=part.newest_ms,
        )

    @property
    def log(self) -> tuple[str, int]:
        """The connector, and the epoch of its log."""
        return self.connector, self.epoch

    @property
    def place_text(self) -> str:
        """The place up to which it was read, in words."""
        number, position = self.highest
        return (
            f"up to {self.bases[-1]}.{number:06d}, position {position}, servers {', '.join(self.servers) or 'unknown'}"
        )

    def with_part(self, part: LogPart) -> SourceLog:
        """Return the log after more of its records."""
        servers = {*self.servers, part.server} - {""}
        return self.model_copy(
            update={
                "bases": tuple(sorted({*self.bases, part.base})),
                "servers": tuple(sorted(servers)),
                "highest": max(self.highest, part.highest),
                "newest_ms": max(_known(self.newest_ms, part.newest_ms), default=None),
            }
        )

    def is_another(self, part: LogPart) -> bool:
        """Return whether records come from another log.

        Args:
            part: Records of the same connector and epoch.

        Example:
            >>> at = dict(connector="shop", epoch=0, base="bin", oldest_ms=1, newest_ms=1)
            >>> log = SourceLog.of(LogPart(server="1", lowest=(7, 4), highest=(7, 4), **at))
            >>> log.is_another(LogPart(server="2", lowest=(3, 4), highest=(3, 4), **at))
            True
            >>> log.is_another(LogPart(server="1", lowest=(3, 4), highest=(3, 4), **at))
            False
        """
        if part.base not in self.bases:
            return True
        # A server's first change may come late, but then it is an old one.
        is_first = bool(part.server) and bool(self.servers) and part.server not in self.servers
        is_below = part.lowest < self.highest
        are_times_known = self.newest_ms is not None and part.newest_ms is not None
        return is_first and is_below and are_times_known and part.newest_ms >= self.newest_ms  # type: ignore[operator]


@dataclass(frozen=True)
class BatchCounts:
    """Counts over the records of a batch.

    Args:
        records: All records of the pipeline.
        other_tables: Records of other tables.
        not_rows: Records that change no row of any table.
        bytes: Bytes of the values that were read, records of other pipelines included.
        bad: Records that go to the quarantine.
        erased: Records of erased keys, which are left out.
        changes: Rows with a row kind.
        key_changes: Changes of a key for which another key's row is needed: values may have to be looked for there.
    """

    records: int = 0
    other_tables: int = 0
    not_rows: int = 0
    bytes: int = 0
    bad: int = 0
    erased: int = 0
    changes: int = 0
    key_changes: int = 0

    @classmethod
    def total(cls, parts: Iterable[BatchCounts]) -> Self:
        """Sum the counts of a batch's parts."""
        totals: Counter[str] = Counter()
        for part in parts:
            totals.update(vars(part))
        return cls(**totals)


@dataclass(frozen=True)
class BatchSummary:
    """Totals over the records of a batch, known before the decision.

    Args:
        counts: Counts of the records.
        max_event_ms: Greatest event time, epoch ms.
        truncate: Sequence of the newest TRUNCATE; in arrival mode its order (step, part, position).
        ignored: Record columns missing from the schema.
        types: These columns to the types of their values, as DDL; an uncertain type is empty. Only on request.
        offsets: Offsets of all records, including those that change nothing, as intervals by `source/partition`. Only in
            arrival mode, which recognizes a redelivered record by its offset.
        truncates: The TRUNCATEs' orders by (`source/partition`, offset), with `offsets`. If one is delivered twice, the
            first counts.
        view: Versions that a materialized view was computed from; None for other pipelines.
        recomputed: Why the view was computed from scratch; empty if it was not.
        snapshots: The snapshots of the whole table that rows belong to, in the order of their sequences.
        logs: Facts about the source's logs, if the records state any.
    """

    counts: BatchCounts = field(default_factory=BatchCounts)
    max_event_ms: int | None = None
    truncate: tuple[int, ...] | None = None
    ignored: frozenset[str] = frozenset()
    types: Mapping[str, frozenset[str]] = field(default_factory=dict)
    offsets: Mapping[str, Intervals] = field(default_factory=dict)
    truncates: Mapping[RecordOffset, Order] = field(default_factory=dict)
    view: ViewPosition | None = None
    recomputed: str = ""
    snapshots: tuple[WholeSnapshot, ...] = ()
    logs: tuple[LogPart, ...] = ()

    def with_counts(self, **counts: int) -> Self:
        """Return the summary with other counts, by name."""
        return replace(self, counts=replace(self.counts, **counts))

    def with_snapshots(self, parts: Iterable[Mapping[str, Any]]) -> Self:
        """Return the summary with snapshots of the whole table; each part has the fields of `WholeSnapshot`."""
        snapshots = (WholeSnapshot.model_validate(part) for part in parts)
        return replace(self, snapshots=WholeSnapshot.joined(snapshots))

    def with_logs(self, documents: Iterable[Mapping[str, Any]]) -> Self:
        """Return the summary with what records say of the source's logs; each document has the fields of `LogPart`."""
        logs = tuple(LogPart.model_validate(document) for document in documents)
        return replace(self, logs=logs)

    @classmethod
    def total(cls, parts: Sequence[BatchSummary]) -> Self:
        """Sum the summaries of a batch's parts, in any order."""
        event_times = _known(*(part.max_event_ms for part in parts))
        truncates = [part.truncate for part in parts if part.truncate is not None]
        ignored = [part.ignored for part in parts]
        return cls(
            counts=BatchCounts.total(part.counts for part in parts),
            max_event_ms=max(event_times, default=None),
            truncate=max(truncates, default=None),
            ignored=frozenset().union(*ignored),
            types=_total_types(parts),
            offsets=_total_offsets(parts),
            truncates=_first_truncates(parts),
            snapshots=WholeSnapshot.joined(snapshot for part in parts for snapshot in part.snapshots),
            logs=_joined_parts(log for part in parts for log in part.logs),
        )

    def to_json(self) -> str:
        """Write it as text, to send it from a worker to the driver."""
        # JSON has neither sets nor objects whose keys are pairs.
        truncates = []
        for partition_offset, order in self.truncates.items():
            name, offset = partition_offset
            truncates.append([name, offset, list(order)])
        types = {column: sorted(own) for column, own in self.types.items()}
        fields = {
            **vars(self),
            "counts": vars(self.counts),
            "ignored": sorted(self.ignored),
            "truncates": truncates,
            "types": types,
            "snapshots": [snapshot.model_dump() for snapshot in self.snapshots],
            "logs": [log.model_dump() for log in self.logs],
        }
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> BatchSummary:
        """Read the text of `to_json`."""
        fields = json.loads(text)
        if fields["truncate"] is not None:
            fields["truncate"] = tuple(fields["truncate"])
        offsets: dict[str, Intervals] = {}
        for name, ranges in fields["offsets"].items():
            offsets[name] = [tuple(ends) for ends in ranges]
        truncates: dict[tuple[str, int], tuple[int, ...]] = {}
        for name, offset, order in fields["truncates"]:
            truncates[name, offset] = tuple(order)
        types = {column: frozenset(own) for column, own in fields["types"].items()}
        fields |= {
            "counts": BatchCounts(**fields["counts"]),
            "ignored": frozenset(fields["ignored"]),
            "offsets": offsets,
            "truncates": truncates,
            "types": types,
        }
        snapshots, logs = fields.pop("snapshots"), fields.pop("logs")
        return cls(**fields).with_snapshots(snapshots).with_logs(logs)


def _total_types(parts: Sequence[BatchSummary]) -> dict[str, frozenset[str]]:
    total: dict[str, frozenset[str]] = {}
    for part in parts:
        for column, types in part.types.items():
            known = total.get(column, frozenset())
            total[column] = known | types
    return total


def _known(*times_ms: int | None) -> list[int]:
    """Return the times that are known."""
    return [ms for ms in times_ms if ms is not None]


def _total_offsets(parts: Sequence[BatchSummary]) -> dict[str, Intervals]:
    total: dict[str, Intervals] = {}
    for part in parts:
        for partition, intervals in part.offsets.items():
            total.setdefault(partition, []).extend(intervals)
    return total


def _first_truncates(parts: Sequence[BatchSummary]) -> dict[RecordOffset, Order]:
    """Return the order of each TRUNCATE by its offset; the first one if it was delivered twice."""
    first: dict[RecordOffset, Order] = {}
    # The first delivery counts: a later one of the same record must not raise the floor again.
    for part in parts:
        for offset, order in part.truncates.items():
            known = first.get(offset, order)
            first[offset] = min(order, known)
    return first


def _joined_parts(parts: Iterable[LogPart]) -> tuple[LogPart, ...]:
    """Join the parts of each log and server, in any order."""
    joined: dict[tuple[str, int, str, str], LogPart] = {}
    for part in parts:
        name = (*part.log, part.base, part.server)
        known = joined.get(name)
        joined[name] = part if known is None else known.together(part)
    return tuple(joined[name] for name in sorted(joined))


def _logs_after(known: Sequence[SourceLog], parts: Iterable[LogPart]) -> tuple[SourceLog, ...]:
    """Return the logs that were read after a step.

    Args:
        known: Logs before the step.
        parts: Facts that the records of the step state.
    """
    logs = {log.log: log for log in known}
    for part in parts:
        log = logs.get(part.log)
        if log is not None:
            logs[part.log] = log.with_part(part)
        elif len(logs) < MOST_LOGS:
            logs[part.log] = SourceLog.of(part)
    return tuple(logs[name] for name in sorted(logs))


class Frontier(Facts):
    """The position of a pipeline after a step. Stored with the step; the next step starts from it."""

    clock: Reading = Field(
        description="The clock of the step. A job that deletes or folds keeps the clock of the step before."
    )
    watermark_ms: int | None = Field(default=None, description="Watermark of the step, epoch ms.")
    max_event_ms: int | None = Field(default=None, description="Greatest event time of this and all earlier steps.")
    floor: tuple[int, ...] | None = Field(
        default=None, description="Everything below was deleted by TRUNCATE: a sequence, or (step, part, position)."
    )
    log_begins: tuple[int, ...] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="Event times at which the source's log restarted, epoch ms, ascending; absent without any.",
    )
    orphans: bool = Field(
        default=False, description="Arrival mode: the sink may have rows that the state has forgotten."
    )
    offsets: dict[str, list[tuple[int, int]]] = Field(
        default_factory=dict, description="Arrival mode: offsets read, as intervals per source/partition."
    )
    total_records: int | None = Field(
        default=None, description="Records of this and all earlier steps since the last reset; null: not counted."
    )
    total_quarantined: int | None = Field(default=None, description="Bad records among them.")
    read_ms: int | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="Wall time of the last step that read records, epoch ms; absent in steps of older releases.",
    )
    snapshot: WholeSnapshot | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="By a log's sequence: the newest snapshot of the source's whole table; absent before one.",
    )
    logs: tuple[SourceLog, ...] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="The source's logs that were read, as named by records; absent if records name none.",
    )
    view: ViewPosition | None = Field(
        default=None,
        description="Materialized views: versions that the rows were computed from. Null for other pipelines.",
    )

    @property
    def now_ms(self) -> int:
        """Processing time of the step, epoch ms."""
        return self.clock.now_ms

    def with_log_begun(self, event_ms: int) -> Frontier:
        """Return the frontier of a pipeline whose source's log restarted.

        Args:
            event_ms: Event time of the restart, epoch ms.
        """
        begins = sorted({*self.log_begins, event_ms})
        return self.model_copy(update={"log_begins": tuple(begins)})

    def other_logs(self, read: BatchSummary) -> list[tuple[SourceLog, LogPart]]:
        """Return the batch's parts of other logs, each with the known log of its connector."""
        logs = {log.log: log for log in self.logs}
        return [(logs[part.log], part) for part in read.logs if part.log in logs and logs[part.log].is_another(part)]

    def operator_step(self, number: int) -> Step:
        """Return the step as an operator sees it.

        Args:
            number: Number of the step.
        """
        return Step(
            number,
            now_ms=self.now_ms,
            watermark_ms=self.watermark_ms,
            floor=self.floor,
            orphans=self.orphans,
        )

    @classmethod
    def reset(cls, clock: Reading, log_begins: tuple[int, ...] = ()) -> Self:
        """Return the frontier of an emptied pipeline: it keeps the clock and the source's logs; all else starts over."""
        return cls(clock=clock, log_begins=log_begins, total_records=0, total_quarantined=0)


class StepRecords(Facts):
    """Totals over the records of one step."""

    records: int = Field(default=0, description="Records of this pipeline, bad ones included.")
    quarantined: int = Field(default=0, description="Bad records.")
    erased: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="Records of erased keys, which were refused; absent without any.",
    )
    other_tables: int = Field(default=0, description="Records of tables other than the source's.")
    not_rows: int = Field(
        default=0,
        exclude_if=lambda value: not value,
        description="Records that change no row of any table, such as heartbeats; absent without any.",
    )
    ignored_columns: tuple[str, ...] = Field(
        default=(), description="Columns of the records that the schema does not have."
    )
    floor_raised: bool = Field(default=False, description="A TRUNCATE among them raised the floor.")
    recomputed: str = Field(
        default="", description="Materialized views: why the step computed all rows; empty if it computed a part."
    )

    @classmethod
    def of(cls, last: Frontier | None, batch: BatchSummary) -> Self:
        """Return the totals over a step's records that its facts store.

        Args:
            last: The frontier before; None before the first step.
            batch: Totals over the records.
        """
        return cls(
            records=batch.counts.records,
            quarantined=batch.counts.bad,
            erased=batch.counts.erased,
            other_tables=batch.counts.other_tables,
            not_rows=batch.counts.not_rows,
            ignored_columns=tuple(sorted(batch.ignored)),
            floor_raised=_raised_floor(last, batch) is not None,
            recomputed=batch.recomputed,
        )


def _total(last: Frontier | None, name: str, own: int) -> int | None:
    """Return a count of a step and all earlier ones; None if an earlier step did not count."""
    if last is None:
        return own
    before: int | None = getattr(last, f"total_{name}")
    if before is None:
        return None
    return before + own


def _snapshot_after(last: Frontier | None, batch: BatchSummary) -> WholeSnapshot | None:
    """Return the newest snapshot after a batch; a redelivered snapshot changes nothing."""
    newest = None if last is None else last.snapshot
    for snapshot in batch.snapshots:
        if newest is None or snapshot.follows(newest):
            newest = snapshot
        elif snapshot.highest >= newest.lowest:
            newest = newest.together(snapshot)
    return newest


def _offsets_read(last: Frontier | None) -> OffsetRanges:
    if last is None:
        return OffsetRanges()
    return OffsetRanges(last.offsets)


def _max_event_after(last: Frontier | None, batch: BatchSummary) -> int | None:
    """Return the greatest event time of a batch and all earlier steps."""
    before = None if last is None else last.max_event_ms
    return max(_known(before, batch.max_event_ms), default=None)


def _floor_after(last: Frontier | None, batch: BatchSummary) -> tuple[int, ...] | None:
    """Return the floor after a batch."""
    floor = last.floor if last else None
    return _raised_floor(last, batch) or floor


def _raised_floor(last: Frontier | None, batch: BatchSummary) -> tuple[int, ...] | None:
    """Return the floor that a batch raises; None if it raises none.

    The floor only rises: everything below it was deleted by a TRUNCATE, and an older TRUNCATE that arrives late deletes nothing
    more.
    """
    truncate = _new_truncate(last, batch)
    if truncate is None:
        return None
    floor = last.floor if last else None
    if floor is not None and truncate <= floor:
        return None
    return truncate


def _new_truncate(last: Frontier | None, batch: BatchSummary) -> tuple[int, ...] | None:
    """Return the newest TRUNCATE of a batch; None if there is none.

    If records are known by their offsets, a TRUNCATE that was read before and is delivered again does not count.
    """
    if not batch.truncates:
        return batch.truncate
    read_before = _offsets_read(last)
    new_orders = []
    for (partition, offset), order in batch.truncates.items():
        if not read_before.knows(partition, offset):
            new_orders.append(order)
    return max(new_orders, default=None)
