"""Status of a pipeline, read from its tables' logs alone. Needs no JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import CheckpointMismatchError, DamagedFileError, TableMismatchError
from ebbtide.ledger.facts import Head, LedgerFacts
from ebbtide.ledger.foreign_writes import DataCommit, foreign_writes_text
from ebbtide.ledger.lease import Holder, holder_of
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
        kind: What made it, in a word; None before the first.
        sink_step: The last step that changed the sink.
        now: Clock of the last step.
        watermark: Its watermark.
        records: Records read since the last refresh, as far as their logs reach back.
        quarantined: Bad ones among them.
        in_quarantine: Records that the quarantine holds now.
        other_tables: Records of other tables than the source's in the last hundred steps.
        ignored_columns: Columns that records of the last hundred steps had and the schema has not.
        evolved: Columns that were taken in and that the spec's file lacks, to their types as DDL.
        sink_type: Kind of the sink.
        sink_version: Version of the sink table; None if it is gone, or no Delta table.
        state_version: Version of the state table.
        sink_rows: Rows of the sink; None if it is gone, or if files of another client do not say.
        state_rows: Stored rows of the state: entries, and older versions of them that no fold has taken away yet.
        paused_by: Who has paused it; None: it is not paused.
        paused_since: Since when.
        pause_reason: Why.
        held_by: The process that holds its lease; None: none does, or it is known to have ended.
        foreign_writes: Commits of other clients to sink and state that are neither repaired nor acknowledged.
        misfit: Why the next run is refused: a table or the checkpoint was deleted, replaced or put back, or data files are missing. None: it is not refused for that.
    """

    pipeline: str
    root: str
    step: int = 0
    kind: str | None = None
    sink_step: int = 0
    now: datetime | None = None
    watermark: datetime | None = None
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
    state_rows: int | None = None
    paused_by: str | None = None
    paused_since: datetime | None = None
    pause_reason: str | None = None
    held_by: Holder | None = None
    foreign_writes: tuple[DataCommit, ...] = ()
    misfit: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if self.step == 0:
            return "\n".join([f"{self.pipeline}: {self._before_first_step()}", *self._warnings()])
        now = _time_text(self.now)
        counts = f"{amount(self.records, 'record')}, {self.quarantined:,} quarantined"
        lines = [f"{self.pipeline}: step {self.step} ({self.kind}) at {now}, {counts}", *self._warnings()]
        if self.watermark:
            watermark = _time_text(self.watermark)
            lines.append(f"  watermark {watermark}")
        rows = "" if self.sink_rows is None else f", {amount(self.sink_rows, 'row')}"
        sink = f"sink {self.root}/sink, version {self.sink_version}{rows}, changed last by step {self.sink_step}"
        if self.sink_type != "delta":
            sink = f"sink of type {self.sink_type}, changed last by step {self.sink_step}"
        elif self.sink_version is None:
            sink = f"sink {self.root}/sink is gone"
        lines.append(f"  {sink}; state version {self.state_version}")
        if self.in_quarantine:
            lines.append(f"  in quarantine: {self.in_quarantine}")
        if self.other_tables:
            lines.append(f"  records of other tables: {self.other_tables:,}")
        if self.ignored_columns:
            names = ", ".join(self.ignored_columns)
            lines.append(f"  columns not in the schema: {names}")
        if self.evolved:
            columns = ", ".join(added_ddl(self.evolved))
            lines.append(f"  columns taken in, to be added to the schema: {columns}")
        return "\n".join(lines)

    def _before_first_step(self) -> str:
        if self.misfit:
            return "no step can be made."
        is_free = self.paused_by is None and self.held_by is None
        return "no step yet. Run 'ebbtide run'." if is_free else "no step yet."

    def _warnings(self) -> Iterator[str]:
        """Yield what keeps the next run from beginning: a misfit of the tables, a pause, a lease; and foreign writes."""
        if self.misfit:
            yield f"  {self.misfit}"
        if self.paused_by is not None:
            since = _time_text(self.paused_since)
            yield f"  paused by {self.paused_by} since {since}: {self.pause_reason}; 'ebbtide resume' lets it read again"
        if self.held_by is not None:
            yield f"  held by {_holder_text(self.held_by)}"
        if self.foreign_writes:
            yield f"  {foreign_writes_text(self.foreign_writes)}"


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
    beside_steps = {
        **_pause(turn),
        "held_by": holder_of(turn),
        "misfit": _misfit(tables, own_tables, Head.at_rest(commit), state),
        "foreign_writes": tables.look_for_foreign_writes(turn).writes,
    }
    if commit is None:
        return Status(spec.name, tables.root, **beside_steps)
    _, last = commit
    records = 0
    quarantined = 0
    other_tables = 0
    ignored: set[str] = set()
    for number, (_, facts) in enumerate(tables.state.steps()):
        is_summed_up = last.frontier.total_records is not None and number >= LOOK_BACK
        if facts.decision.is_reset or is_summed_up:
            break
        records += facts.read.records
        quarantined += facts.read.quarantined
        other_tables += facts.read.other_tables
        ignored.update(facts.read.ignored_columns)
    known = {*tables.spec.table.columns.names, *tables.spec.ignored_columns}
    sink = own_tables.sink()
    return Status(
        pipeline=spec.name,
        root=tables.root,
        step=last.step,
        kind=last.cause.what,
        sink_step=own_tables.last_step("sink"),
        now=_time(last.now_ms),
        watermark=_time(last.frontier.watermark_ms),
        records=records if last.frontier.total_records is None else last.frontier.total_records,
        quarantined=quarantined if last.frontier.total_quarantined is None else last.frontier.total_quarantined,
        in_quarantine=tables.quarantine.size(),
        other_tables=other_tables,
        ignored_columns=tuple(sorted(ignored.difference(known))),
        evolved=dict(tables.evolved),
        sink_type=spec.sink.type,
        sink_version=None if sink is None else sink.version,
        sink_rows=None if sink is None else sink.live_rows,
        state_rows=None if state is None else state.live_rows,
        state_version=None if state is None else state.version,
        **beside_steps,
    )


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
    """Write the process that holds a lease."""
    user = "" if holder.user is None else f" of {holder.user}"
    since = "" if holder.since_ms is None else f" since {_time_text(_time(holder.since_ms))}"
    return f"process {holder.process}{user} on '{holder.host}'{since}"


def _time_text(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
