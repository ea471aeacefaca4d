"""A table `id, notes` in a log: its events, pipelines that read them, what those show and store."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from local.support import UNAVAILABLE, OnlyTouchedKeys, Row, envelope, record, spec

from ebbtide import UpsertPipeline
from ebbtide.testing import MemoryPipeline

NOTES = spec("id BIGINT NOT NULL, notes STRING")
KEPT = UNAVAILABLE
WHOLE_STATE = pytest.param(MemoryPipeline, marks=pytest.mark.model)
"""With all entries at hand; that with the touched ones alone is the harder case."""
PIPELINES = pytest.mark.parametrize("kind", [WHOLE_STATE, OnlyTouchedKeys])


KEYS_APART = 1000
"""How far the keys of two runs are apart; see `rows_by_run`."""


def under_other_keys(line: str, number: int) -> str:
    """Move each `id` of a record to the keys of a run's number: in its rows, its key, its headers."""
    return re.sub(r'(\bid\\*": )(-?\d+)', lambda found: f"{found[1]}{int(found[2]) + KEYS_APART * number}", line)


def rows_by_run(
    of: UpsertPipeline, runs: Sequence[Sequence[Sequence[str]]], kind: type[MemoryPipeline] = MemoryPipeline
) -> list[list[Row]]:
    """Read records in several runs at once, each under keys of its own; return the rows that each run ends with.

    Args:
        of: The pipeline, whose key is `id`.
        runs: Steps of records, none of them a TRUNCATE.
        kind: What reads them.
    """
    pipeline = kind(of)
    for steps in itertools.zip_longest(*runs, fillvalue=()):
        pipeline.step([under_other_keys(line, number) for number, step in enumerate(steps) for line in step])
    assert pipeline.quarantine == []
    found: list[list[Row]] = [[] for _ in runs]
    for row in pipeline.rows():
        number = (row["id"] + KEYS_APART // 2) // KEYS_APART
        found[number].append(row | {"id": row["id"] - KEYS_APART * number})
    return found


def rows_by_order(
    of: UpsertPipeline,
    orders: Sequence[Sequence[str]],
    kind: type[MemoryPipeline] = MemoryPipeline,
    *,
    together: bool = False,
) -> list[list[Row]]:
    """Read records in several orders at once, see `rows_by_run`, each in one step or in a step for each record."""
    runs = [[order] if together else [[line] for line in order] for order in orders]
    return rows_by_run(of, runs, kind)


def event(
    op: str, lsn: int | None, key: int = 1, notes: str | None = None, *, was: int | None = None, **source: Any
) -> str:
    """Make a record of a change; `was`: the key that the row had before."""
    after = None if op in "dt" else {"id": key, "notes": notes}
    before = {"id": key if was is None else was} if op == "d" or was is not None else None
    return record(envelope(op, lsn, before=before, after=after, **source))


def moved(lsn: int, old: int, new: int, notes: str | None = KEPT) -> str:
    """Make a change of the key as one update."""
    return event("u", lsn, new, notes, was=old)


def gone_to(lsn: int, old: int, new: int) -> str:
    """Make a delete whose header names the row's new key."""
    return record(envelope("d", lsn, before={"id": old}), new_key=json.dumps({"id": new}))


def come_from(lsn: int, old: int, new: int, notes: str | None = KEPT) -> str:
    """Make a create whose header names the row's old key."""
    return record(envelope("c", lsn, after={"id": new, "notes": notes}), old_key=json.dumps({"id": old}))


def run(
    *steps: str | Sequence[str], of: UpsertPipeline = NOTES, kind: type[MemoryPipeline] = MemoryPipeline
) -> MemoryPipeline:
    """Run steps, each one record or several; none may be bad."""
    pipeline = kind(of)
    for step in steps:
        pipeline.step([step] if isinstance(step, str) else step)
    assert pipeline.quarantine == []
    return pipeline


def notes(pipeline: MemoryPipeline) -> dict[int, str | None]:
    """Return what the sink shows."""
    return {row["id"]: row["notes"] for row in pipeline.rows()}


def written(pipeline: MemoryPipeline, step: int) -> dict[int, Row]:
    """Return the entries that a step wrote, by key."""
    return {entry["id"]: entry for entry in pipeline.state.to_pylist() if entry["_step"] == step}


def newest(pipeline: MemoryPipeline, key: int = 1) -> Row:
    """Return the last entry of a key."""
    found = [entry for entry in pipeline.state.to_pylist() if entry["id"] == key]
    return max(found, key=lambda entry: entry["_step"])
