"""Drops quarantined records: on request, with a note in the step's facts, or by the spec's limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.amounts import amount
from ebbtide.columns import Mask
from ebbtide.delta import Held
from ebbtide.durations import to_ms
from ebbtide.ledger import Cause, StepFacts
from ebbtide.model import Append, Decision, Reading
from ebbtide.operations._operation import Report
from ebbtide.operations._places import BY_VACUUM, Place, with_places
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, Stepper
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection

if TYPE_CHECKING:
    from ebbtide.executors import Executor

MAX_AGE = "max_age"
MAX_BYTES = "max_bytes"
"""Reasons for removal by the spec's limits, in the order of their evaluation."""


def plan(spec: Pipeline, root: str, selection: Selection) -> Report:
    """Return the plan of dropping records. Changes nothing, and needs no Spark.

    Args:
        root: Folder of all pipelines' tables.
        selection: Selects the records.
    """
    tables = Plan.under(root, spec)
    records = tables.quarantine.records(selection)
    reasons = _reasons(records)
    report = _report(spec.name, reasons)
    places = place_of(tables, records)
    return with_places(report, places)


def place_of(tables: Plan, records: pa.Table) -> list[Place]:
    """Return the place of records to drop; none without any."""
    if not len(records):
        return []
    lengths = pc.binary_length(records["raw"])
    n_bytes = pc.sum(lengths).as_py()
    n_files = tables.quarantine.n_files_of(records)
    found = Held(len(records), n_files, n_bytes or 0)
    fate = f"dropped; files that hold no other record are {BY_VACUUM}"
    return [Place("quarantine", found, fate)]


def apply(
    executor: Executor,
    spec: Pipeline,
    root: str,
    selection: Selection,
    note: str,
) -> Report:
    """Drop records, in one step.

    Args:
        root: Folder of all pipelines' tables.
        selection: Selects the records.
        note: The reason, kept in the step's facts.

    Raises:
        LeaseHeldError: the pipeline is being run.
    """
    tables = Plan.under(root, spec)
    if not tables.quarantine.size():
        return _report(spec.name)
    with stepping(executor, tables) as stepper:
        stepper.publish(executor)
        records = tables.quarantine.records(selection)
        if not len(records):
            return _report(spec.name)
        counts = {"dropped": len(records)}
        facts = drop(executor, stepper, records, counts, note)
        reasons = _reasons(records)
        return _report(spec.name, reasons, facts.step)


def trim(executor: Executor, stepper: Stepper, clock: Reading) -> bool:
    """Drop records older than `quarantine.max_age`, then the oldest above `quarantine.max_bytes`; return whether there were any.

    Args:
        stepper: Makes the pipeline's steps; the last one is published.
        clock: The clock that ages are counted by.
    """
    gone, counts = excess(stepper.plan, clock.now_ms)
    if not len(gone):
        return False
    drop(executor, stepper, gone, counts, clock=clock)
    return True


def excess(tables: Plan, now_ms: int) -> tuple[pa.Table, dict[str, int]]:
    """Return the records above the quarantine's limits, and their number by limit.

    Args:
        now_ms: The clock, epoch ms.
    """
    limits = tables.spec.quarantine
    if limits.max_age is None and limits.max_bytes is None:
        return tables.quarantine.schema.empty_table(), {MAX_AGE: 0, MAX_BYTES: 0}
    # All records are read once per cleanup: a quarantine is small, or limited.
    records = tables.quarantine.values("order", "at", "raw")
    none = np.zeros(len(records), dtype=bool)
    is_too_old = none
    is_beyond = none
    if limits.max_age is not None:
        oldest_ms = now_ms - to_ms(limits.max_age)
        is_too_old = _not_after(records, oldest_ms)
    if limits.max_bytes is not None:
        is_beyond = _beyond(records, limits.max_bytes) & ~is_too_old
    counts = {
        MAX_AGE: int(is_too_old.sum()),
        MAX_BYTES: int(is_beyond.sum()),
    }
    goes = pa.array(is_too_old | is_beyond)
    return records.filter(goes), counts


def _not_after(records: pa.Table, time_ms: int) -> Mask:
    """Mark the records that were met until a time."""
    time_us = time_ms * 1000
    met_us = records["at"].cast(pa.int64())
    is_early = pc.less_equal(met_us, time_us)
    mask = is_early.to_numpy()
    return np.asarray(mask, dtype=bool)


def _beyond(records: pa.Table, max_bytes: int) -> Mask:
    """Mark the records that do not fit with all newer ones.

    Args:
        records: The oldest first.
        max_bytes: Maximum bytes.
    """
    lengths = pc.binary_length(records["raw"])
    n_bytes = np.asarray(lengths.to_numpy(), dtype=np.int64)
    # The sum over a record and all newer ones: summed from the newest on, then reversed.
    newest_first = n_bytes[::-1]
    with_newer = np.cumsum(newest_first)
    is_beyond = with_newer > max_bytes
    return np.asarray(is_beyond[::-1])


def drop(
    executor: Executor,
    stepper: Stepper,
    records: pa.Table,
    counts: dict[str, int],
    note: str = "",
    *,
    clock: Reading | None = None,
) -> StepFacts:
    """Make the step that drops records, and publish it.

    Args:
        stepper: Makes the pipeline's steps; the last one is published.
        records: The records, with their `order`.
        counts: Number of records by reason of removal.
        note: The user's reason.
        clock: Of the step. Default: that of the last one.
    """
    actions = stepper.plan.quarantine.replace(records)
    removed = {why: count for why, count in counts.items() if count}
    append = Append(tuple(actions), removed)
    decision = Decision(tables={"quarantine": append})
    cause = Cause(what="quarantine_drop", why=note)
    facts = stepper.facts(cause, clock, decision=decision)
    stepper.commit(facts, [])
    stepper.publish(executor)
    return facts


def _reasons(records: pa.Table) -> dict[str, int]:
    """Count records by reason."""
    reasons = Counter(records["reason"].to_pylist())
    return {reason: reasons[reason] for reason in sorted(reasons)}


def _report(
    pipeline: str,
    reasons: Mapping[str, int] = MappingProxyType({}),
    step: int | None = None,
) -> Report:
    """Make the report of a drop, planned or done.

    Args:
        pipeline: Name of the pipeline.
        reasons: Number of records by reason.
        step: The step that did it; None for a plan, or if there was nothing to do.
    """
    n_dropped = sum(reasons.values())
    counts = {"dropped": n_dropped}
    details = {"reasons": dict(reasons)}
    if not n_dropped:
        return Report(pipeline, ["no quarantined record fits."], counts, details, step)
    records = amount(n_dropped, "record")
    parts = [f"{count} {reason}" for reason, count in reasons.items()]
    by_reason = ", ".join(parts)
    if step is not None:
        done = f"{records} dropped ({by_reason}) in step {step}."
        return Report(pipeline, [done], counts, details, step)
    planned = f"{records} to drop ({by_reason})."
    next_step = "To do it: the same with '--apply --note TEXT'."
    return Report(pipeline, [planned], counts, details, next_step=next_step)
