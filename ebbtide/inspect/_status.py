"""Status of a pipeline, read from its tables' logs alone. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

from ebbtide.amounts import amount, in_words
from ebbtide.ddl import added_ddl
from ebbtide.delta import Snapshot
from ebbtide.durations import to_ms
from ebbtide.errors import EbbtideError
from ebbtide.inspect._all_bad import fault_of_all_bad
from ebbtide.inspect._next_run import NextRun
from ebbtide.ledger import (
    DataCommit,
    ForeignWrites,
    Holder,
    KeptRun,
    LastVerdict,
    LedgerFacts,
    NoStep,
    StepFacts,
)
from ebbtide.runtime import AtRest, Plan, system_clock
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

Level = Literal["healthy", "attention", "paused", "refused"]
MOST_AHEAD_MS = 600_000
"""Clocks of hosts differ: up to here it is none that was wrong."""
LEAST_FREE_BYTES = 100_000_000
"""Free bytes of the root's disk below which a run may not get far."""
LOOK_BACK = 100
"""Steps whose ignored columns, and records of other tables, are reported."""


@dataclass(frozen=True)
class LastStep:
    """The last step of a pipeline.

    Args:
        step: Its number; 0 before the first.
        kind: Its cause, in a word; None before the first.
        now: Its clock.
        watermark: Its watermark.
        newest_event: The greatest event time that was read.
        ahead_ms: How far its clock is ahead of the present time.
        held_ms: How far `max_clock_jump` held its clock back.
    """

    step: int = 0
    kind: str | None = None
    now: datetime | None = None
    watermark: datetime | None = None
    newest_event: datetime | None = None
    ahead_ms: int = 0
    held_ms: int = 0

    @classmethod
    def of(cls, last: StepFacts, clock_ms: int) -> Self:
        """Take what the facts of the last step have.

        Args:
            last: The facts.
            clock_ms: The time, epoch ms.
        """
        frontier = last.frontier
        return cls(
            step=last.step,
            kind=last.cause.what,
            now=time_of(last.now_ms),
            watermark=time_of(frontier.watermark_ms),
            newest_event=time_of(frontier.max_event_ms),
            ahead_ms=max(last.now_ms - clock_ms, 0),
            held_ms=frontier.clock.held_ms,
        )

    @property
    def clock_text(self) -> str | None:
        """Say that the clock is ahead or held, with the way out; None: it is right."""
        sets = "'ebbtide clock --to now --reason TEXT --apply' sets it"
        if self.ahead_ms > MOST_AHEAD_MS:
            ahead = in_words(self.ahead_ms)
            return f"the clock is {ahead} ahead, and has ended entries too early; {sets} back, 'ebbtide rewind' restores them"
        if self.held_ms:
            held = in_words(self.held_ms)
            return f"the clock is held {held} behind this host's by max_clock_jump; steps catch up. If the host's is right, {sets}"
        return None


@dataclass(frozen=True)
class RecordsRead:
    """The records that a pipeline has read.

    Args:
        records: Records read since the last refresh, as far as the state's log reaches back.
        newest: Time of the last step that read some; None before it, or if an older release made it.
        quarantined: Bad records among them.
        in_quarantine: Records that the quarantine holds now.
        other_tables: Records of other tables than the source's in the last hundred steps.
        ignored_columns: Columns that records of the last hundred steps had and the schema has not.
        evolved: Columns that were taken in and that the spec's file lacks, to their types as DDL.
    """

    records: int = 0
    newest: datetime | None = None
    quarantined: int = 0
    in_quarantine: int = 0
    other_tables: int = 0
    ignored_columns: tuple[str, ...] = ()
    evolved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableStatus:
    """A table of a pipeline.

    Args:
        step: The last step that changed it.
        type: Kind of the table.
        version: Its version; None if it is gone, or no Delta table.
        rows: Its rows: of the state entries, and older versions of them that no fold has taken away yet. None if it is gone, or if files of another client do not say.
        bytes: Bytes of its data files; None if it is gone.
    """

    step: int = 0
    type: str = "delta"
    version: int | None = None
    rows: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, snapshot: Snapshot | None, step: int, type_: str = "delta") -> Self:
        """Measure a table.

        Args:
            snapshot: Its newest version; None of one that is gone.
            step: The last step that changed it.
            type_: Its kind.
        """
        if snapshot is None:
            return cls(step, type_)
        n_bytes = sum(file.size for file in snapshot.files.values())
        return cls(
            step,
            type_,
            version=snapshot.version,
            rows=snapshot.live_rows,
            bytes=n_bytes,
        )


