"""A pipeline on disk without Spark: what workers and driver do in a step, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from local.made_facts import made_facts
from local.support import change

from ebbtide.delta import Definition, Snapshot
from ebbtide.executors import Executor, InProcess
from ebbtide.formats import RECORDS
from ebbtide.ledger import Head, StateFacts, StepFacts, writer_of
from ebbtide.model import Append, BatchSummary, StepRecords
from ebbtide.runtime import Plan, Staged, Stager
from ebbtide.runtime import _decide as deciding
from ebbtide.runtime._fold import fold_state
from ebbtide.runtime._workers.staging import StagedFile
from ebbtide.spec import Pipeline

Row = dict[str, Any]


class DiskPipeline(Executor):
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
        writer_of(sink.path).create(
            sink.path, Definition(sink.stored_schema, sink.stored_properties), name="sink", info={}
        )
        self.snapshot = self.plan.state.snapshot()
        self.head = Head(0)

    def step(self, lines: Iterable[str | bytes], *, now_ms: int = 0) -> None:
        """Read lines as one step."""
        number = self.head.facts.step + 1
        raw = [line.encode() if isinstance(line, str) else line for line in lines]
        n = len(raw)
        records = pa.record_batch([[f"step-{number}"] * n, [0] * n, range(n), raw], schema=RECORDS)
        decoding = self.plan.decoding
        tables = [pa.Table.from_batches([b]) for b in decoding.decode([records], step=number, wall_ms=now_ms)]
        summaries = [decoding.summarize(rows, tracks_offsets=self.plan.tracks_offsets) for rows in tables]
        operator = self.plan.operator
        staged = Stager(self.plan.at("staged"), operator.changes, operator.key, n_slices=self.slices).stage(tables)
        summary = BatchSummary.total(summaries)
        summary, facts = self._with_bad_rows(staged, summary, now_ms)
        self.snapshot, facts = deciding.decide(
            self, self.plan, self.head, Staged((staged,), summary), facts, snapshot=self.snapshot, parts=[]
        )
        self._advance(facts)

    def tick(self, *, now_ms: int) -> None:
        """Expire what is due."""
        facts = self._facts("tick", now_ms)
        decision = deciding.expire(self, self.plan, self.head, facts, snapshot=self.snapshot, must_commit=False)
        if decision is not None:
            self.snapshot, facts = decision
            self._advance(facts)

    def rows(self) -> list[Row]:
        """The sink's rows, the user's columns only, in order of key."""
        sink = Snapshot.read(self.plan.sink.path)
        rows = sink.rows(self.spec.sink_table.columns)
        return rows.sort_by([(name, "ascending") for name in self.spec.sink_key]).to_pylist()

    @property
    def parallelism(self) -> int:
        """The tasks of a step."""
        return self.tasks

    def map(self, work: Any, items: Any, *, is_little: bool | None = None, at: Any = None) -> list[Any]:
        """Do the tasks' work, one after the other, and note what was dealt out."""
        if len(items) > 1 and not is_little:
            self.dealt_out = items
        return [work(item) for item in items]

    def _facts(self, what: str, now_ms: int, batch: BatchSummary | None = None) -> StepFacts:
        last = self.head.facts
        stands = last.frontier
        clock = self.plan.rules.clock_after(stands, now_ms, started_ms=0)
        return made_facts(
            last.step + 1,
            what,
            epoch=0,  # under no lease
            frontier=self.plan.rules.next_frontier(stands, clock, batch),
            read=StepRecords() if batch is None else StepRecords.of(stands, batch),
            state=StateFacts(
                version=self.head.version,
                spec=self.spec.identity,
                pending_key_changes=last.state.pending_key_changes,
            ),
        )

    def _with_bad_rows(self, staged: StagedFile, summary: BatchSummary, now_ms: int) -> tuple[BatchSummary, StepFacts]:
        bad = Staged((staged,), summary).bad()
        new = self.plan.quarantine.new(bad, self.plan.offsets_read(self.head))
        summary = summary.with_counts(bad=len(new))
        facts = self._facts("batch", now_ms, summary)
        bad_rows = self.plan.quarantine.write(new, facts)
        return summary, facts.with_tables({"quarantine": Append(tuple(bad_rows))}) if bad_rows else facts

    def reload(self) -> None:
        """Go on from what somebody else did to the tables."""
        self.head = Head(*self.plan.state.last())
        self.snapshot = self.plan.state.snapshot()

    def _advance(self, facts: StepFacts) -> None:
        version = self.snapshot.version
        self.metrics.update(facts.decision.counts)
        self.head = Head(version, facts)
        changes = self.plan.state.changes(version)
        self.plan.sink.apply(InProcess(), changes, facts)
        if facts.decision.bad_rows:
            self.plan.quarantine.append(facts.decision.bad_rows, facts)
        self.snapshot = fold_state(self, self.plan, self.snapshot)
        self.plan.sink.fold(InProcess())


def with_second_versions(of, folder, times_ms=(0, 0)):
    """Return a state with entries 0 to 5 in two files, of which 0 to 2 have a second version."""
    disk = DiskPipeline(of, folder)
    first_ms, second_ms = times_ms
    disk.step([change("+U", id=id_, n=1, at=1) for id_ in range(6)], now_ms=first_ms)
    disk.step([change("+U", id=id_, n=2, at=2) for id_ in range(3)], now_ms=second_ms)
    return disk.plan.state
