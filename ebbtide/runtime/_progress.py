"""Reports of a run: phases and steps while it runs, a summary at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ebbtide.amounts import amount, in_words

if TYPE_CHECKING:  # it would load Arrow, and its threads, before a command has begun
    from ebbtide.ledger import DataCommit

MOST_STEPS = 10_000
"""Maximum steps that a run's summary lists, the last ones: a run may continue for weeks."""


@dataclass(frozen=True)
class StepClock:
    """The times of a step.

    Args:
        now_ms: Its clock, epoch ms.
        watermark_ms: Its watermark, epoch ms; None before the first event.
        held_ms: How far the clock ran ahead of the allowed maximum.
    """

    now_ms: int
    watermark_ms: int | None = None
    held_ms: int = 0


@dataclass(frozen=True)
class StepColumns:
    """The columns that the records of a step had beyond the spec's schema.

    Args:
        ignored: Columns left out, since the schema lacks them.
        evolved: Those taken in so far that the spec's file lacks, to their types as DDL.
    """

    ignored: list[str] = field(default_factory=list)
    evolved: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StepProgress:
    """One finished step.

    Args:
        pipeline: Its name.
        step: Number in the ledger.
        kind: `batch`, `tick`, `backfill`; a replayed batch is `replay`.
        batch_id: Spark's; None for a tick.
        records: Records read, bad ones included.
        quarantined: Bad ones among them.
        metrics: Counts of the reconciler by name.
        clock: Its times.
        seconds: Wall time.
        columns: Columns of its records that the spec's schema lacks.
        recomputed: Of a materialized view: why all its rows were computed; empty if only those that a change may touch were.
        other_tables: Records of other tables than the source's, not included in `records`.
    """

    pipeline: str
    step: int
    kind: str
    batch_id: int | None
    records: int
    quarantined: int
    metrics: dict[str, int]
    clock: StepClock
    seconds: float
    columns: StepColumns = field(default_factory=StepColumns)
    recomputed: str = ""
    other_tables: int = 0
    SHOWN_IF_ANY: ClassVar[tuple[str, ...]] = (
        "quarantined",
        "erased",
        "not_rows",
        "duplicates",
        "redelivered",
        "superseded",
        "superseded_newer",
        "created_over_rows",
        "late_deletes",
        "conflicts",
        "below_floor",
        "unmatched",
        "repeated",
        "filled",
        "waiting",
        "waiting_expired",
        "late",
        "expired",
        "orphaned",
        "dropped",
        "cancelled",
        "lone_tombstones",
        "unread_tombstones",
    )
    """Counts that a step's line shows unless 0, in this order."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values, without levels."""
        clock = self.clock
        return {
            "pipeline": self.pipeline,
            "step": self.step,
            "kind": self.kind,
            "batch_id": self.batch_id,
            "records": self.records,
            "quarantined": self.quarantined,
            "metrics": dict(self.metrics),
            "now_ms": clock.now_ms,
            "watermark_ms": clock.watermark_ms,
            "held_ms": clock.held_ms,
            "seconds": self.seconds,
            "ignored_columns": list(self.columns.ignored),
            "evolved": dict(self.columns.evolved),
            "recomputed": self.recomputed,
            "other_tables": self.other_tables,
        }

    @property
    def counts(self) -> Counter[str]:
        """All counts of the step by name: those of the reconciler, and those of its records."""
        counts = Counter(self.metrics)
        counts.update(
            records=self.records,
            quarantined=self.quarantined,
            other_tables=self.other_tables,
        )
        return counts

    def line(self) -> str:
        """Write it for a terminal."""
        counts = self.counts
        inserted = f"+{counts['inserted']:,}"
        updated = f"~{counts['updated']:,}"
        deleted = f"-{counts['deleted']:,}"
        parts = [
            amount(self.records, "record"),
            f"{inserted} {updated} {deleted}",
        ]
        for name in self.SHOWN_IF_ANY:
            if counts[name]:
                words = name.replace("_", " ")
                parts.append(f"{counts[name]:,} {words}")
        if self.other_tables:
            parts.append(f"{self.other_tables:,} of other tables")
        if self.recomputed:
            parts.append(f"computed whole: {self.recomputed}")
        if self.clock.held_ms:
            parts.append(f"clock held back {in_words(self.clock.held_ms)}")
        what = ", ".join(parts)
        return f"{self.pipeline:<16} {self.kind:<6} step {self.step:<4} {what}  ({self.seconds:.1f} s)"


@dataclass(frozen=True)
class Phase:
    """A phase of a run, as it begins.

    Args:
        pipeline: Its name.
        name: `opening the tables`, `listing the source`, `starting the stream`; of steps `reading`, `deciding`, `merging`, `expiring`.
        step: Number of the step it is part of; None outside of steps.
        files_read: Files of the source read in this run's finished steps.
        files: Files that this run found to read.
        places_read: Places of a topic, records or fewer, that this run's finished steps have read.
        places: Places that it found to read.
    """

    pipeline: str
    name: str
    step: int | None = None
    files_read: int = 0
    files: int = 0
    places_read: int = 0
    places: int = 0


OnProgress = Callable[[StepProgress], None]
OnPhase = Callable[[Phase], None]


def ignore(*_: object) -> None:
    """Discard a report."""


