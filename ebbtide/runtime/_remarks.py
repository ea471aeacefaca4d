"""Remarks on a run that has not failed, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.ddl import added_ddl
from ebbtide.ledger import ForeignWrites

if TYPE_CHECKING:
    from ebbtide.runtime._progress import RunSummary


def remarks(summary: RunSummary) -> Iterator[str]:
    """Yield the remarks; see `RunSummary.remarks`."""
    if summary.nothing_matched:
        yield f"Nothing to read: {summary.nothing_matched}"
    if summary.foreign_writes:
        yield ForeignWrites(summary.foreign_writes).text()
    if summary.recomputed:
        yield f"Computed whole: {'; '.join(summary.recomputed)}."
    if summary.is_aged:
        yield "The run has reached max_run_age; the next run continues."
    if summary.files_young:
        yield f"Younger than source.min_age, and left for a later run: {amount(summary.files_young, 'file')}."
    if summary.files_unmatched:
        yield f"Not matching source.pattern: {amount(summary.files_unmatched, 'file')}."
    yield from _unapplied(summary)
    if summary.ignored_columns:
        yield f"Columns that the schema lacks, left out: {', '.join(summary.ignored_columns)}."
    if summary.evolved:
        yield f"Columns taken in, to be added to the schema: {', '.join(added_ddl(summary.evolved))}."
    if summary.held_ms:
        yield f"The clock was held back by up to {summary.held_ms:,} ms: it ran ahead of what max_clock_jump allows."


def _unapplied(summary: RunSummary) -> Iterator[str]:
    """Yield which records changed nothing though they may have been meant to."""
    n_other = summary.totals["other_tables"]
    if summary.is_of_other_tables:
        n_text = amount(n_other, "record")
        yield f"No record is of source.table: see that it is the table's name. Of other tables: {n_text}."
    elif n_other:
        yield f"Of other tables than source.table, and left out: {amount(n_other, 'record')}."
    n_not_rows = summary.totals["not_rows"]
    if n_not_rows:
        yield f"Events that change no row, such as heartbeats, passed over: {n_not_rows:,}."
    n_lone = summary.totals["lone_tombstones"]
    if n_lone:
        yield f"Deletes with only a tombstone: {n_lone:,}; their rows are still there (docs/how-to/debezium.md)."
