"""Backfill: a pipeline's tables are built once more, from the source's beginning or another place, beside those in use, and swapped in.

What is built is a pipeline of its own under `ROOT/NAME/backfill`, made by runs like any other, so that one that dies is gone on with. The
pipeline itself goes on meanwhile. A swap holds its lease, lets the backfill read the rest, and is a step: its decision is the backfill's
state, its redo gives the sink the rows that differ, in one commit (`ebbtide.runtime.swap`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pyspark.sql import SparkSession

from ebbtide.delta import log
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import BackfillError, ConfigError
from ebbtide.inspect.backlog import lag
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.lease import Lease
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.maintenance.job import stepping
from ebbtide.model.durations import to_ms
from ebbtide.model.step import StepKind
from ebbtide.paths import delete, join, read_bytes
from ebbtide.runtime import driver, swap
from ebbtide.runtime.clock import Clock, system_clock
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.progress import OnPhase, OnProgress
from ebbtide.runtime.step import Stepper
from ebbtide.sources.kafka.position import TopicRange
from ebbtide.spec.kafka import KafkaSource, KafkaStart
from ebbtide.spec.pipeline import Pipeline
from ebbtide.spec.view import MaterializedView

ASKED = "asked.json"
"""What the backfill was asked to be, beside its tables."""
SAMPLE = 20
"""Keys that a comparison names at most."""
LAST_STEPS = 20
"""Steps that the pace is measured by."""
MAY_CHANGE = frozenset({"format", "ttl", "transform", "states", "columns"})
"""Parts of a spec's identity in which a backfill may differ from what is stored, as long as the sink's columns stay."""


class Asked(BaseModel):
    """What a backfill was asked to be."""

    model_config = ConfigDict(frozen=True)

    start: str | KafkaStart = Field(description="Where it begins to read: earliest, or a time or offsets of a topic.")
    snapshot: str | None = Field(
        default=None, description="Topic that is read before that, whole; None: there is none."
    )

    @property
    def text(self) -> str:
        """Say it."""
        return f"topic {self.snapshot}, then {self._place}" if self.snapshot else self._place

    @property
    def _place(self) -> str:
        if isinstance(self.start, str):
            return self.start
        if self.start.timestamp is not None:
            return self.start.timestamp.isoformat()
        offsets = self.start.offsets or {}
        return ",".join(f"{partition}={offset}" for partition, offset in sorted(offsets.items()))


@dataclass(frozen=True)
class BackfillStatus:
    """How far a backfill is.

    Args:
        pipeline: Name of the pipeline.
        start: Where it began to read; empty: there is none.
        step: Its last step; 0 before the first.
        records: Records that it has read.
        quarantined: Bad ones among them.
        waiting: Records that it has still to read, of files about.
        percent: How much it has read of what is there.
        records_per_second: Its pace over its last steps; None if that is not known.
        seconds_left: How long it will take at that pace if nothing new comes; None if that is not known.
    """

    pipeline: str
    start: str = ""
    step: int = 0
    records: int = 0
    quarantined: int = 0
    waiting: int = 0
    percent: float = 0.0
    records_per_second: float | None = None
    seconds_left: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if not self.start:
            return f"{self.pipeline}: no backfill. To begin one: 'ebbtide backfill start'."
        parts = [f"step {self.step}", f"{self.records:,} records", f"{self.percent:.1f} %"]
        if self.records_per_second is not None:
            parts.append(f"{self.records_per_second:,.0f} records/s")
        if self.waiting and self.seconds_left is not None:
            parts.append(f"about {self.seconds_left:,.0f} s left")
        told = ", ".join(parts)
        if self.waiting:
            return f"{self.pipeline}: backfill from {self.start}: {told}; {self.waiting:,} records wait: 'ebbtide backfill start' goes on."
        return f"{self.pipeline}: backfill from {self.start}: {told}. To compare it: 'ebbtide backfill swap'."


@dataclass(frozen=True)
class SwapReport:
    """What a swap would change in the sink, or did.

    Args:
        pipeline: Name of the pipeline.
        records: Records that the backfill has read.
        added: Rows that come.
        changed: Rows that become others.
        deleted: Rows that go.
        keys: Some of their keys; none where a column of the key is personal.
        step: The step that did it; None of a plan.
    """

    pipeline: str
    records: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    keys: Sequence[dict[str, Any]] = field(default_factory=tuple)
    step: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        counts = f"{self.added} rows come, {self.changed} become others, {self.deleted} go"
        lines = [f"{self.pipeline}: backfill of {self.records:,} records: {counts}."]
        for key in self.keys:
            told = ", ".join(f"{name}: {value}" for name, value in key.items())
            lines.append(f"  {told}")
        if self.step is None:
            lines.append("To do it: 'ebbtide backfill swap --apply'.")
        else:
            lines.append(f"Done in step {self.step}.")
        return "\n  ".join(lines)


def start_of(text: str) -> str | KafkaStart:
    """Read where a backfill is to begin.

    Args:
        text: `earliest`, a time in ISO 8601, or offsets as `0=12,1=40`.

    Raises:
        ConfigError: it is none of these.

    Example:
        >>> start_of("0=12,1=40").offsets
        {0: 12, 1: 40}
    """
    if text == "earliest":
        return text
    try:
        if "=" in text:
            pairs = [pair.split("=") for pair in text.split(",")]
            return KafkaStart(offsets={int(partition): int(offset) for partition, offset in pairs})
        return KafkaStart(timestamp=datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigError.of(
            "Where the backfill is to begin cannot be read.",
            got=text,
            allowed="earliest, a time as 2026-01-31T12:00:00, or offsets as 0=12,1=40",
        ) from error


def start(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    begin: str | KafkaStart | None = None,
    *,
    snapshot: str | None = None,
    max_records_per_second: int | None = None,
    on_progress: OnProgress = driver.ignore,
    on_phase: OnPhase = driver.ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
) -> BackfillStatus:
    """Build a pipeline's tables once more, beside those in use, up to what is there; go on with one that was begun.

    Args:
        spark: A session with Delta.
        spec: The pipeline, as its tables are to be.
        root: Folder of all pipelines' tables.
        begin: Where to begin to read; None: where the one begun does, or at the earliest record.
        snapshot: A topic of the same cluster that is read before, whole: by sequence, rows of the same form. None: as begun, or none.
        max_records_per_second: Its pace. Default: as the spec says.
        on_progress: Called after each of its steps.
        on_phase: Called as each phase begins.
        stop: Set it to end after the step under way.
        clock: Returns the time, epoch ms.

    Raises:
        BackfillError: the pipeline cannot be built beside itself, or another backfill was begun.
        EbbtideError: as of a run.
    """
    tables = Plan.under(root, spec)
    _refuse_unfit(tables)
    asked = _begun(tables, begin, snapshot)
    stop = stop or threading.Event()
    beside = _beside(spec, asked, max_records_per_second)
    run = partial(
        driver.run,
        spark,
        root=tables.backfills,
        on_progress=on_progress,
        on_phase=on_phase,
        stop=stop,
        clock=clock,
    )
    if asked.snapshot is not None and not _has_read_snapshot(tables, beside):
        run(spec=_of_topic(beside, asked.snapshot))
        if stop.is_set():
            return status(spec, root, clock())
        _turn_to(spark, tables, beside, clock())
    n_before = None
    while not stop.is_set():
        done = run(spec=beside)
        n_read = done.totals["records"]
        n_batches = sum(step.kind == "batch" for step in done.steps)
        does_not_catch_up = n_before is not None and n_read >= n_before
        if n_batches <= 1 or does_not_catch_up:
            break
        n_before = n_read
    return status(spec, root, clock())


def _has_read_snapshot(tables: Plan, beside: Pipeline) -> bool:
    """Return whether a backfill has gone on to the pipeline's own source."""
    commit = Plan.under(tables.backfills, beside).state.last()
    return commit is not None and commit[1].spec["source"] == beside.source.identity


