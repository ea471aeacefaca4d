"""The metrics of pipelines: one list. The exposition, the page docs/reference/metrics.md and the tests of the alert rules follow it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
Viewer = Literal["status", "run"]
"""`ebbtide status --metrics`, which reads logs; or a run with `--metrics-port`, which has its own values."""
Labels = tuple[str, ...]
UNITS = ("seconds", "bytes")
ALL: tuple[Viewer, ...] = ("status", "run")
STATUS: tuple[Viewer, ...] = ("status",)
RUN: tuple[Viewer, ...] = ("run",)


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: Its name; the samples of a counter end in `_total`.
        kind: Its type.
        text: What it counts, a sentence.
        origin: Where the value comes from.
        labels: Its labels other than `pipeline`.
        viewers: Viewers that have it.
        is_of_pipeline: It has the label `pipeline`; otherwise it belongs to the host.
    """

    name: str
    kind: Kind
    text: str
    origin: str
    labels: Labels = ()
    viewers: tuple[Viewer, ...] = ALL
    is_of_pipeline: bool = True

    @property
    def unit(self) -> str:
        """Its unit, the last word of its name; empty without one."""
        _, _, last = self.name.rpartition("_")
        return last if last in UNITS else ""

    @property
    def sample(self) -> str:
        """The name of its samples, as used in rules."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def label_names(self) -> Labels:
        """All its labels."""
        return ("pipeline", *self.labels) if self.is_of_pipeline else self.labels


SOURCE, STATE_LOG, SINK_LOG, LEDGER, FACTS = "source", "state's log", "sink's log", "ledger", "facts of the last step"
STEPS, HOST, CHECKS = "steps of the run", "this host", "verdicts of `ebbtide check` and Dagster"
ENDS = "kept ends of runs"
METRICS = (
    Metric("ebbtide_readable", "gauge", "1: tables or source could be read.", "reading them", ("what",)),
    Metric("ebbtide_lag_records", "gauge", "Records that wait in the topic.", SOURCE),
    Metric("ebbtide_lag_held_records", "gauge", "Records behind an open transaction.", SOURCE),
    Metric("ebbtide_lag_files", "gauge", "Files that wait, or tables that changed.", SOURCE),
    Metric("ebbtide_lag_bytes", "gauge", "Bytes of the waiting files.", SOURCE),
    Metric("ebbtide_lag_seconds", "gauge", "Age of the oldest waiting or held record, or file; 0: none waits.", SOURCE),
    Metric("ebbtide_freshness_limit_seconds", "gauge", "`freshness.fail_window`.", "spec"),
    Metric("ebbtide_read_timestamp_seconds", "gauge", "Time of the last step that read records.", FACTS),
    Metric("ebbtide_newest_event_timestamp_seconds", "gauge", "Time of the newest event read.", FACTS),
    Metric("ebbtide_watermark_timestamp_seconds", "gauge", "Watermark of the last step.", FACTS),
    Metric("ebbtide_step", "gauge", "Number of the last step.", FACTS),
    Metric("ebbtide_step_timestamp_seconds", "gauge", "Clock of the last step.", FACTS),
    Metric("ebbtide_clock_held_seconds", "gauge", "How far `max_clock_jump` held it back.", FACTS),
    Metric("ebbtide_records", "counter", "Records read since the last refresh.", FACTS),
    Metric("ebbtide_quarantined", "counter", "Bad records among them.", FACTS),
    Metric("ebbtide_quarantine_records", "gauge", "Records in the quarantine.", "quarantine's log", viewers=STATUS),
    Metric("ebbtide_state_rows", "gauge", "Stored rows of the state.", STATE_LOG),
    Metric("ebbtide_state_bytes", "gauge", "Bytes of the state's data files.", STATE_LOG),
    Metric("ebbtide_sink_rows", "gauge", "Rows of the sink.", SINK_LOG, viewers=STATUS),
    Metric("ebbtide_sink_bytes", "gauge", "Bytes of the sink's data files.", SINK_LOG, viewers=STATUS),
    Metric("ebbtide_foreign_writes", "gauge", "Commits of other clients.", "state's and sink's logs", viewers=STATUS),
    Metric("ebbtide_misfit", "gauge", "1: the next run is refused.", "tables, spec and source", viewers=STATUS),
    Metric("ebbtide_last_run_timestamp_seconds", "gauge", "End of the last run.", ENDS, viewers=STATUS),
    Metric("ebbtide_last_run_success", "gauge", "0: the last run failed.", ENDS, viewers=STATUS),
    Metric("ebbtide_last_run_exit_code", "gauge", "Its exit code.", ENDS, viewers=STATUS),
    Metric("ebbtide_last_run_duration_seconds", "gauge", "Its duration.", ENDS, viewers=STATUS),
    Metric("ebbtide_lease_held", "gauge", "1: a live process holds the lease; of a run: it does.", LEDGER),
    Metric("ebbtide_lease_taken", "counter", "Times that the lease was taken.", LEDGER),
    Metric("ebbtide_paused", "gauge", "1: the pipeline is paused.", LEDGER),
    Metric("ebbtide_paused_timestamp_seconds", "gauge", "Since when, if it is.", LEDGER),
    Metric("ebbtide_check", "gauge", "1 at the outcome of the last verdict.", CHECKS, ("check", "outcome")),
    Metric("ebbtide_check_broken_rows", "gauge", "Rows that broke a rule then.", CHECKS, ("check",)),
    Metric("ebbtide_check_timestamp_seconds", "gauge", "Time of that verdict.", CHECKS, ("check",)),
    Metric("ebbtide_copies", "gauge", "Local copies of keys of the pipeline.", HOST),
    Metric("ebbtide_copies_bytes", "gauge", "Their bytes.", HOST),
    Metric("ebbtide_run_steps", "counter", "Steps of the run.", STEPS, ("kind",), viewers=RUN),
    Metric(
        "ebbtide_run_counts",
        "counter",
        "Counts of its summary: `inserted`, `expired`, `not_rows` (heartbeats and the like), `other_tables`.",
        STEPS,
        ("count",),
        viewers=RUN,
    ),
    Metric("ebbtide_run_step_seconds", "histogram", "Wall time of its steps.", STEPS, viewers=RUN),
    Metric(
        "ebbtide_run_phase_seconds",
        "counter",
        "Wall time of its phases; `waiting`: none.",
        STEPS,
        ("phase",),
        viewers=RUN,
    ),
    Metric(
        "ebbtide_run_progress_timestamp_seconds", "gauge", "Last step, phase or poll of the source.", STEPS, viewers=RUN
    ),
    Metric("ebbtide_run_healthy", "gauge", "0: the run is stuck, and `/healthz` answers 503.", STEPS, viewers=RUN),
    Metric("ebbtide_run_failing", "gauge", "1: the run has failed, and will restart.", STEPS, viewers=RUN),
    Metric("ebbtide_run_failures", "counter", "Number of its failures.", STEPS, viewers=RUN),
    Metric("ebbtide_run_lease_lost", "gauge", "1: another process has taken the run's lease.", LEDGER, viewers=RUN),
    Metric("ebbtide_measured_timestamp_seconds", "gauge", "Time of the measurement.", HOST, is_of_pipeline=False),
    Metric("ebbtide_cache_bytes", "gauge", "Bytes of all local copies.", HOST, is_of_pipeline=False),
    Metric("ebbtide_cache_limit_bytes", "gauge", "`EBBTIDE_CACHE_BYTES`.", HOST, is_of_pipeline=False),
    Metric("ebbtide_disk_free_bytes", "gauge", "Free bytes of a local disk.", HOST, ("folder",), is_of_pipeline=False),
    Metric("ebbtide_disk_size_bytes", "gauge", "All its bytes.", HOST, ("folder",), is_of_pipeline=False),
)
"""All metrics, in display order."""
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the histogram of steps."""