@dataclass(frozen=True)
class PauseStatus:
    """The pause of a pipeline; all None: it is not paused.

    Args:
        by: Who has paused it.
        since: Since when.
        reason: Why.
    """

    by: str | None = None
    since: datetime | None = None
    reason: str | None = None

    @classmethod
    def of(cls, turn: LedgerFacts | None) -> Self:
        """Take the pause of the newest turn of the ledger; None: there is no ledger."""
        if turn is None or turn.paused is None:
            return cls()
        pause = turn.paused
        since = time_of(pause.since_ms)
        return cls(pause.by, since, pause.reason)


@dataclass(frozen=True)
class LeaseStatus:
    """The lease of a pipeline.

    Args:
        holder: The process that holds it; None: none does, or it is known to have ended.
        epoch: How often it was taken.
    """

    holder: Holder | None = None
    epoch: int = 0

    @classmethod
    def of(cls, turn: LedgerFacts | None) -> Self:
        """Take the lease as the newest turn of the ledger has it; None: there is no ledger."""
        if turn is None:
            return cls()
        holder = Holder.of(turn)
        return cls(holder, turn.epoch)


@dataclass(frozen=True)
class Status:
    """A pipeline's last step and what it has read.

    Args:
        pipeline: Its name.
        root: Folder of its tables.
        last: Its last step.
        read: The records that it has read.
        sink: Its sink.
        state: Its state.
        outputs: Its further outputs, by name.
        pause: Its pause.
        lease: Its lease.
        checks: The last verdict of each check that was judged.
        foreign_writes: Commits of other clients to sink and state that are neither repaired nor acknowledged.
        next_run: What the next run would meet.
        last_run: The run that has ended last; None: none is kept.
        all_bad: That all records were bad so far, with the first reason; None: they were not.
        free_bytes: Free bytes of the local disk that the root is on; None: it is on none, or does not exist.
        late: That its data are older than `freshness.fail_window`, a line for each reason.
    """

    pipeline: str
    root: str
    last: LastStep = LastStep()
    read: RecordsRead = RecordsRead()
    sink: TableStatus = TableStatus()
    state: TableStatus = TableStatus()
    outputs: Mapping[str, TableStatus] = field(default_factory=dict)
    pause: PauseStatus = PauseStatus()
    lease: LeaseStatus = LeaseStatus()
    checks: tuple[LastVerdict, ...] = ()
    foreign_writes: tuple[DataCommit, ...] = ()
    next_run: NextRun = field(default_factory=NextRun)
    last_run: KeptRun | None = None
    all_bad: str | None = None
    free_bytes: int | None = None
    late: tuple[str, ...] = ()

    @property
    def disk_text(self) -> str | None:
        """Say that the disk is almost full, with the way out; None: it is not."""
        if self.free_bytes is None or self.free_bytes >= LEAST_FREE_BYTES:
            return None
        free = amount(self.free_bytes, "byte")
        return f"the disk of '{self.root}' has {free} left: make room, by 'ebbtide vacuum' for one"

    def refuse_unread(self) -> None:
        """Refuse a status of tables whose logs cannot be read: their numbers are unknown, not 0.

        Raises:
            EbbtideError: the one of the log.
        """
        error = self.next_run.refusal or self.next_run.unavailable
        if error is not None and not self.next_run.reads_tables:
            raise error

    @property
    def misfit(self) -> str | None:
        """Why the next run is refused; None: it is not."""
        error = self.next_run.refusal
        return None if error is None else str(error)

    @property
    def level(self) -> Level:
        """`refused`: the next run is; `paused`; `attention`: something else needs a look; `healthy`."""
        if self.misfit:
            return "refused"
        if self.pause.by is not None:
            return "paused"
        has_failed = any(self._failed_checks())
        has_failed = has_failed or (self.last_run is not None and self.last_run.has_failed)
        needs_look = (
            has_failed
            or self.last.clock_text
            or self.disk_text
            or self.late
            or self.all_bad
            or self.foreign_writes
            or self.next_run.unavailable
        )
        return "attention" if needs_look else "healthy"

    def as_dict(self) -> dict[str, Any]:
        """Return the status as plain values, without levels: the form that `ebbtide status --json` prints."""
        last = self.last
        read = self.read
        holder = self.lease.holder
        return {
            "pipeline": self.pipeline,
            "root": self.root,
            "step": last.step,
            "kind": last.kind,
            "sink_step": self.sink.step,
            "now": last.now,
            "clock_ahead_ms": last.ahead_ms,
            "clock_held_ms": last.held_ms,
            "watermark": last.watermark,
            "newest_event": last.newest_event,
            "records": read.records,
            "last_read": read.newest,
            "quarantined": read.quarantined,
            "in_quarantine": read.in_quarantine,
            "other_tables": read.other_tables,
            "ignored_columns": read.ignored_columns,
            "evolved": dict(read.evolved),
            "sink_type": self.sink.type,
            "sink_version": self.sink.version,
            "state_version": self.state.version,
            "sink_rows": self.sink.rows,
            "sink_bytes": self.sink.bytes,
            "state_rows": self.state.rows,
            "state_bytes": self.state.bytes,
            "outputs": {name: {"type": table.type, "step": table.step} for name, table in self.outputs.items()},
            "paused_by": self.pause.by,
            "paused_since": self.pause.since,
            "pause_reason": self.pause.reason,
            "held_by": None if holder is None else asdict(holder),
            "lease_epoch": self.lease.epoch,
            "checks": [verdict.as_dict() for verdict in self.checks],
            "foreign_writes": tuple(asdict(write) for write in self.foreign_writes),
            "level": self.level,
            "misfit": self.misfit,
            "unavailable": None if self.next_run.unavailable is None else str(self.next_run.unavailable),
            "waiting": None if self.next_run.waiting is None else self.next_run.waiting.as_dict(),
            "all_bad": self.all_bad,
            "free_bytes": self.free_bytes,
            "late": self.late,
            "last_run": None if self.last_run is None else self.last_run.as_dict(),
        }

    def text(self) -> str:
        """Return the status as text for a terminal."""
        lines = [self._first_line(), *self._warnings()]
        waiting = self.next_run.waiting
        if waiting is not None and not waiting.is_empty:
            lines.append(waiting.text())
        if self.last.step:
            lines += self._details()
        return "\n  ".join(lines)

    def _first_line(self) -> str:
        last = self.last
        if last.step == 0:
            return f"{self.pipeline}: {self._before_first_step()}"
        now = _time_text(last.now)
        step = f"step {last.step} ({last.kind}) at {now}"
        records = amount(self.read.records, "record")
        quarantined = f"{self.read.quarantined:,} quarantined"
        return f"{self.pipeline}: {step}, {records}, {quarantined}"

    def _details(self) -> Iterator[str]:
        """Yield what the last step has left, a line each."""
        read = self.read
        if self.last.watermark:
            watermark = _time_text(self.last.watermark)
            yield f"watermark {watermark}"
        yield f"{self._sink_text()}; state version {self.state.version}"
        for name, table in self.outputs.items():
            yield f"output {name} of type {table.type}, changed last by step {table.step}"
        if read.in_quarantine:
            yield f"in quarantine: {read.in_quarantine}"
        if read.other_tables:
            yield f"records of other tables: {read.other_tables:,}"
        if read.ignored_columns:
            names = ", ".join(read.ignored_columns)
            yield f"columns not in the schema: {names}"
        if read.evolved:
            columns = ", ".join(added_ddl(read.evolved))
            yield f"columns taken in, to be added to the schema: {columns}"

    def _sink_text(self) -> str:
        sink = self.sink
        changed = f"changed last by step {sink.step}"
        if sink.type != "delta":
            return f"sink of type {sink.type}, {changed}"
        place = f"sink {self.root}/sink"
        if sink.version is None:
            return f"{place} is gone"
        rows = ""
        if sink.rows is not None:
            n_rows = amount(sink.rows, "row")
            rows = f", {n_rows}"
        return f"{place}, version {sink.version}{rows}, {changed}"

    def _before_first_step(self) -> str:
        if not self.next_run.reads_tables:
            return "its steps are unknown."
        if self.misfit:
            return "no step can be made."
        is_free = self.pause.by is None and self.lease.holder is None
        return "no step yet. Run 'ebbtide run'." if is_free else "no step yet."

    def _failed_checks(self) -> Iterator[LastVerdict]:
        """Yield the verdicts that a check has failed; the next run is looked at here and now."""
        for verdict in self.checks:
            if verdict.outcome == "failed" and verdict.check != "next_run":
                yield verdict

    def _warnings(self) -> Iterator[str]:
        """Yield what keeps the next run from beginning: a misfit of the tables, a pause, a lease; foreign writes; failed checks."""
        if self.misfit:
            yield f"the next run is refused: {self.misfit}"
        if self.next_run.unavailable:
            what = "source" if self.next_run.reads_tables else "tables"
            yield f"the {what} could not be read: {self.next_run.unavailable}"
        if self.last_run is not None and self.last_run.has_failed:
            yield f"the last run {self.last_run.text()}; 'ebbtide runs' lists the runs"
        yield from filter(None, (self.all_bad, self.last.clock_text, self.disk_text))
        yield from self.late
        pause = self.pause
        if pause.by is not None:
            since = _time_text(pause.since)
            paused = f"paused by {pause.by} since {since}: {pause.reason}"
            yield f"{paused}; 'ebbtide resume' lets it read again"
        if self.lease.holder is not None:
            holder = _holder_text(self.lease.holder)
            yield f"held by {holder}"
        if self.foreign_writes:
            yield ForeignWrites(self.foreign_writes).text()
        for verdict in self._failed_checks():
            at = _time_text(time_of(verdict.at_ms))
            yield f"check {verdict.check} failed at {at}: 'ebbtide check --only {verdict.check}' shows the rows and the way out"