def _of_topic(beside: Pipeline, topic: str) -> Pipeline:
    """Return the spec of a backfill that reads a snapshot."""
    source = beside.source.model_copy(update={"topic": topic, "start": "earliest"})
    return beside.model_copy(update={"source": source})


def _turn_to(spark: SparkSession, tables: Plan, beside: Pipeline, now_ms: int) -> None:
    """Have a backfill that has read its snapshot go on to the pipeline's own source."""
    plan = Plan.under(tables.backfills, beside)
    found = plan.source.discover({}, now_ms).position or {}
    if not log.versions(plan.state.path) or plan.state.last() is None:
        raise BackfillError.of(
            f"The snapshot of '{beside.name}' is empty.",
            next_step="Run 'ebbtide backfill drop', and begin without it; or fill the topic first.",
        )
    with stepping(spark, plan, now_ms) as stepper:
        stepper.publish(spark)
        stepper.turn_to(spark, found | {"to": found["from"]})


def status(spec: Pipeline, root: str, clock_ms: int) -> BackfillStatus:
    """Tell how far a backfill is. Loads no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
    """
    tables = Plan.under(root, spec)
    asked = _asked(tables)
    if asked is None:
        return BackfillStatus(spec.name)
    beside = _beside(spec, asked)
    if asked.snapshot is not None and not _has_read_snapshot(tables, beside):
        beside = _of_topic(beside, asked.snapshot)
    plan = Plan.under(tables.backfills, beside)
    commit = plan.state.last()
    waits = lag(beside, tables.backfills, clock_ms).backlog
    if commit is None:
        return BackfillStatus(spec.name, asked.text, waiting=waits.total_records or waits.files or 0)
    _, last = commit
    records = last.total_records or 0
    done, left = _done_and_left(plan, last, waits.total_records, waits.files)
    # Of files the records that are left are taken to be as many a file as those read.
    waiting = left if waits.total_records is not None or not done else round(left * records / done)
    pace = _pace(plan)
    return BackfillStatus(
        pipeline=spec.name,
        start=asked.text,
        step=last.step,
        records=records,
        quarantined=last.total_quarantined or 0,
        waiting=waiting,
        percent=round(100 * done / (done + left), 1) if done + left else 100.0,
        records_per_second=pace,
        seconds_left=round(waiting / pace, 1) if pace else None,
    )