@dataclass
class Distribution:
    """A histogram of seconds.

    Args:
        counts: Values up to each of `BOUNDS_S`, and above, each value counted once.
        total: Sum of the values.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a value."""
        bucket = bisect_left(BOUNDS_S, seconds)
        self.counts[bucket] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return each upper bound, as text, with the number of values up to it."""
        found: list[tuple[str, float]] = []
        n_values = 0
        bounds = [str(bound) for bound in BOUNDS_S]
        bounds.append("+Inf")
        for bound, count in zip(bounds, self.counts, strict=True):
            n_values += count
            found.append((bound, n_values))
        return found


Value = float | Distribution


class Values:
    """The values of the metrics of one pipeline, or of the host.

    Args:
        viewer: Viewer of the metrics: those of the other viewer are left out.
        pipeline: Name of the pipeline; None: they are the host's.
    """

    def __init__(self, viewer: Viewer, pipeline: str | None = None) -> None:
        self._viewer = viewer
        self._pipeline = pipeline
        self._values: dict[str, dict[Labels, Value]] = {}

    def set(self, name: str, value: Value | None, *labels: str) -> None:
        """Set a value.

        Args:
            name: Name of the metric.
            value: None: it is unknown, and left out.
            labels: Values of the metric's labels.
        """
        metric = BY_NAME[name]
        if value is None or self._viewer not in metric.viewers:
            return
        samples = self._values.setdefault(name, {})
        all_labels = labels if self._pipeline is None else (self._pipeline, *labels)
        samples[all_labels] = value

    def update(self, values: Mapping[str, Value | None]) -> None:
        """Set the values of metrics without labels; None: unknown, and left out."""
        for name, value in values.items():
            self.set(name, value)

    def of(self, name: str) -> Iterator[tuple[Labels, Value]]:
        """Yield the labels and the value of each sample of a metric."""
        yield from self._values.get(name, {}).items()