@dataclass
class RunSummary:
    """Summary of a run.

    Args:
        pipeline: Its name.
        root: Folder of its tables.
        steps: Steps in order, the last `MOST_STEPS`; the sums are of all.
        nothing_matched: Other content of the source folder if it had no file to read; else None.
        files_unmatched: Files that are not the source's, by its pattern.
        files_young: Files left for a later run, by the source's minimum age.
        is_aged: It ended at its spec's maximum age: another run must continue.
        engine: Where the steps were made, and why there.
        epoch: Epoch of the lease that it held; None: it held none.
        foreign_writes: Commits of other clients to sink and state that are neither repaired nor acknowledged.
    """

    pipeline: str
    root: str
    steps: list[StepProgress] = field(default_factory=list)
    nothing_matched: str | None = None
    files_unmatched: int = 0
    files_young: int = 0
    is_aged: bool = False
    engine: str = ""
    epoch: int | None = field(default=None, compare=False)
    foreign_writes: tuple[DataCommit, ...] = ()
    totals: Counter[str] = field(init=False)
    """Sum of all counts, with `records`, `quarantined` and `steps`."""
    seconds: float = field(init=False, default=0.0)
    """Wall time of all steps."""
    held_ms: int = field(init=False, default=0)
    """The largest amount by which the clock of a step was held back, ms."""

    def __post_init__(self) -> None:
        """Sum up the steps that are given."""
        given, self.steps = self.steps, []
        self.totals = Counter(steps=0)
        self._ignored: set[str] = set()
        for step in given:
            self.add(step)

    def remarks(self) -> Iterator[str]:
        """Yield the remarks on a run that has not failed, in sentences: the command line and Dagster show the same."""
        if self.nothing_matched:
            yield f"Nothing to read: {self.nothing_matched}"
        if self.foreign_writes:
            from ebbtide.ledger import ForeignWrites

            yield ForeignWrites(self.foreign_writes).text()
        if self.recomputed:
            yield f"Computed whole: {'; '.join(self.recomputed)}."
        if self.is_aged:
            yield "The run has reached max_run_age; the next run continues."
        if self.files_young:
            yield f"Younger than source.min_age, and left for a later run: {amount(self.files_young, 'file')}."
        if self.files_unmatched:
            yield f"Not matching source.pattern: {amount(self.files_unmatched, 'file')}."
        yield from self._unapplied()
        if self.ignored_columns:
            yield f"Columns that the schema lacks, left out: {', '.join(self.ignored_columns)}."
        if self.evolved:
            from ebbtide.ddl import added_ddl

            yield f"Columns taken in, to be added to the schema: {', '.join(added_ddl(self.evolved))}."
        if self.held_ms:
            yield f"The clock was held back by up to {in_words(self.held_ms)}: it ran ahead of what max_clock_jump allows."

    def _unapplied(self) -> Iterator[str]:
        """Yield which records changed nothing though they may have been meant to."""
        n_other = self.totals["other_tables"]
        if self.is_of_other_tables:
            n_text = amount(n_other, "record")
            yield f"No record is of source.table: see that it is the table's name. Of other tables: {n_text}."
        elif n_other:
            yield f"Of other tables than source.table, and left out: {amount(n_other, 'record')}."
        n_again = self.totals["redelivered"]
        if n_again and n_again == self.totals["records"]:
            yield (
                f"All that was read had been read before, by its places: {amount(n_again, 'record')}. Has the topic been recreated? "
                "Its offsets count from 0 again: move the files of the old one away, and run 'ebbtide refresh'."
            )
        n_not_rows = self.totals["not_rows"]
        if n_not_rows:
            yield f"Events that change no row, such as heartbeats and DDL, passed over: {n_not_rows:,}."
        n_lone = self.totals["lone_tombstones"]
        if n_lone:
            yield f"Deletes with only a tombstone: {n_lone:,}; their rows are still there (docs/how-to/debezium.md)."

    def add(self, step: StepProgress) -> None:
        """Take in the next step."""
        self.steps.append(step)
        del self.steps[:-MOST_STEPS]
        is_replay = step.kind == "replay"
        self.totals.update(step.counts)
        self.totals.update(steps=1, replayed=int(is_replay))
        self.seconds += step.seconds
        self.held_ms = max(self.held_ms, step.clock.held_ms)
        self._ignored.update(step.columns.ignored)

    @property
    def ignored_columns(self) -> list[str]:
        """Columns of the source that were left out, since the schema lacks them."""
        return sorted(self._ignored)

    @property
    def is_of_other_tables(self) -> bool:
        """Return whether all that was read was of other tables than the source's, as where its name is not right."""
        totals = self.totals
        is_any_own = totals["changes"] or totals["quarantined"] or totals["redelivered"] or totals["erased"]
        return totals["other_tables"] > 0 and not is_any_own

    @property
    def is_all_bad(self) -> bool:
        """Return whether it has read records, all of them bad."""
        return 0 < self.totals["records"] == self.totals["quarantined"]

    @property
    def evolved(self) -> dict[str, str]:
        """Columns that were taken in and that the spec's file lacks, to their types."""
        return self.steps[-1].columns.evolved if self.steps else {}

    @property
    def recomputed(self) -> list[str]:
        """Why steps of a materialized view computed all its rows."""
        return [step.recomputed for step in self.steps if step.recomputed]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "pipeline": self.pipeline,
            "root": self.root,
            "totals": dict(self.totals),
            "nothing_matched": self.nothing_matched,
            "files_unmatched": self.files_unmatched,
            "files_young": self.files_young,
            "is_aged": self.is_aged,
            "engine": self.engine,
            "foreign_writes": [write.as_dict() for write in self.foreign_writes],
            "is_of_other_tables": self.is_of_other_tables,
            "ignored_columns": self.ignored_columns,
            "evolved": self.evolved,
            "steps": [step.as_dict() for step in self.steps],
        }