def status(spec: Pipeline, root: str, *, asks_source: bool = True, clock_ms: int | None = None) -> Status:
    """Read a pipeline's status, and find what its next run would meet.

    Args:
        root: Folder of all pipelines' tables.
        asks_source: Look at the source too; else a refusal of it is not found, and what waits is unknown.
        clock_ms: The time, epoch ms. Default: now.
    """
    now_ms = system_clock() if clock_ms is None else clock_ms
    try:
        return _read(spec, root, now_ms, asks_source=asks_source)
    except EbbtideError as error:
        # A log that cannot be read leaves the rest unknown, but that every run is refused for it.
        home = Plan.under(root, spec).root
        return Status(spec.name, home, next_run=NextRun.unread(error), last_run=_last_run(home))


def _last_run(home: str) -> KeptRun | None:
    """Return the run that has ended last, where the ledger is not read; None also where its file cannot be."""
    try:
        return KeptRun.last(home, None)
    except EbbtideError:
        return None


def _read(spec: Pipeline, root: str, now_ms: int, *, asks_source: bool) -> Status:
    """Read a status; arguments as of `status`.

    Raises:
        EbbtideError: a log cannot be read.
    """
    found = AtRest.of(spec, root)
    known = Status(
        spec.name,
        found.plan.root,
        pause=PauseStatus.of(found.turn),
        lease=LeaseStatus.of(found.turn),
        checks=LastVerdict.of_checks(found.plan.root),
        foreign_writes=found.plan.look_for_foreign_writes(found.turn).writes,
        next_run=NextRun.of(found, now_ms if asks_source else None),
        last_run=KeptRun.last(found.plan.root, found.turn),
        free_bytes=Location(root).free_bytes,
    )
    last = found.head.facts
    if isinstance(last, NoStep):
        return known
    all_bad = None if known.misfit else fault_of_all_bad(spec, root)
    sink_step = found.tables.last_step("sink")
    return replace(
        known,
        last=LastStep.of(last, now_ms),
        read=_records_read(found.plan, last),
        late=() if known.pause.by is not None else tuple(_late(spec, known.next_run, last.frontier.read_ms, now_ms)),
        sink=TableStatus.of(found.tables.sink(), sink_step, spec.sink.type),
        state=TableStatus.of(found.state, last.step),
        outputs={name: TableStatus(found.tables.last_step(name), given.type) for name, given in spec.outputs.items()},
        all_bad=None if all_bad is None else str(all_bad),
    )