def _done_and_left(plan: Plan, last: StepFacts, waiting: int | None, files: int | None) -> tuple[int, int]:
    """Return how many records of a topic, or files, were read, and how many were not."""
    if last.source_position is not None:
        return last.total_records or 0, waiting or 0
    snapshot = plan.state.snapshot()
    return len(plan.state.files(snapshot.files.values())), files or 0


def _pace(plan: Plan) -> float | None:
    """Return how many records a second the last steps have read; None of fewer than two."""
    newest_first = (facts for _, facts in plan.state.steps() if facts.kind is StepKind.BATCH)
    steps = list(islice(newest_first, LAST_STEPS))
    if len(steps) < 2:
        return None
    took_ms = (steps[0].wall_ms or 0) - (steps[-1].wall_ms or 0)
    n_records = sum(facts.records for facts in steps[1:])  # a step's time is that of its beginning
    return round(n_records * 1000 / took_ms, 1) if took_ms > 0 else None


def swap_in(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    applies: bool,
    clock: Clock = system_clock,
) -> SwapReport:
    """Compare a backfill with the pipeline, both at the same place of the source; put it in its place if that is asked.

    A run that goes on for ever makes way meanwhile.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        applies: Do it; else only tell what it would change.
        clock: Returns the time, epoch ms.

    Raises:
        BackfillError: there is no backfill, or it has not read what the pipeline has.
        LeaseHeldError: the pipeline is being run, or the backfill is.
    """
    tables = Plan.under(root, spec)
    with stepping(spark, tables, clock()) as stepper:
        last = stepper.last
        asked = _asked(tables)
        if last is not None and last.swap is not None and _is_swapped(tables, last, asked):
            stepper.publish(spark)
            return SwapReport(spec.name, last.total_records or 0, step=last.step)
        if asked is None:
            raise _none(tables)
        _refuse_unfit(tables)
        beside = _beside(spec, asked)
        driver.run(spark, beside, tables.backfills, clock=clock)
        with stepping(spark, Plan.under(tables.backfills, beside), clock()) as taken:
            _refuse_behind(stepper, taken)
            taken.publish(spark)
            report = _compared(spark, tables, taken)
            if not applies:
                return report
            versions = _versions(taken.plan)
            actions = swap.state_actions(tables, stepper.newest(), taken.newest())
            facts = stepper.swapped(taken, versions, clock())
            stepper.commit(facts, actions)
        # The backfill's lease is given back by now, since its folder goes.
        stepper.publish(spark)
        return replace(report, step=facts.step)


