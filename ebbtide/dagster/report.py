"""What a run did, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ebbtide import RunSummary, StepProgress
from ebbtide.runtime.progress import SHOWN_IF_ANY

MOST_STEPS = 50
"""Steps that a report lists, the last ones."""
_ALWAYS = ("inserted", "updated", "deleted")


def report_of(summary: RunSummary) -> str:
    """Write what a run did: its sums, its steps, and what needs somebody's eye."""
    lines = [*_sums(summary), "", *_steps(summary.steps), *_remarks(summary)]
    return "\n".join(lines).strip()


def _sums(summary: RunSummary) -> Iterator[str]:
    totals = summary.totals
    if not summary.steps:
        yield "Nothing was to do: no new records, nothing due."
        return
    seconds = sum(step.seconds for step in summary.steps)
    counts = [f"{totals[name]:,} {name}" for name in ("records", *_ALWAYS)]
    counts += [f"{totals[name]:,} {name.replace('_', ' ')}" for name in SHOWN_IF_ANY if totals[name]]
    n_steps = len(summary.steps)
    steps = "1 step" if n_steps == 1 else f"{n_steps} steps"
    yield f"{steps} in {seconds:,.1f} s: {', '.join(counts)}."


def _steps(steps: list[StepProgress]) -> Iterator[str]:
    if not steps:
        return
    yield "| step | kind | clock (UTC) | records | inserted | updated | deleted | quarantined | seconds |"
    yield "|---:|---|---|---:|---:|---:|---:|---:|---:|"
    for step in steps[-MOST_STEPS:]:
        clock = datetime.fromtimestamp(step.now_ms / 1000, UTC)
        counts = [step.records, *(step.metrics.get(name, 0) for name in _ALWAYS), step.quarantined]
        numbers = " | ".join(f"{count:,}" for count in counts)
        yield f"| {step.step} | {step.kind} | {clock:%Y-%m-%d %H:%M:%S} | {numbers} | {step.seconds:.2f} |"
    n_left_out = max(len(steps) - MOST_STEPS, 0)
    if n_left_out:
        yield f"\nThe first {n_left_out} steps are left out."


def _remarks(summary: RunSummary) -> Iterator[str]:
    """Say what does not fail a run and yet is to be known."""
    if summary.nothing_matched:
        yield f"\n**Nothing to read:** {summary.nothing_matched}"
    if summary.is_aged:
        yield "\nThe run was as old as `max_run_age` lets it get; the next one goes on."
    if summary.files_young:
        yield f"\n{summary.files_young} files are too young, and are left for a later run."
    if summary.files_unmatched:
        yield f"\n{summary.files_unmatched} files do not match the source's pattern."
    if summary.ignored_columns:
        names = ", ".join(f"`{name}`" for name in summary.ignored_columns)
        yield f"\n**Columns left out**, as the schema has not got them: {names}."
    if summary.evolved:
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in summary.evolved.items())
        yield f"\n**Columns taken in**, to be added to the spec's schema: {columns}."
    held_ms = max((step.held_ms for step in summary.steps), default=0)
    if held_ms:
        yield f"\n**The clock was held back** by up to {held_ms:,} ms: it ran ahead of what `max_clock_jump` allows."