def _late(spec: Pipeline, next_run: NextRun, read_ms: int | None, now_ms: int) -> Iterator[str]:
    """Yield why the data of a pipeline are older than they may be.

    Args:
        spec: The pipeline.
        next_run: What the next run would meet.
        read_ms: When it has read records last, epoch ms; None: it has read none.
        now_ms: The time, epoch ms.
    """
    most_ms = to_ms(spec.freshness.fail_window)
    limit = f"longer than freshness.fail_window, {in_words(most_ms)}"
    waiting = next_run.waiting
    waits_ms = None if waiting is None or waiting.is_empty else waiting.behind_ms
    silent_ms = 0 if read_ms is None else now_ms - read_ms
    if waits_ms is not None and waits_ms > most_ms:
        yield f"records have waited for {in_words(waits_ms)}, {limit}; 'ebbtide run' reads them, 'ebbtide runs' lists the last runs"
    elif silent_ms > most_ms:
        looks = (
            "'ebbtide run' reads what waits"
            if waits_ms is not None
            else "if none waits, look at their producer or connector"
        )
        yield f"no record was read for {in_words(silent_ms)}, {limit}; {looks}"


def _records_read(plan: Plan, last: StepFacts) -> RecordsRead:
    """Return what was read up to the last step."""
    recent = _recent(plan, last)
    frontier = last.frontier
    schema = plan.spec.table.columns
    known = {*schema.names, *plan.spec.ignored_columns}
    ignored = sorted(recent.ignored_columns - known)
    return RecordsRead(
        records=_first_known(frontier.total_records, recent.records),
        newest=time_of(frontier.read_ms),
        quarantined=_first_known(frontier.total_quarantined, recent.quarantined),
        in_quarantine=plan.quarantine.size(),
        other_tables=recent.other_tables,
        ignored_columns=tuple(ignored),
        evolved=dict(plan.evolved),
    )


