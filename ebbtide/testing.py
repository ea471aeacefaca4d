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

from ebbtide.changelog import ORDER, TRUNCATE, OffsetRanges, RowKind
from ebbtide.entries import SINK_STEP, Reconciled, SinkChange, count_lone
from ebbtide.errors import ConfigError
from ebbtide.formats import RECORDS, StagedKind
from ebbtide.model import BatchSummary, Frontier
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

KINDS = pa.array(list(map(str, RowKind)))
Row = dict[str, Any]


class MemoryPipeline:
    """A pipeline in memory.

    Args:
        spec: The pipeline; its source is not read.

    Raises:
        ConfigError: it has a transform, which Spark alone evaluates.

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
        if spec.has_transform:
            raise ConfigError.of(
                f"'{spec.name}' cannot run in memory.",
                got="a transform, which Spark alone evaluates",
                allowed="a pipeline without one",
                next_step="Run it on Spark, or test the spec without its transform.",
            )
        self.spec = spec
        plan = Plan("", spec)
        self.operator = plan.operator
        self.decoding = spec.decoding
        self._rules = plan.rules
        self.state = self.operator.schema.empty_table()
        self.sink: dict[str, Row] = {}
        self.changelog: list[Row] = []
        self.quarantine: list[Row] = []
        self.metrics: Counter[str] = Counter()
        self._quarantined: set[tuple[Any, ...]] = set()
        self._frontier: Frontier | None = None
        self._step = 0

    def step(self, lines: Iterable[str | bytes], *, now_ms: int | None = None, file: str | None = None) -> None:
        """Read lines as one step.

        Args:
            lines: Records, as in a file.
            now_ms: The clock, epoch ms; it does not go back. Default: it stands still, and no event time is ahead of it.
            file: Name of the file; each step's own by default.
        """
        number = self._step + 1
        records = _records(lines, file or f"step-{number}")
        batches = self.decoding.decode([records], step=number, wall_ms=now_ms)
        staged = pa.Table.from_batches(batches, self.decoding.schema)
        read_before = self.positions
        summary = self.decoding.summarize(staged, tracks_offsets=self._tracks_offsets)
        floor_before = self._frontier.floor if self._frontier else None
        frontier = self._advance(self.now_ms if now_ms is None else now_ms, summary)
        is_bad = pc.is_valid(staged["_reason"])
        self._set_aside(staged.filter(is_bad), read_before)
        good = self._not_yet_read(staged.filter(pc.invert(is_bad)), read_before)
        self.metrics["other_tables"] += summary.counts.other_tables
        self.metrics["not_rows"] += summary.counts.not_rows
        is_tombstone = pc.equal(good["_kind"], StagedKind.TOMBSTONE)
        self.metrics["tombstones"] += _count(is_tombstone)
        raised = frontier.floor if frontier.floor != floor_before else None
        self._truncate(raised)
        changes = good.filter(pc.is_in(good["_kind"], KINDS))
        entries = self._entries_of(changes)
        result = self.operator.apply(changes, entries, frontier.operator_step(number))
        doubts = good.filter(pc.equal(good["_kind"], StagedKind.IN_DOUBT))
        self.metrics += count_lone(
            doubts, entries, result.entries, key=self.operator.key, entry_key=self.operator.entry_key
        )
        self._apply(result, raised)

    def tick(self, *, now_ms: int) -> None:
        """Expire due entries, like the end of every bounded run."""
        frontier = self._advance(now_ms)
        result = self.operator.expire(self.state, frontier.operator_step(self._step))
        self._apply(result, None)

    @property
    def now_ms(self) -> int:
        """The clock of the last step, epoch ms."""
        return self._frontier.now_ms if self._frontier else 0

    @property
    def positions(self) -> OffsetRanges:
        """The offsets that have been read, where redelivered records are known by them."""
        return OffsetRanges(self._frontier.offsets if self._frontier else {})

    def rows(self) -> list[Row]:
        """The sink's rows, the user's columns only, in order of key."""
        names = self.spec.sink_table.columns.names
        key = self.spec.sink_key
        by_key = sorted(self.sink.values(), key=lambda row: _values(row, key))
        rows = []
        for row in by_key:
            values = _values(row, names)
            rows.append(dict(zip(names, values, strict=True)))
        return rows

    @property
    def _tracks_offsets(self) -> bool:
        return self.spec.applies_in_order and self.spec.has_positions

    def _advance(self, wall_ms: int, batch: BatchSummary | None = None) -> Frontier:
        clock = self._rules.clock_after(self._frontier, wall_ms, started_ms=0)
        self._frontier = self._rules.next_frontier(self._frontier, clock, batch)
        self._step += 1
        return self._frontier

    def _truncate(self, floor: tuple[int, ...] | None) -> None:
        """Delete the sink's rows below a floor that this step has raised; None: it has raised none."""
        if floor is None:
            return
        below = [key for key, row in self.sink.items() if self._rank(row) < floor]
        for key in below:
            del self.sink[key]

    def _set_aside(self, bad: pa.Table, read_before: OffsetRanges) -> None:
        """Put bad records into the quarantine; where records have places, one that was read before is redelivered."""
        for row in bad.select(["_reason", "_detail", "_raw", "_origin"]).to_pylist():
            record = (*row["_origin"].values(), row["_raw"])
            is_known = record in self._quarantined or read_before.knows_origin(row["_origin"])
            if self.spec.has_positions and is_known:
                self.metrics["redelivered"] += 1
            else:
                self.quarantine.append(row)
            self._quarantined.add(record)

    def _not_yet_read(self, good: pa.Table, read_before: OffsetRanges) -> pa.Table:
        """Leave out the redelivered records; in sequence mode the operator knows them by itself."""
        if not self._tracks_offsets:
            return good
        is_repeat = pa.array(read_before.repeats(good))
        redelivered = good.filter(is_repeat)
        self.metrics["redelivered"] += _count(pc.is_in(redelivered["_kind"], KINDS))
        return good.filter(pc.invert(is_repeat))

    def _entries_of(self, changes: pa.Table) -> pa.Table:
        """Return the stored entries, at least those of the keys of `changes`; where live ones expire, the sink's rows too."""
        if not (self.spec.expires_live and self.sink):
            return self.state
        marks = {"_step": SINK_STEP, "_stamp_ms": 0}
        rows = [row | marks for row in self.sink.values()]
        sink_rows = pa.Table.from_pylist(rows, self.state.schema)
        return pa.concat_tables([self.state, sink_rows])

    def _apply(self, result: Reconciled, raised: tuple[int, ...] | None) -> None:
        """Write what an operator decided: changelog, state, and the sink's rows that change."""
        self.metrics.update(result.metrics)
        if result.emitted is not None:
            self.changelog += result.emitted.to_pylist()
        if self.spec.emits_every and raised is not None:
            order = dict(zip(ORDER.names, raised, strict=True))
            self.changelog.append({"_kind": TRUNCATE, "_order": order})
        versions = pa.concat_tables([self.state, result.entries])
        self.state = versions.combine_chunks()  # rows are taken slowly from many small chunks
        shown = result.entries.filter(pc.is_valid(result.entries["_change"]))
        if "_out" in shown.column_names:  # a function's rows for the sink are in a separate column
            out = shown["_out"].combine_chunks()
            for name in out.type.names:
                shown = _with(shown, name, pc.struct_field(out, name))
        names = [*self.spec.sink_table.columns.names, "_changed_by"]
        if self.spec.sequence:
            names.append("_sequence")
        keys = key_texts(shown, tuple(self.spec.sink_key))
        for key, entry in zip(keys, shown.to_pylist(), strict=True):
            if entry["_change"] == SinkChange.DELETE:
                self.sink.pop(key, None)
            else:
                self.sink[key] = {name: entry[name] for name in names}

    def _rank(self, row: Row) -> tuple[int, ...]:
        """Return what a floor is compared with: the row's sequence, by arrival the order of its last change."""
        if self.spec.sequence:
            return tuple(row["_sequence"][name] for name in self.spec.sequence)
        order = row["_changed_by"]
        return order["step"], order["part"], order["position"]


def _records(lines: Iterable[str | bytes], file: str) -> pa.RecordBatch:
    raw = [line.encode() if isinstance(line, str) else line for line in lines]
    n = len(raw)
    columns = {
        "file": [file] * n,
        "part": [0] * n,
        "line": range(n),
        "value": raw,
    }
    return pa.record_batch(columns, schema=RECORDS)


def _count(is_counted: pa.BooleanArray) -> int:
    return int(pc.sum(is_counted).as_py() or 0)


def _values(row: Row, names: Sequence[str]) -> list[Any]:
    return [row[name] for name in names]


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
