"""A pipeline on disk whose state is folded at random places, and what its entries tell by themselves, read without Spark."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from crashes.disk import DiskPipeline
from local.support import change, plain

from ebbtide import StatefulPipeline
from ebbtide.delta import Snapshot
from ebbtide.entries import SinkChange
from ebbtide.ledger import writer_of
from ebbtide.runtime import Plan, StateRewrite
from ebbtide.spec import Pipeline
from ebbtide.tables import KeepEntries, StateTable

Row = dict[str, Any]
KINDS = ("arrival", "sequence", "rows of a function")
SCHEMA = "id BIGINT NOT NULL, n INT NOT NULL, w INT"


def spec_at_random(kind: str, rng: random.Random) -> Pipeline:
    """Make a spec, by arrival with any options of the materializer."""
    ttl = rng.choice([None, "100ms"])
    if kind == "rows of a function":
        return StatefulPipeline(
            name="t",
            source={"path": "in", "records": "value"},
            format={"type": "plain"},
            key=["id"],
            schema=SCHEMA,
            function="ebbtide.functions:LagLead",
            output_key=["id", "n"],
            options={"order_by": ["n"]},
        )
    if kind == "sequence":
        return plain(SCHEMA, order={"sequence": ["n"]}, ttl=ttl)
    options: Row = {"keep": rng.choice(["first", "last"]), "max_history": rng.choice([None, 1, 2])}
    if ttl is not None:
        options["on_expire"] = rng.choice(["keep", "delete"])
    if rng.random() < 0.3:
        options["upsert_key"] = ["n"]
    if rng.random() < 0.5:
        options["retraction_grace"] = "150ms"
    return plain(SCHEMA, order="arrival", ttl=ttl, materializer=options)


def steps_at_random(kind: str, rng: random.Random) -> list[tuple[list[str], int]]:
    """Draw the records of some steps, each with its clock; a step without any is a tick."""
    steps = []
    added: list[Row] = []
    now_ms = 1_000
    for _ in range(rng.randint(4, 9)):
        now_ms += rng.choice([0, 10, 40, 120])
        lines = []
        for _ in range(rng.choice([0, 1, 3, 5])):
            row = {"id": rng.randint(0, 1), "n": rng.randint(0, 2), "w": rng.randint(0, 1)}
            if kind == "rows of a function":
                row["w"] = 0  # a row of its key is known by `n` alone
            retracts = rng.random() < 0.55
            if retracts and added and rng.random() < 0.8:
                row = rng.choice(added)
            if not retracts:
                added.append(row)
            lines.append(change(rng.choice(["-U", "-D", "-D"] if retracts else ["+I", "+U"]), **row))
        steps.append((lines, now_ms))
    return steps


class FoldedAtRandom(DiskPipeline):
    """Folds, after each step, files that are drawn.

    Args:
        spec: The pipeline.
        root: Folder of its tables.
        rng: Draws them.
    """

    def __init__(self, spec: Pipeline, root: Any, rng: random.Random) -> None:
        super().__init__(spec, root)
        self._rng = rng

    def play(self, lines: list[str], now_ms: int) -> None:
        """Make a step, or a tick if there are no records, and fold."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StateTable, "files_to_fold", lambda _, snapshot: self._drawn(snapshot))
            if lines:
                self.step(lines, now_ms=now_ms)
            else:
                self.tick(now_ms=now_ms)
        if self.head.facts.step and self._rng.random() < 0.1:
            self._leave_out_expired()

    def _drawn(self, snapshot: Any) -> list[Any]:
        files = list(snapshot.files.values())
        return self._rng.sample(files, self._rng.randint(0, len(files)))

    def _leave_out_expired(self) -> None:
        files = list(self.snapshot.files.values())
        keep = KeepEntries(is_whole=True, at=self.head.facts.operator_step)
        adds = StateRewrite(self.plan, files, keep, is_whole=True, data_change=False).written(self)
        self.snapshot = writer_of(self.plan.state.path).join(self.snapshot, files, adds, {})


def newest_versions_of(plan: Plan) -> list[Row]:
    """The versions of the greatest step of each entry, dropped ones too."""
    by_entry = defaultdict(list)
    for row in plan.state.snapshot().rows(plan.state.schema).to_pylist():
        if row["_entry"] == "row":
            by_entry[tuple(row[name] for name in plan.operator.entry_key)].append(row)
    found = []
    for versions in by_entry.values():
        last = max(version["_step"] for version in versions)
        found += [version for version in versions if version["_step"] == last]
    return found


def told(plan: Plan) -> dict[Any, Row | None]:
    """What the state tells that was decided last, by key of the sink: the row with its cause, None if it was deleted."""
    newest = newest_versions_of(plan)
    last_step: dict[Any, int] = defaultdict(int)
    for entry in newest:
        last_step[entry["id"]] = max(last_step[entry["id"]], entry["_step"])
    found: dict[Any, Row] = {}
    for entry in sorted(newest, key=lambda each: each["_step"]):
        is_note = entry["_change"] is None
        if is_note and (entry.get("_tombstone", True) or entry["_removed"]):
            continue
        if entry["_removed"] and entry["_step"] < last_step[entry["id"]]:
            continue
        row = {**entry, **(entry.get("_out") or {})}
        found[tuple(row[name] for name in plan.sink.key)] = row
    names = (*plan.sink.columns.names, "_changed_by")
    return {
        key: None if row["_change"] == SinkChange.DELETE else {name: row[name] for name in names}
        for key, row in found.items()
    }


def in_sink(plan: Plan) -> dict[Any, Row]:
    """What the sink shows, by key, with its causes."""
    rows = Snapshot.read(plan.sink.path).rows(plan.sink.schema).to_pylist()
    names = (*plan.sink.columns.names, "_changed_by")
    return {tuple(row[name] for name in plan.sink.key): {name: row[name] for name in names} for row in rows}
