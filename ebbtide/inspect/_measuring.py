"""Measures pipelines at rest: the values of their metrics from tables' logs and sources, like `status` and `lag`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from ebbtide.errors import EbbtideError
from ebbtide.inspect._backlog import Lag
from ebbtide.inspect._exposition import openmetrics
from ebbtide.inspect._host import Copies, copies_of, host_values, local_copies
from ebbtide.inspect._metrics import Values
from ebbtide.inspect._status import Status, status
from ebbtide.ledger import KeptRun, LastVerdict
from ebbtide.spec import Pipeline


@dataclass(frozen=True)
class MetricsAtRest:
    """The metrics of pipelines that are not being watched.

    Args:
        text: The host's and the pipelines' values, as OpenMetrics text.
        errors: Reasons for missing values, each with the index of its pipeline.
    """

    text: str
    errors: tuple[tuple[int, EbbtideError], ...] = ()

    @classmethod
    def of(cls, specs: Sequence[Pipeline], root: str, clock_ms: int) -> Self:
        """Measure the host and pipelines. Unreadable values are left out, and `ebbtide_readable` is 0.

        Args:
            specs: The pipelines.
            root: Folder of all pipelines' tables.
            clock_ms: The time, epoch ms.
        """
        copies = local_copies()
        found = [host_values("status", root, copies)]
        errors: list[tuple[int, EbbtideError]] = []
        for number, spec in enumerate(specs):
            values, own_errors = _measured(spec, root, clock_ms, copies)
            found.append(values)
            errors += [(number, error) for error in own_errors]
        return cls(openmetrics(found), tuple(errors))


def _measured(spec: Pipeline, root: str, clock_ms: int, copies: Copies) -> tuple[Values, list[EbbtideError]]:
    """Measure a pipeline; return its values, and the reasons for missing ones."""
    values = Values("status", spec.name)
    found = status(spec, root, clock_ms=clock_ms)
    next_run = found.next_run
    if next_run.reads_tables:
        set_status(values, spec, found)
        set_copies(values, found.root, copies)
    else:
        values.set("ebbtide_misfit", float(found.misfit is not None))
    set_last_run(values, found.last_run)
    values.set("ebbtide_readable", float(next_run.reads_tables), "tables")
    values.set("ebbtide_readable", float(next_run.waiting is not None), "source")
    if next_run.waiting is not None:
        set_lag(values, next_run.waiting)
    errors = [error for error in (next_run.refusal, next_run.unavailable) if error is not None]
    return values, errors


def set_status(values: Values, spec: Pipeline, found: Status) -> None:
    """Set the values from a status.

    Args:
        values: Those of its pipeline.
        spec: The pipeline.
        found: The status.
    """
    last = found.last
    state = found.state
    sink = found.sink
    values.update(
        {
            "ebbtide_freshness_limit_seconds": spec.freshness.fail_window.total_seconds(),
            "ebbtide_step": last.step,
            "ebbtide_step_timestamp_seconds": _seconds(last.now),
            "ebbtide_clock_held_seconds": last.held_ms / 1000,
            "ebbtide_read_timestamp_seconds": _seconds(found.read.newest),
            "ebbtide_newest_event_timestamp_seconds": _seconds(last.newest_event),
            "ebbtide_watermark_timestamp_seconds": _seconds(last.watermark),
            "ebbtide_records": found.read.records,
            "ebbtide_quarantined": found.read.quarantined,
            "ebbtide_quarantine_records": found.read.in_quarantine,
            "ebbtide_state_rows": state.rows,
            "ebbtide_state_bytes": state.bytes,
            "ebbtide_sink_rows": sink.rows,
            "ebbtide_sink_bytes": sink.bytes,
            "ebbtide_foreign_writes": len(found.foreign_writes),
            "ebbtide_misfit": float(found.misfit is not None),
            "ebbtide_lease_held": float(found.lease.holder is not None),
            "ebbtide_lease_taken": found.lease.epoch,
            "ebbtide_paused": float(found.pause.by is not None),
            "ebbtide_paused_timestamp_seconds": _seconds(found.pause.since),
        }
    )
    set_checks(values, found.checks)


def set_last_run(values: Values, last_run: KeptRun | None) -> None:
    """Set the end of the last run; None: none is kept."""
    if last_run is not None:
        values.update(
            {
                "ebbtide_last_run_timestamp_seconds": last_run.at_ms / 1000,
                "ebbtide_last_run_success": float(not last_run.has_failed),
                "ebbtide_last_run_exit_code": last_run.exit_code,
                "ebbtide_last_run_duration_seconds": last_run.seconds,
            }
        )


def set_checks(values: Values, verdicts: Iterable[LastVerdict]) -> None:
    """Set the last verdicts of a pipeline's checks."""
    for verdict in verdicts:
        check = verdict.check
        for outcome in LastVerdict.OUTCOMES:
            is_this_one = verdict.outcome == outcome
            values.set("ebbtide_check", float(is_this_one), check, outcome)
        values.set("ebbtide_check_broken_rows", verdict.broken, check)
        values.set("ebbtide_check_timestamp_seconds", verdict.at_ms / 1000, check)


def set_lag(values: Values, found: Lag) -> None:
    """Set the backlog of a pipeline's source."""
    backlog = found.backlog
    values.set("ebbtide_lag_files", backlog.files)
    values.set("ebbtide_lag_bytes", backlog.bytes)
    if backlog.records:
        values.set("ebbtide_lag_records", backlog.total_records)
        values.set("ebbtide_lag_held_records", sum(backlog.held.values()))
    is_known = bool(backlog.records) or backlog.bytes is not None  # tables have no times
    is_behind = bool(backlog.files) or any(map(backlog.is_behind, backlog.records))
    behind_ms = found.behind_ms if is_behind else 0
    if is_known and behind_ms is not None:
        values.set("ebbtide_lag_seconds", behind_ms / 1000)


def set_copies(values: Values, home: str, copies: Copies) -> None:
    """Set the local copies of a pipeline.

    Args:
        values: Those of the pipeline.
        home: Folder of its tables.
        copies: All of this host.
    """
    own = copies_of(home, copies)
    values.set("ebbtide_copies", len(own))
    values.set("ebbtide_copies_bytes", sum(n_bytes for _, n_bytes in own))


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
