"""Replay: quarantined records that are now good are applied in a separate step.

The step's commit to the state is the decision: it holds the records' changes and the records that leave the quarantine. Records
that are still bad stay, with their present reason. By sequence the tables are then as if the records had always been good. By
arrival a record applies when it is replayed, after all later records. The result is the same as in time only if
`materializer.retraction_grace` has not passed and no TRUNCATE came after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ebbtide.amounts import amount
from ebbtide.changelog import order_struct
from ebbtide.errors import ConfigError
from ebbtide.inspect import QuarantinedRecord
from ebbtide.ledger import Cause, Head, NoStep, StepFacts
from ebbtide.model import Append, Decision
from ebbtide.operations._operation import Report
from ebbtide.operations._quarantine.redecoding import (
    TOO_LARGE,
    TRANSFORM_FAILED,
    Corrected,
    Redecoded,
    origin_of,
    redecoded,
    with_origins,
)
from ebbtide.operations._stepping import has_state, stepping
from ebbtide.redaction import printable
from ebbtide.runtime import AtRest, Plan, Selecting, Stepper
from ebbtide.spec import Pipeline
from ebbtide.storage import Location
from ebbtide.tables import Selection

if TYPE_CHECKING:
    from ebbtide.executors import Executor

WHY_NOT = {
    TOO_LARGE: "only its head was kept; it needs a corrected record",
    TRANSFORM_FAILED: "the transform fails on its row; it needs a corrected record, or a changed transform",
}
"""Reason of a record to why it is not decoded again."""
SHOWN = 20
"""Maximum number of remaining records shown on a terminal."""
COUNTS = ("inserted", "updated", "deleted", "redelivered")
"""The counts of a step, shown unless 0."""


@dataclass(frozen=True)
class Found:
    """The outcome of a replay.

    Args:
        replayed: Records that are good now.
        kept: Each record that stays: step, origin, reason, detail.
        late: Replayed records whose result differs from an arrival in time: by arrival only.
        not_found: Corrected records whose origin no selected record has.
        erased: Records of erased keys: they leave the quarantine, and are not applied.
    """

    replayed: int = 0
    kept: Sequence[dict[str, Any]] = ()
    late: int = 0
    not_found: int = 0
    erased: int = 0

    def report(
        self, pipeline: str, step: int | None = None, changed: Mapping[str, int] = MappingProxyType({})
    ) -> Report:
        """Make the report of a replay, planned or done.

        Args:
            pipeline: Name of the pipeline.
            step: The step that did it; None of a plan, and where there was nothing to do.
            changed: What the step changed, by name.
        """
        counts = {"replayed": self.replayed, "late": self.late, "not_found": self.not_found}
        if self.erased:
            counts["erased"] = self.erased
        details = {"kept": list(self.kept), "counts": dict(changed)}
        if step is None:
            lines = list(self._lines("to replay"))
            return Report(pipeline, lines, counts, details, next_step=self._next_step)
        named = [f"{changed[name]} {name}" for name in COUNTS if changed.get(name)]
        rows = ", ".join(named) or "the tables do not change"
        lines = [*self._lines("replayed"), f"Done in step {step}: {rows}."]
        return Report(pipeline, lines, counts, details, step)

    @property
    def _next_step(self) -> str:
        if not self.replayed and not self.erased:
            return ""
        options = "--apply --accept-late" if self.late else "--apply"
        return f"To do it: the same with '{options}'."

    def _lines(self, verb: str) -> Iterator[str]:
        n_kept = len(self.kept)
        if not self.replayed and not n_kept and not self.erased:
            yield "no quarantined record fits."
        else:
            records = amount(self.replayed, "record")
            yield f"{records} {verb}, {n_kept:,} left."
        for record in self.kept[:SHOWN]:
            yield printable(_kept_text(record))
        if n_kept > SHOWN:
            yield f"... and {n_kept - SHOWN} more (--json has them all)"
        if self.not_found:
            corrected = amount(self.not_found, "corrected record")
            yield f"Left out, since no selected record has their origin: {corrected}."
        if self.erased:
            yield f"Refused, and dropped from the quarantine, as their keys were erased: {amount(self.erased, 'record')}."
        if self.late:
            yield _late_text(self.late)


def _late_text(n_late: int) -> str:
    """Explain the effect of late records."""
    return (
        f"Late: {amount(n_late, 'record')}. By arrival they apply now, after all later records, so the sink may differ from a result "
        "without bad records. It is the same only within materializer.retraction_grace, and without a TRUNCATE since."
    )


def _kept_text(record: dict[str, Any]) -> str:
    step = record["step"]
    place = QuarantinedRecord.place_text(record["origin"])
    reason = record["reason"]
    detail = record["detail"]
    return f"stays: step {step}, {place}: {reason}: {detail}"


def plan(
    spec: Pipeline,
    root: str,
    clock_ms: int,
    selection: Selection,
    corrected: Corrected | None = None,
) -> Report:
    """Return the plan of a replay. Changes nothing, and needs no Spark.

    Args:
        spec: The pipeline with its present spec.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
        selection: Which records.
        corrected: Only these records, in this form. Default: the stored records.

    Raises:
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last() if has_state(tables) else None
    if commit is None:
        return Found().report(spec.name)
    _, last = commit
    AtRest(tables, None, Head(*commit), None).diagnosis.refuse("spec")
    attempt = _attempt(tables, last, clock_ms, selection, corrected)
    return _found(attempt, last, clock_ms, corrected).report(spec.name)


