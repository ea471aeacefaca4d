"""The report of a migration, planned or applied."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide.amounts import amount
from ebbtide.operations._operation import Report

COUNTS = ("stamped", "unstamped", "revived", "dropped", "rewritten")
"""The counts of a report: entries that get a stamp, lose it, become live again, or belong to removed states; and rows of sink and
changelog that are rewritten with other columns."""


def migration_report(
    pipeline: str,
    changes: Sequence[str] = (),
    step: int | None = None,
    **counted: int,
) -> Report:
    """Make the report of a migration, planned or done.

    Args:
        pipeline: Name of the pipeline.
        changes: Descriptions of the changes.
        step: The step that did it; None of a plan.
        counted: See `COUNTS`; missing counts are 0.
    """
    counts = {name: counted.get(name, 0) for name in COUNTS}
    details = {"changes": list(changes)}
    if not changes:
        return Report(pipeline, ["stored data fits the spec; nothing to migrate."], counts, details, step)
    stamped = amount(counts["stamped"], "entry", "entries")
    parts = [
        f"{stamped} stamped",
        f"{counts['unstamped']} unstamped",
        f"{counts['revived']} expired ones brought back",
        f"{counts['dropped']} dropped",
    ]
    if counts["rewritten"]:
        rewritten = amount(counts["rewritten"], "row")
        parts.append(f"{rewritten} of sink and changelog rewritten")
    done = ", ".join(parts)
    next_step = "To do it: 'ebbtide migrate --apply'."
    if step is not None:
        next_step = f"Done in step {step}. To undo it before the next run: 'ebbtide migrate --undo'."
    return Report(pipeline, [f"{done}.", *changes], counts, details, step, next_step)
