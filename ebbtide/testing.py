"""Run a pipeline's whole logic without Spark: the same decoder and reconciler over Arrow tables in memory.

For tests of your own specs and records: `MemoryPipeline(spec).step(lines)`, then look at `sink`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.decoding import TOMBSTONE
from ebbtide.formats.records import RECORDS
from ebbtide.formats.summary import summarize
from ebbtide.model.changelog import ORDER, TRUNCATE, RowKind
from ebbtide.model.entries import DELETE, SINK_STEP, Reconciled
from ebbtide.model.offsets import OffsetRanges
from ebbtide.model.step import BatchSummary, Frontier, StepKind, clock_after, next_frontier
from ebbtide.runtime.plan import decoding_of, operator_of, rules_of
from ebbtide.spec.pipeline import Pipeline

KINDS = pa.array(list(map(str, RowKind)))
Row = dict[str, Any]


class MemoryPipeline:
    """A pipeline in memory.

    Args:
        spec: The pipeline; its source is not read.

    Example:
        >>> from ebbtide import UpsertPipeline
        >>> spec = UpsertPipeline(name="t", source={"path": "in", "records": "value"}, format={"type": "plain"},
        ...                       schema="id BIGINT", key=["id"], order="arrival")
        >>> pipeline = MemoryPipeline(spec)
        >>> pipeline.step(['{"kind": "+I", "row": {"id": 1}}', '{"kind": "-D", "row": {"id": 9}}'])
        >>> pipeline.rows(), pipeline.metrics["unmatched"]
        ([{'id': 1}], 1)
    """

    def __init__(self, spec: Pipeline) -> None:
        self.spec = spec
        self.operator, self.decoding, self._rules = operator_of(spec), decoding_of(spec), rules_of(spec)
        self.state = self.operator.schema.empty_table()
        self.sink: dict[str, Row] = {}
        self.changelog: list[Row] = []
        self.quarantine: list[Row] = []
        self.metrics: Counter[str] = Counter()
        self._quarantined: set[tuple[Any, ...]] = set()
        self._frontier: Frontier | None = None

    def step(self, lines: Iterable[str | bytes], *, now_ms: int | None = None, file: str | None = None) -> None:
        """Read lines as one step.

        Args:
            lines: Records as they stand in a file.
            now_ms: The clock, epoch ms; it does not go back. Default: it stands still, and no event time is ahead of it.
            file: Name of the file; each step's own by default.
        """
        values = [line.encode() if isinstance(line, str) else line for line in lines]
        number = self._frontier.step + 1 if self._frontier else 1
        n = len(values)
        records = pa.record_batch([[file or f"step-{number}"] * n, [0] * n, range(n), values], schema=RECORDS)
        batches = self.decoding.decode([records], step=number, wall_ms=now_ms)
        staged = pa.Table.from_batches(batches, self.decoding.schema)
        seen = self.positions
        summary = summarize(staged, self.decoding, tracks_offsets=self._tracks_offsets)
        frontier = self._advance(StepKind.BATCH, self.now_ms if now_ms is None else now_ms, summary)
        self._set_aside(staged.filter(pc.is_valid(staged["_reason"])))
        good = self._not_yet_read(staged.filter(pc.is_null(staged["_reason"])), seen)
        self.metrics["tombstones"] += pc.sum(pc.equal(good["_kind"], TOMBSTONE)).as_py() or 0
        changes = good.filter(pc.is_in(good["_kind"], KINDS))
        self._truncate(frontier)
        decided = self.operator.apply(changes, self._entries_of(changes), frontier.operator_step)
        self._take(decided, frontier)

    def tick(self, *, now_ms: int) -> None:
        """Expire what is due, as the end of every bounded run does."""
        frontier = self._advance(StepKind.TICK, now_ms)
        self._take(self.operator.expire(self.state, frontier.operator_step), frontier)

    @property
    def now_ms(self) -> int:
        """The clock of the last step, epoch ms."""
        return self._frontier.now_ms if self._frontier else 0

    @property
    def positions(self) -> OffsetRanges:
        """The offsets that have been read, where redelivered records are known by them."""
        return OffsetRanges(self._frontier.positions if self._frontier else {})

    def rows(self) -> list[Row]:
        """The sink's rows, the user's columns only, in order of key."""
        names, key = self.spec.sink_table.columns.names, self.spec.sink_key
        rows = sorted(self.sink.values(), key=lambda row: [row[name] for name in key])
        return [{name: row[name] for name in names} for row in rows]

    @property
    def _tracks_offsets(self) -> bool:
        return not self.spec.sequence and self.spec.has_positions

    def _advance(self, kind: StepKind, wall_ms: int, batch: BatchSummary | None = None) -> Frontier:
        clock = clock_after(self._frontier, self._rules, wall_ms, started_ms=0)
        self._frontier = next_frontier(self._frontier, kind, clock, self._rules, batch)
        return self._frontier

    def _truncate(self, frontier: Frontier) -> None:
        """Delete the sink's rows below a floor that this step has raised."""
        if not frontier.floor_raised or frontier.floor is None:
            return
        floor = tuple(frontier.floor)
        self.sink = {key: row for key, row in self.sink.items() if self._place(row) >= floor}

    def _set_aside(self, bad: pa.Table) -> None:
        """Put bad records into the quarantine; where records have places, one that is there already is redelivered."""
        for row in bad.select(["_reason", "_detail", "_raw", "_origin"]).to_pylist():
            record = (*row["_origin"].values(), row["_raw"])
            if self.spec.has_positions and record in self._quarantined:
                self.metrics["redelivered"] += 1
            else:
                self.quarantine.append(row)
            self._quarantined.add(record)

    def _not_yet_read(self, good: pa.Table, seen: OffsetRanges) -> pa.Table:
        """Leave out the redelivered records; in sequence mode the operator knows them by itself."""
        if not self._tracks_offsets:
            return good
        repeats = pa.array(seen.repeats(good))
        self.metrics["redelivered"] += pc.sum(pc.is_in(good.filter(repeats)["_kind"], KINDS)).as_py() or 0
        return good.filter(pc.invert(repeats))

    def _entries_of(self, changes: pa.Table) -> pa.Table:
        """Return the stored entries, at least those of the keys of `changes`; where live ones expire, the sink's rows too."""
        if not (self.spec.expires_live and self.sink):
            return self.state
        rows = {"_step": SINK_STEP, "_stamp_ms": 0}
        return pa.concat_tables(
            [self.state, pa.Table.from_pylist([row | rows for row in self.sink.values()], self.state.schema)]
        )

    def _take(self, result: Reconciled, frontier: Frontier) -> None:
        self.metrics.update(result.metrics)
        self.changelog += result.emitted.to_pylist() if result.emitted is not None else []
        if self.spec.emits_every and frontier.floor_raised and frontier.floor is not None:
            order = dict(zip(ORDER.names, frontier.floor, strict=True))
            self.changelog.append({"_kind": TRUNCATE, "_order": order})
        self.state = pa.concat_tables([self.state, result.entries])
        shown = result.entries.filter(pc.is_valid(result.entries["_change"]))
        if "_out" in shown.column_names:  # a function's rows for the sink stand in a column of their own
            out = shown["_out"].combine_chunks()
            for name in out.type.names:
                shown = _with(shown, name, pc.struct_field(out, name))
        reserved = ["_changed_by", *(["_sequence"] if self.spec.sequence else [])]
        names: Sequence[str] = [*self.spec.sink_table.columns.names, *reserved]
        for key, entry in zip(key_texts(shown, tuple(self.spec.sink_key)), shown.to_pylist(), strict=True):
            if entry["_change"] == DELETE:
                self.sink.pop(key, None)
            else:
                self.sink[key] = {name: entry[name] for name in names}

    def _place(self, row: Row) -> tuple[int, ...]:
        if self.spec.sequence:
            return tuple(row["_sequence"][name] for name in self.spec.sequence)
        order = row["_changed_by"]
        return order["step"], order["part"], order["position"]


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)


def key_texts(table: pa.Table, key: tuple[str, ...]) -> list[str]:
    """Return each row's key as a JSON list."""
    columns = [table[name].to_pylist() for name in key]
    return [json.dumps(list(values), default=str) for values in zip(*columns, strict=True)]


def canonical(row: Row) -> str:
    """Write a row as text, so that rows of any types can be compared and sorted."""
    return json.dumps(row, sort_keys=True, default=str)
