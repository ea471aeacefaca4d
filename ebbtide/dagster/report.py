"""The result of a run as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from ebbtide import RunSummary
from ebbtide.amounts import amount
from ebbtide.markdown import prose
from ebbtide.runtime import StepProgress

MOST_STEPS = 50
"""Steps that a report lists, the last ones."""
NO_BREAK_HYPHEN = "\u2011"
"""A hyphen at which browsers do not break lines."""
BLOCK = "\u2588"
LONGEST_BAR = 8
"""Blocks of the bar of the longest step."""
_ALWAYS = ("inserted", "updated", "deleted")


def report_of(summary: RunSummary) -> str:
    """Return the report of a run: its totals, its steps, and what needs attention."""
    listed = [f"- {prose(remark)}" for remark in summary.remarks()]
    lines = [*_sums(summary), "", *_steps(summary), "", *listed]
    page = "\n".join(lines)
    return page.strip()


def _sums(summary: RunSummary) -> Iterator[str]:
    totals = summary.totals
    if not summary.steps:
        yield "Nothing was to do: no new records, nothing due."
        return
    counts = [amount(totals["records"], "record")]
    for name in (*_ALWAYS, *StepProgress.SHOWN_IF_ANY):
        total = totals[name]
        if total or name in _ALWAYS:
            words = name.replace("_", " ")
            counts.append(f"{total:,} {words}")
    listed = ", ".join(counts)
    steps = amount(totals["steps"], "step")
    yield f"{steps} in {summary.seconds:,.1f} s: {listed}."


def _steps(summary: RunSummary) -> Iterator[str]:
    shown = summary.steps[-MOST_STEPS:]
    if not shown:
        return
    # A column that is empty costs the width that the bars need.
    names = ["records", *_ALWAYS]
    if any(step.quarantined for step in shown):
        names.append("quarantined")
    headings = " | ".join(names)
    alignment = "---:|" * len(names)
    yield f"| step | kind | clock (UTC) | {headings} | seconds | |"
    yield f"|---:|---|---|{alignment}---:|---|"
    longest_s = max(step.seconds for step in shown)
    for step in shown:
        counts = step.counts
        cells = [
            str(step.step),
            step.kind,
            _clock_text(step.clock.now_ms),
            *(f"{counts[name]:,}" for name in names),
            f"{step.seconds:.2f}",
            _bar(step.seconds, longest_s),
        ]
        row = " | ".join(cells)
        yield f"| {row} |"
    n_left_out = summary.totals["steps"] - len(shown)
    if n_left_out:
        left_out = amount(n_left_out, "step")
        yield f"\nLeft out: the first {left_out}."


def _bar(value: float, largest: float) -> str:
    """Draw a value as a bar, relative to the largest one.

    Example:
        >>> _bar(0.5, 2.0), _bar(0.0, 2.0), _bar(0.0, 0.0)
        ('██', '', '')
    """
    if not largest:
        return ""
    n_blocks = round(value / largest * LONGEST_BAR)
    return BLOCK * n_blocks


def _clock_text(now_ms: int) -> str:
    """Return a time as text that a narrow column breaks between day and time only."""
    clock = datetime.fromtimestamp(now_ms / 1000, UTC)
    text = f"{clock:%Y-%m-%d %H:%M:%S}"
    return text.replace("-", NO_BREAK_HYPHEN)
