"""What tests of the quarantine need: records in it, and what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import operating
from crashes.disk import DiskPipeline
from local.support import spec
from operating import Origin

from ebbtide.delta import Log
from ebbtide.operations import Context, Report
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection

ALL = Selection()
BY_SEQ: dict[str, Any] = {"order": {"sequence": ["seq"]}, "format": {"type": "plain"}}
LINES = {"source": {"path": "in", "records": "value"}}


def by_seq(schema: str = "id BIGINT NOT NULL, n INT, seq INT", **more: Any) -> Pipeline:
    """A plain changelog by sequence."""
    return spec(schema, **{**BY_SEQ, **LINES, **more})


def held(pipeline: DiskPipeline, selection: Selection = ALL) -> list[dict[str, Any]]:
    """The records in a quarantine."""
    rows: list[dict[str, Any]] = pipeline.plan.quarantine.records(selection).to_pylist()
    return rows


def raws(pipeline: DiskPipeline) -> list[bytes]:
    """Their bytes."""
    return [row["raw"] for row in held(pipeline)]


def mended_as(pipeline: DiskPipeline, *lines: str) -> dict[Origin, str]:
    """Lines in the place of the records in the quarantine, the oldest first."""
    records = held(pipeline)[: len(lines)]
    return {tuple(row["origin"].values()): line for row, line in zip(records, lines, strict=True)}


def context_of(pipeline: DiskPipeline, of: Pipeline | None = None, now_ms: int = 0) -> Context:
    """What an operation on a pipeline on disk is given: its spec, or another one."""
    return Context(of or pipeline.spec, root_of(pipeline), pipeline, clock=lambda: now_ms)


def replay(
    pipeline: DiskPipeline,
    of: Pipeline | None = None,
    *,
    action: str = "apply",
    mended: dict[Origin, str] | None = None,
    now_ms: int = 0,
    **asked: Any,
) -> Report:
    """Replay records of a pipeline on disk; it goes on from there."""
    report = operating.replay(action, context_of(pipeline, of, now_ms), mended, **asked)
    pipeline.reload()
    return report


def root_of(pipeline: DiskPipeline) -> str:
    """The folder of all pipelines."""
    return str(Path(pipeline.plan.root).parent)


def commits(pipeline: DiskPipeline) -> dict[str, list[int]]:
    """The versions of all tables."""
    return {name: Log(pipeline.plan.at(name)).versions() for name in ("state", "sink", "quarantine", "ledger")}