def apply(
    executor: Executor,
    spec: Pipeline,
    root: str,
    clock_ms: int,
    selection: Selection,
    corrected: Corrected | None = None,
    *,
    accept_late: bool = False,
) -> Report:
    """Replay records, in one step.

    Args:
        spec: The pipeline with its present spec.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
        selection: Which records.
        corrected: Only these records, in this form. Default: the stored records.
        accept_late: By arrival, also replay late records.

    Raises:
        ConfigError: records are late, and that was not accepted.
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    if not has_state(tables):
        return Found().report(spec.name)
    with stepping(executor, tables, clock_ms) as stepper:
        last = stepper.last
        if isinstance(last, NoStep):
            return Found().report(spec.name)
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        attempt = _attempt(tables, last, clock_ms, selection, corrected)
        found = _found(attempt, last, clock_ms, corrected)
        if found.late and not accept_late:
            raise ConfigError.of(
                _late_text(found.late),
                allowed="--accept-late, in Dagster accept_late: true",
                next_step="Or correct the source, and run 'ebbtide refresh' to rebuild the sink from it.",
            )
        if not decide(executor, stepper, attempt, clock_ms):
            return found.report(spec.name)
        counts = stepper.publish(executor)
        stepper.fold(executor)
        return found.report(spec.name, stepper.number, counts)


def decide(
    executor: Executor,
    stepper: Stepper,
    attempt: Redecoded,
    clock_ms: int,
) -> bool:
    """Commit the decision on redecoded records; return whether there was one.

    Args:
        stepper: Makes the pipeline's steps; the last one is published.
        attempt: The records.
        clock_ms: The time, epoch ms.
    """
    tables = stepper.plan
    replayed = attempt.replayed
    rewritten = attempt.rewritten
    # Records that are still bad, but for another reason, are replaced by themselves with that reason.
    gone = pa.concat_tables([replayed, attempt.refused, rewritten])
    if not len(gone):
        return False
    actions = tables.quarantine.replace(gone, rewritten)
    removed = {"replayed": len(replayed)}
    if len(attempt.refused):
        removed["erased"] = len(attempt.refused)
    moved = Append(tuple(actions), removed)
    facts = stepper.facts(
        Cause(what="quarantine_replay"),
        stepper.next_clock(clock_ms),
        attempt.summary,
        decision=Decision(tables={"quarantine": moved}),
    )
    folder = Location(tables.at("staged")) / str(facts.step)
    try:
        staged = attempt.staged(folder)
        if tables.spec.has_transform:
            staged, facts = Selecting(executor, tables).replayed(staged, folder, facts)
        stepper.apply(executor, staged, facts)
    finally:
        Location(tables.at("staged")).delete()
    return True


def _attempt(
    tables: Plan,
    last: StepFacts,
    clock_ms: int,
    selection: Selection,
    corrected: Corrected | None,
) -> Redecoded:
    if tables.spec.is_view:
        raise ConfigError.of(
            f"'{tables.spec.name}' is a materialized view: its bad rows are not records.",
            next_step="Correct its query, or the rows of its tables; 'ebbtide quarantine drop' forgets them.",
        )
    clock = tables.clock_after(last.frontier, clock_ms)
    records = tables.quarantine.records(selection)
    if corrected is not None:
        records = with_origins(records, corrected)
    return redecoded(
        tables,
        records,
        corrected or {},
        step=last.step + 1,
        wall_ms=clock.wall_ms,
        erased=last.state.erased,
        log_begins=last.frontier.log_begins,
    )


def _found(
    attempt: Redecoded,
    last: StepFacts,
    clock_ms: int,
    corrected: Corrected | None,
) -> Found:
    cut_off = []
    for record in _rows(attempt.cut_off):
        why = WHY_NOT[record["reason"]]
        cut_off.append(record | {"detail": why})
    still_bad = _rows(attempt.still_bad)
    selected = [*_rows(attempt.tried), *cut_off]
    origins = {origin_of(record["origin"]) for record in selected}
    unmatched = set(corrected or {}) - origins
    clock = attempt.plan.clock_after(last.frontier, clock_ms)
    n_late = _n_late(attempt, clock.now_ms, last.frontier.floor)
    return Found(
        replayed=len(attempt.replayed),
        kept=[*cut_off, *still_bad],
        late=n_late,
        not_found=len(unmatched),
        erased=len(attempt.refused),
    )


def _rows(records: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = records.select(["step", "origin", "reason", "detail"]).to_pylist()
    return rows


def _n_late(attempt: Redecoded, now_ms: int, floor: tuple[int, ...] | None) -> int:
    """Count the replayed records whose result differs from an arrival in time."""
    spec = attempt.plan.spec
    if spec.sequence:
        return 0
    replayed = attempt.replayed
    met_us = replayed["at"].cast(pa.int64())
    met_ms = np.asarray(met_us.to_numpy()) // 1000
    # By arrival a record may be late by the retraction grace, if no TRUNCATE came after it.
    is_late = met_ms + attempt.plan.operator.expiry.grace_ms <= now_ms
    if floor is not None:
        orders = order_struct(replayed, "order").tolist()
        is_below = [tuple(order) < floor for order in orders]
        is_late |= np.array(is_below, dtype=bool)
    return int(is_late.sum())
