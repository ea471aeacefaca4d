"""Status of a pipeline, read from its tables' logs alone. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import CheckpointMismatchError, DamagedFileError, TableMismatchError
from ebbtide.ledger.facts import Head, LedgerFacts, StepFacts
from ebbtide.ledger.foreign_writes import DataCommit, foreign_writes_text
from ebbtide.ledger.lease import Holder, holder_of
from ebbtide.ledger.verdicts import LastVerdict, last_verdicts
from ebbtide.runtime.belonging import OwnTables, refuse_misfits_at_rest
from ebbtide.runtime.missing_files import refuse_missing_files
from ebbtide.runtime.plan import Plan
from ebbtide.spec.ddl import added_ddl
from ebbtide.spec.pipeline import Pipeline

LOOK_BACK = 100
"""Steps whose ignored columns, and records of other tables, are reported."""


@dataclass(frozen=True)
class Status:
    """A pipeline's last step and what it has read.

    Args:
        pipeline: Its name.
        root: Folder of its tables.
        step: Number of the last step; 0 before the first.
        kind: Cause of the last step, in a word; None before the first.
        sink_step: The last step that changed the sink.
        now: Clock of the last step.
        watermark: Its watermark.
        newest_event: The greatest event time that was read.
        records: Records read since the last refresh, as far as the state's log reaches back.
        quarantined: Bad records among them.
        in_quarantine: Records that the quarantine holds now.
        other_tables: Records of other tables than the source's in the last hundred steps.
        ignored_columns: Columns that records of the last hundred steps had and the schema has not.
        evolved: Columns that were taken in and that the spec's file lacks, to their types as DDL.
        sink_type: Kind of the sink.
        sink_version: Version of the sink table; None if it is gone, or no Delta table.
        state_version: Version of the state table.
        sink_rows: Rows of the sink; None if it is gone, or if files of another client do not say.
        sink_bytes: Bytes of its data files; None if it is gone.
        state_rows: Stored rows of the state: entries, and older versions of them that no fold has taken away yet.
        state_bytes: Bytes of its data files.
        paused_by: Who has paused it; None: it is not paused.
        paused_since: Since when.
        pause_reason: Why.
        held_by: The process that holds its lease; None: none does, or it is known to have ended.
        lease_epoch: How often the lease was taken.
        checks: The last verdict of each check that was judged.
        foreign_writes: Commits of other clients to sink and state that are neither repaired nor acknowledged.
        misfit: Why the next run is refused: a table or the checkpoint was deleted, replaced or restored, or data files are missing. None: no such reason.
    """

    pipeline: str
    root: str
    step: int = 0
    kind: str | None = None
    sink_step: int = 0
    now: datetime | None = None
    watermark: datetime | None = None
    newest_event: datetime | None = None
    records: int = 0
    quarantined: int = 0
    in_quarantine: int = 0
    other_tables: int = 0
    ignored_columns: tuple[str, ...] = ()
    evolved: Mapping[str, str] = field(default_factory=dict)
    sink_type: str = "delta"
    sink_version: int | None = None
    state_version: int | None = None
    sink_rows: int | None = None
    sink_bytes: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    paused_by: str | None = None
    paused_since: datetime | None = None
    pause_reason: str | None = None
    held_by: Holder | None = None
    lease_epoch: int = 0
    checks: tuple[LastVerdict, ...] = ()
    foreign_writes: tuple[DataCommit, ...] = ()
    misfit: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the status as plain values."""
        return {**asdict(self), "checks": [verdict.as_dict() for verdict in self.checks]}

    def text(self) -> str:
        """Return the status as text for a terminal."""
        lines = [self._first_line(), *self._warnings()]
        if self.step:
            lines += self._details()
        return "\n  ".join(lines)

    def _first_line(self) -> str:
        if self.step == 0:
            return f"{self.pipeline}: {self._before_first_step()}"
        now = _time_text(self.now)
        records = amount(self.records, "record")
        step = f"step {self.step} ({self.kind}) at {now}"
        quarantined = f"{self.quarantined:,} quarantined"
        return f"{self.pipeline}: {step}, {records}, {quarantined}"

    def _details(self) -> Iterator[str]:
        """Yield what the last step has left, a line each."""
        if self.watermark:
            watermark = _time_text(self.watermark)
            yield f"watermark {watermark}"
        yield f"{self._sink_text()}; state version {self.state_version}"
        if self.in_quarantine:
            yield f"in quarantine: {self.in_quarantine}"
        if self.other_tables:
            yield f"records of other tables: {self.other_tables:,}"
        if self.ignored_columns:
            names = ", ".join(self.ignored_columns)
            yield f"columns not in the schema: {names}"
        if self.evolved:
            columns = ", ".join(added_ddl(self.evolved))
            yield f"columns taken in, to be added to the schema: {columns}"

    def _sink_text(self) -> str:
        changed = f"changed last by step {self.sink_step}"
        if self.sink_type != "delta":
            return f"sink of type {self.sink_type}, {changed}"
        sink = f"sink {self.root}/sink"
        if self.sink_version is None:
            return f"{sink} is gone"
        rows = ""
        if self.sink_rows is not None:
            n_rows = amount(self.sink_rows, "row")
            rows = f", {n_rows}"
        return f"{sink}, version {self.sink_version}{rows}, {changed}"

    def _before_first_step(self) -> str:
        if self.misfit:
            return "no step can be made."
        is_free = self.paused_by is None and self.held_by is None
        return "no step yet. Run 'ebbtide run'." if is_free else "no step yet."

    def _warnings(self) -> Iterator[str]:
        """Yield what keeps the next run from beginning: a misfit of the tables, a pause, a lease; foreign writes; failed checks."""
        if self.misfit:
            yield self.misfit
        if self.paused_by is not None:
            since = _time_text(self.paused_since)
            pause = f"paused by {self.paused_by} since {since}: {self.pause_reason}"
            yield f"{pause}; 'ebbtide resume' lets it read again"
        if self.held_by is not None:
            holder = _holder_text(self.held_by)
            yield f"held by {holder}"
        if self.foreign_writes:
            yield foreign_writes_text(self.foreign_writes)
        for verdict in self.checks:
            if verdict.outcome == "failed":
                at = _time_text(_time(verdict.at_ms))
                yield f"check {verdict.check} failed at {at}"


