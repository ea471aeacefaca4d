"""A pipeline on disk without Spark: what workers and driver do in a step, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import create, read_rows
from ebbtide.formats.records import RECORDS
from ebbtide.formats.summary import summarize
from ebbtide.ledger.facts import Head, StepFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.model.step import BatchSummary, StepKind, clock_after, next_frontier
from ebbtide.runtime import decide as deciding
from ebbtide.runtime.fold import fold_state
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.stage import Staged
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.change_set import StepChanges
from ebbtide.state_table.staged import StagedFile, Stager

Row = dict[str, Any]


class DiskPipeline:
    """Steps and ticks over files, as `MemoryPipeline` makes them in memory.

    Args:
        spec: The pipeline; its source is not read.
        root: Folder of its tables.
        tasks: Tasks that a step is dealt out to.
    """

    def __init__(self, spec: Pipeline, root: Path, tasks: int = 2) -> None:
        self.spec = spec
        self.plan = Plan.under(str(root), spec)
        self.tasks = tasks
        self.metrics: Counter[str] = Counter()
        self.plan.state.create()
        sink = self.plan.sink
        create(puts_of(sink.path), sink.path, sink._stored_schema, sink._stored_properties, name="sink", info={})
        self.snapshot = self.plan.state.snapshot()
        self.head = Head(0, None)

    def step(self, lines: Iterable[str | bytes], *, now_ms: int = 0) -> None:
        """Read lines as one step."""
        number = self.head.facts.step + 1 if self.head.facts else 1
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        n = len(raw)
        records = pa.record_batch([[f"step-{number}"] * n, [0] * n, range(n), raw], schema=RECORDS)
        decoding = self.plan.decoding
        tables = [pa.Table.from_batches([b]) for b in decoding.decode([records], step=number, wall_ms=now_ms)]
        summaries = [summarize(rows, decoding, tracks_offsets=self.plan.tracks_offsets) for rows in tables]
        operator = self.plan.operator
        staged = Stager(self.plan.at("staged"), operator.changes, operator.key).stage(tables)
        summary = BatchSummary.total(summaries)
        summary, facts = self._with_bad_rows(staged, summary, now_ms)
        self.snapshot, facts = deciding.decide(
            self, self.plan, self.head, Staged((staged,), summary), facts, snapshot=self.snapshot, parts=[]
        )
        self._advance(facts)

    def tick(self, *, now_ms: int) -> None:
        """Expire what is due."""
        facts = self._facts(StepKind.TICK, now_ms)
        decision = deciding.expire(self, self.plan, self.head, facts, snapshot=self.snapshot, must_commit=False)
        if decision is not None:
            self.snapshot, facts = decision
            self._advance(facts)

    def rows(self) -> list[Row]:
        """The sink's rows, the user's columns only, in order of key."""
        sink = Snapshot.read(self.plan.sink.path)
        rows = read_rows(sink, self.spec.sink_table.columns)
        return rows.sort_by([(name, "ascending") for name in self.spec.sink_key]).to_pylist()

    # What of a Spark session the step asks for.
    @property
    def conf(self) -> Any:
        return {"spark.sql.shuffle.partitions": str(self.tasks)}

    @property
    def sparkContext(self) -> DiskPipeline:  # noqa: N802 - Spark's name
        return self

    def parallelize(self, items: list[Any], _: int) -> DiskPipeline:
        self._items = items
        return self

    def map(self, work: Any) -> DiskPipeline:
        self._work = work
        return self

    def collect(self) -> list[Any]:
        return [self._work(item) for item in self._items]

    def _facts(self, kind: StepKind, now_ms: int, batch: BatchSummary | None = None) -> StepFacts:
        last = self.head.facts
        clock = clock_after(last, self.plan.rules, now_ms, started_ms=0)
        frontier = next_frontier(last, kind, clock, self.plan.rules, batch)
        made_by = {
            "pipeline": "t",
            "incarnation": "i",
            "epoch": 0,  # under no lease
            "state_version": self.head.version,
            "spec": self.spec.identity,
            "code": "0",
        }
        return StepFacts(**dict(frontier), **made_by)

    def _with_bad_rows(self, staged: StagedFile, summary: BatchSummary, now_ms: int) -> tuple[BatchSummary, StepFacts]:
        bad = Staged((staged,), summary).bad()
        new = self.plan.quarantine.new(bad, deciding.read_before(self.plan, self.head))
        summary = replace(summary, bad=len(new))
        facts = self._facts(StepKind.BATCH, now_ms, summary)
        return summary, facts.model_copy(update={"bad_rows": self.plan.quarantine.write(new, facts)})

    def reload(self) -> None:
        """Go on from what somebody else did to the tables."""
        version, facts = self.plan.state.last()
        self.snapshot = self.plan.state.snapshot()
        self.head = Head(version, facts, self.plan.state.counts(version, facts)["pending_key_changes"] > 0)

    def _advance(self, facts: StepFacts) -> None:
        version = self.snapshot.version
        counts = self.plan.state.counts(version, facts)
        self.metrics.update(counts)
        pending = counts["pending_key_changes"] > 0 if facts.kind.reads_records else self.head.pending_key_changes
        self.head = Head(version, facts, pending)
        changes = StepChanges(self.plan.state.path, version, self.plan.operator)
        self.plan.sink.apply(None, changes, facts, only_inserts=False)
        self.plan.quarantine.append(facts)
        self.snapshot = fold_state(self, self.plan, facts, self.snapshot)
        self.plan.sink.fold()