@dataclass
class _Recent:
    """Totals of the last steps.

    Args:
        records: Records read.
        quarantined: Bad ones among them.
        other_tables: Records of other tables than the source's.
        ignored_columns: Columns of records that the schema lacks.
    """

    records: int = 0
    quarantined: int = 0
    other_tables: int = 0
    ignored_columns: set[str] = field(default_factory=set)


def _recent(plan: Plan, last: StepFacts) -> _Recent:
    """Sum up the steps since the last refresh, the newest first.

    Newer releases keep the totals of records in the facts of each step: then `LOOK_BACK` steps are enough for the rest.
    Facts without totals need every step, as far as the log reaches back.
    """
    found = _Recent()
    has_totals = last.frontier.total_records is not None
    for number, (_, facts) in enumerate(plan.state.steps()):
        is_far_back = has_totals and number >= LOOK_BACK
        if facts.decision.is_reset or is_far_back:
            break
        read = facts.read
        found.records += read.records
        found.quarantined += read.quarantined
        found.other_tables += read.other_tables
        found.ignored_columns.update(read.ignored_columns)
    return found


def _first_known(total: int | None, counted: int) -> int:
    return counted if total is None else total


def time_of(ms: int | None) -> datetime | None:
    """Return a time of epoch ms."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC)


def _holder_text(holder: Holder) -> str:
    """Return the process that holds a lease, in words."""
    text = f"process {holder.process}"
    if holder.user is not None:
        text += f" of {holder.user}"
    text += f" on '{holder.host}'"
    since = time_of(holder.since_ms)
    if since is not None:
        text += f" since {_time_text(since)}"
    return text


def _time_text(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