def drop(spec: Pipeline, root: str) -> BackfillStatus:
    """Delete a backfill. Starts no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.

    Raises:
        BackfillError: it is being swapped in.
        LeaseHeldError: it is being built.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    asked = _asked(tables)
    if commit is not None and asked is not None and _is_swapped(tables, commit[1], asked):
        raise BackfillError.of(
            f"The backfill of '{spec.name}' is being swapped in, in step {commit[1].step}.",
            next_step="Run 'ebbtide run' or 'ebbtide backfill swap --apply': either ends that, and drops it.",
        )
    if tables.backfill.turn is not None:
        with Lease(tables.backfill.at("ledger"), spec.name, to_ms(spec.lease_ttl) / 1000):
            pass  # nobody builds it
    delete(tables.backfills)
    return BackfillStatus(spec.name)


def _is_swapped(tables: Plan, last: StepFacts, asked: Asked | None) -> bool:
    """Return whether the last step has swapped in the backfill that is there, or there is none any more."""
    if last.swap is None:
        return False
    turn = tables.backfill.turn
    if turn is None:
        return asked is None
    return turn.incarnation == last.swap.incarnation


def _asked(tables: Plan) -> Asked | None:
    raw = read_bytes(join(tables.backfills, ASKED))
    return None if raw is None else Asked.model_validate_json(raw)


def _begun(tables: Plan, begin: str | KafkaStart | None, snapshot: str | None) -> Asked:
    """Note what the backfill is asked to be, if none was begun; refuse another one than that."""
    wanted = Asked(start="earliest" if begin is None else begin, snapshot=snapshot)
    is_topic = isinstance(tables.spec.source, KafkaSource)
    if snapshot is not None and not (is_topic and tables.spec.sequence):
        raise BackfillError.of(
            f"'{tables.spec.name}' cannot begin with a snapshot: its rows would be applied beside the changes that they are made of.",
            allowed="a topic, with order: {sequence: ...}",
        )
    if not is_topic and wanted.start != "earliest":
        raise BackfillError.of(
            f"A backfill from a folder reads all its files, and '{tables.spec.name}' reads one.",
            got=wanted.text,
            allowed="earliest",
        )
    known = _asked(tables)
    if known is None:
        puts_of(tables.backfills).put_if_absent(join(tables.backfills, ASKED), wanted.model_dump_json().encode())
        return _asked(tables) or wanted
    is_named = begin is not None or snapshot is not None
    if is_named and known != wanted:
        raise BackfillError.of(
            f"Another backfill of '{tables.spec.name}' was begun.",
            got=wanted.text,
            allowed=known.text,
            next_step="Go on with that one, or run 'ebbtide backfill drop' first.",
        )
    return known


def _beside(spec: Pipeline, asked: Asked, max_records_per_second: int | None = None) -> Pipeline:
    """Return the spec of what is built beside a pipeline."""
    beside = spec if max_records_per_second is None else spec.at_rate(max_records_per_second)
    source = beside.source
    if isinstance(source, KafkaSource):
        source = source.model_copy(update={"start": asked.start})
    return beside.model_copy(update={"source": source, "run": "bounded"})


def _refuse_unfit(tables: Plan) -> None:
    """Refuse what cannot be built beside itself."""
    spec = tables.spec
    if isinstance(spec, MaterializedView):
        raise BackfillError.of(
            f"'{spec.name}' is a materialized view: it has no source to read again.",
            next_step="Run 'ebbtide refresh' to compute it whole.",
        )
    commit = tables.state.last()
    if commit is None:
        raise BackfillError.of(
            f"'{spec.name}' has made no step yet: there is nothing to build beside.",
            next_step="Run 'ebbtide run'.",
        )
    _, last = commit
    refused = [name for name in spec.misfits(last.spec) if name not in MAY_CHANGE]
    if refused or not _has_columns_of_sink(tables):
        raise BackfillError.of(
            f"The spec of '{spec.name}' is for another sink than the one that is there.",
            got=f"other {', '.join(refused) or 'columns'}",
            allowed="the same source, key, order and columns of the sink; another format, transform, function or ttl",
            next_step="Give it a name of its own, or run 'ebbtide refresh' to rebuild the sink from the source.",
        )


def _has_columns_of_sink(tables: Plan) -> bool:
    """Return whether the sink has the columns that the spec says."""
    stored = Snapshot.read(tables.sink.path, any_features=True)
    if stored is None:
        return True
    [wanted] = [action["metaData"] for action in tables.sink.definition(stored) if "metaData" in action]
    return _columns(stored.metadata) == _columns(wanted)


def _columns(metadata: log.Action) -> dict[str, Any]:
    fields = json.loads(metadata["schemaString"])["fields"]
    return {field["name"]: field["type"] for field in fields}


def _refuse_behind(own: Stepper, taken: Stepper) -> None:
    """Refuse a backfill that has not read all that the pipeline has."""
    missing = list(_missing(own, taken))
    if missing:
        raise BackfillError.of(
            f"The backfill of '{own.spec.name}' has not read all that the pipeline has.",
            got=f"missing {'; '.join(missing[:SAMPLE])}",
            next_step="Run 'ebbtide backfill start' to go on with it; or 'ebbtide backfill drop' if the source is another one by now.",
        )


def _missing(own: Stepper, taken: Stepper) -> Iterator[str]:
    if taken.last is None:
        yield "every record"
        return
    if own.position is None:
        yield from sorted(own.files_read().keys() - taken.files_read().keys())
        return
    stands = TopicRange.from_json(own.position)
    reached = TopicRange.from_json(taken.position or {})
    if (stands.cluster_id, stands.topic_id) != (reached.cluster_id, reached.topic_id):
        yield f"topic id {stands.topic_id}"
        return
    for partition, offset in stands.end.items():
        n_reached = reached.end.get(partition, 0)
        if n_reached < offset:
            yield f"offsets {n_reached} to {offset} of partition {partition}"


def _compared(spark: SparkSession, tables: Plan, taken: Stepper) -> SwapReport:
    changes = swap.net_changes(spark, tables, taken.plan.sink.version())
    is_personal = not tables.spec.personal.isdisjoint(tables.sink.key)
    keys = [] if is_personal else changes.keys(SAMPLE)
    records = taken.last.total_records if taken.last else 0
    return SwapReport(tables.spec.name, records or 0, **changes.counts(), keys=keys)


def _versions(plan: Plan) -> dict[str, int]:
    """Return the newest versions of the tables beside a state."""
    found = {name: log.versions(plan.at(name)) for name in BESIDE_STATE}
    return {name: versions[-1] for name, versions in found.items() if versions}


def _none(tables: Plan) -> BackfillError:
    return BackfillError.of(
        f"There is no backfill of '{tables.spec.name}'.",
        next_step="Run 'ebbtide backfill start' first.",
    )