def status(spec: Pipeline, root: str) -> Status:
    """Read a pipeline's status.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    state = Snapshot.read(tables.at("state"), any_features=True)
    own_tables = OwnTables(tables)
    turn = tables.turn
    head = Head.at_rest(commit)
    look = tables.look_for_foreign_writes(turn)
    beside_steps = {
        **_pause(turn),
        "held_by": holder_of(turn),
        "lease_epoch": turn.epoch if turn else 0,
        "checks": last_verdicts(tables.root),
        "misfit": _misfit(tables, own_tables, head, state),
        "foreign_writes": look.writes,
    }
    if commit is None:
        return Status(spec.name, tables.root, **beside_steps)
    _, last = commit
    recent = _recent(tables, last)
    frontier = last.frontier
    schema = tables.spec.table.columns
    known = {*schema.names, *tables.spec.ignored_columns}
    ignored = sorted(recent.ignored_columns - known)
    return Status(
        pipeline=spec.name,
        root=tables.root,
        sink_step=own_tables.last_step("sink"),
        **of_step(last),
        records=_first_known(frontier.total_records, recent.records),
        quarantined=_first_known(frontier.total_quarantined, recent.quarantined),
        in_quarantine=tables.quarantine.size(),
        other_tables=recent.other_tables,
        ignored_columns=tuple(ignored),
        evolved=dict(tables.evolved),
        sink_type=spec.sink.type,
        **of_table("sink", own_tables.sink()),
        **of_table("state", state),
        **beside_steps,
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


def _recent(tables: Plan, last: StepFacts) -> _Recent:
    """Sum up the steps since the last refresh, the newest first.

    Newer releases keep the totals of records in the facts of each step: then `LOOK_BACK` steps are enough for the rest.
    Facts without totals need every step, as far as the log reaches back.
    """
    found = _Recent()
    has_totals = last.frontier.total_records is not None
    for number, (_, facts) in enumerate(tables.state.steps()):
        is_far_back = has_totals and number >= LOOK_BACK
        if facts.decision.is_reset or is_far_back:
            break
        read = facts.read
        found.records += read.records
        found.quarantined += read.quarantined
        found.other_tables += read.other_tables
        found.ignored_columns.update(read.ignored_columns)
    return found


def of_step(last: StepFacts) -> dict[str, Any]:
    """Return the fields of a status that the facts of the last step have."""
    frontier = last.frontier
    return {
        "step": last.step,
        "kind": last.cause.what,
        "now": _time(last.now_ms),
        "watermark": _time(frontier.watermark_ms),
        "newest_event": _time(frontier.max_event_ms),
    }


def of_table(name: str, snapshot: Snapshot | None) -> dict[str, Any]:
    """Return the fields of a status that describe a table; none of one that is gone.

    Args:
        name: `sink` or `state`.
        snapshot: Its newest version.
    """
    if snapshot is None:
        return {}
    sizes = [file.size for file in snapshot.files.values()]
    return {
        f"{name}_version": snapshot.version,
        f"{name}_rows": snapshot.live_rows,
        f"{name}_bytes": sum(sizes),
    }


def _first_known(total: int | None, counted: int) -> int:
    return counted if total is None else total


def _pause(turn: LedgerFacts | None) -> dict[str, Any]:
    """Return the fields of a pipeline's pause; none of one that is not paused."""
    if turn is None or turn.paused is None:
        return {}
    found = turn.paused
    return {
        "paused_by": found.by,
        "paused_since": _time(found.since_ms),
        "pause_reason": found.reason,
    }


def _misfit(tables: Plan, own_tables: OwnTables, head: Head, state: Snapshot | None) -> str | None:
    """Return why the next run is refused by the tables as they are; None if it is not."""
    try:
        refuse_misfits_at_rest(tables, own_tables, head, state)
        if state is not None:
            refuse_missing_files(tables, state, own_tables.sink())
    except (TableMismatchError, CheckpointMismatchError, DamagedFileError) as error:
        return str(error)
    return None


def _time(ms: int | None) -> datetime | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC)


def _holder_text(holder: Holder) -> str:
    """Return the process that holds a lease, in words."""
    text = f"process {holder.process}"
    if holder.user is not None:
        text += f" of {holder.user}"
    text += f" on '{holder.host}'"
    since = _time(holder.since_ms)
    if since is not None:
        text += f" since {_time_text(since)}"
    return text


def _time_text(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
