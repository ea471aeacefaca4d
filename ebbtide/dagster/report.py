"""What a run did, as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ebbtide import RunSummary
from ebbtide.amounts import amount
from ebbtide.ledger.foreign_writes import foreign_writes_text
from ebbtide.runtime.progress import SHOWN_IF_ANY

MOST_STEPS = 50
"""Steps that a report lists, the last ones."""
NO_BREAK_HYPHEN = "\u2011"
"""At which browsers do not break lines."""
_ALWAYS = ("inserted", "updated", "deleted")


def report_of(summary: RunSummary) -> str:
    """Write what a run did: its sums, its steps, and what needs attention."""
    lines = [*_sums(summary), "", *_steps(summary), *_remarks(summary)]
    return "\n".join(lines).strip()


def _sums(summary: RunSummary) -> Iterator[str]:
    totals = summary.totals
    if not summary.steps:
        yield "Nothing was to do: no new records, nothing due."
        return
    counts = [amount(totals["records"], "record"), *(f"{totals[name]:,} {name}" for name in _ALWAYS)]
    counts += [f"{totals[name]:,} {name.replace('_', ' ')}" for name in SHOWN_IF_ANY if totals[name]]
    steps = amount(totals["steps"], "step")
    yield f"{steps} in {summary.seconds:,.1f} s: {', '.join(counts)}."


def _steps(summary: RunSummary) -> Iterator[str]:
    shown = summary.steps[-MOST_STEPS:]
    if not shown:
        return
    yield "| step | kind | clock (UTC) | records | inserted | updated | deleted | quarantined | seconds |"
    yield "|---:|---|---|---:|---:|---:|---:|---:|---:|"
    for step in shown:
        clock = _clock_text(step.now_ms)
        counts = [step.records, *(step.metrics.get(name, 0) for name in _ALWAYS), step.quarantined]
        numbers = " | ".join(f"{count:,}" for count in counts)
        yield f"| {step.step} | {step.kind} | {clock} | {numbers} | {step.seconds:.2f} |"
    n_left_out = summary.totals["steps"] - len(shown)
    if n_left_out:
        yield f"\nLeft out: the first {amount(n_left_out, 'step')}."


def _clock_text(now_ms: int) -> str:
    """Write a time so that a narrow column breaks it between day and time only."""
    clock = datetime.fromtimestamp(now_ms / 1000, UTC)
    text = f"{clock:%Y-%m-%d %H:%M:%S}"
    return text.replace("-", NO_BREAK_HYPHEN)


def _remarks(summary: RunSummary) -> Iterator[str]:
    """Say what does not fail a run and yet is to be known."""
    if summary.nothing_matched:
        yield f"\n**Nothing to read:** {summary.nothing_matched}"
    if summary.foreign_writes:
        yield f"\n**Foreign writes:** {foreign_writes_text(summary.foreign_writes)}"
    if summary.is_aged:
        yield "\nThe run was as old as `max_run_age` lets it get; the next one goes on."
    if summary.files_young:
        yield f"\nToo young, and left for a later run: {amount(summary.files_young, 'file')}."
    if summary.files_unmatched:
        yield f"\nNot matching the source's pattern: {amount(summary.files_unmatched, 'file')}."
    yield from _unapplied(summary)
    if summary.ignored_columns:
        names = ", ".join(f"`{name}`" for name in summary.ignored_columns)
        yield f"\n**Columns left out**, as the schema has not got them: {names}."
    if summary.evolved:
        columns = ", ".join(f"`{name}` {type_}" for name, type_ in summary.evolved.items())
        yield f"\n**Columns taken in**, to be added to the spec's schema: {columns}."
    if summary.held_ms:
        yield f"\n**The clock was held back** by up to {summary.held_ms:,} ms: it ran ahead of what `max_clock_jump` allows."


def _unapplied(summary: RunSummary) -> Iterator[str]:
    """Say which records changed nothing though they may have been meant to."""
    n_other = summary.totals["other_tables"]
    if summary.is_of_other_tables:
        yield f"\n**No record is of `source.table`:** see that it is the table's name. Of other tables: {amount(n_other, 'record')}."
    elif n_other:
        yield f"\nOf other tables than the source's, and left out: {amount(n_other, 'record')}."
    n_lone = summary.totals["lone_tombstones"]
    if n_lone:
        yield f"\n**Deletes of which only the tombstone came:** {n_lone:,}; their rows are still there (docs/debezium.md)."
