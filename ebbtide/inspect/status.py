"""Where a pipeline stands, read from its tables' logs alone: no JVM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any

from ebbtide.delta import log
from ebbtide.model.step import StepKind
from ebbtide.runtime.plan import Plan
from ebbtide.spec.pipeline import Pipeline


@dataclass(frozen=True)
class Status:
    """A pipeline's last step and what it has read.

    Args:
        pipeline: Its name.
        root: Folder of its tables.
        step: Number of the last step; 0 before the first.
        kind: What made it: batch, tick, reset; None before the first.
        sink_step: The last step that changed the sink.
        now: Clock of the last step.
        watermark: Its watermark.
        records: Records read since the last refresh, as far as their logs reach back.
        quarantined: Bad ones among them.
        ignored_columns: Columns that records had and the schema has not.
        sink_version: Version of the sink table.
        state_version: Version of the state table.
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
    ignored_columns: tuple[str, ...] = ()
    sink_version: int | None = None
    state_version: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if self.step == 0:
            return f"{self.pipeline}: no step yet. Run 'ebbtide run'."
        counts = f"{self.records} records, {self.quarantined} quarantined"
        lines = [f"{self.pipeline}: step {self.step} ({self.kind}) at {_time_text(self.now)}, {counts}"]
        if self.watermark:
            lines.append(f"  watermark {_time_text(self.watermark)}")
        lines.append(
            f"  sink {self.root}/sink, version {self.sink_version}, changed last by step {self.sink_step};"
            f" state version {self.state_version}"
        )
        if self.ignored_columns:
            lines.append(f"  columns not in the schema: {', '.join(self.ignored_columns)}")
        return "\n".join(lines)


def status(spec: Pipeline, root: str) -> Status:
    """Read a pipeline's status.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    if commit is None:
        return Status(spec.name, tables.root)
    _, last = commit
    steps = [facts for _, facts in tables.state.steps()]  # the newest first
    since_reset = list(takewhile(lambda facts: facts.kind is not StepKind.RESET, steps))
    ignored: set[str] = set()
    for facts in since_reset:
        ignored.update(facts.ignored_columns)
    return Status(
        spec.name,
        tables.root,
        step=last.step,
        kind=last.kind,
        sink_step=log.last_step(tables.at("sink")),
        now=_time(last.now_ms),
        watermark=None if last.watermark_ms is None else _time(last.watermark_ms),
        records=sum(facts.records for facts in since_reset),
        quarantined=sum(facts.quarantined for facts in since_reset),
        ignored_columns=tuple(sorted(ignored)),
        sink_version=log.versions(tables.at("sink"))[-1],
        state_version=log.versions(tables.at("state"))[-1],
    )


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _time_text(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
