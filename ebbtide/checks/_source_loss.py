"""Source loss: no records were lost before a run or a refresh read them, and every tombstone of a topic had its delete."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.ledger import StepFacts
from ebbtide.model import WholeSnapshot
from ebbtide.spec import DeltaSink

_COLUMNS = pa.schema([("step", pa.int64()), ("lost", pa.string())])


def noted(judged: Judged) -> Rows:
    """Read the accepted and detected losses.

    Returns:
        One row per step that notes a loss: `step`, `lost`.
    """
    window = judged.window
    rows = []
    keeps_order = judged.tables.spec.source.by_position  # a file with the delete may follow one with its tombstone
    for version, facts in judged.tables.state.steps():
        is_own_reset = version == window.input_since and facts.decision.is_reset  # the window begins with it
        if version <= window.input_since and not is_own_reset:
            break  # the newest come first
        is_in_window = version <= window.state_until
        if is_in_window:
            losses = _losses(facts, with_deletes=keeps_order)
            rows += [{"step": facts.step, "lost": lost} for lost in losses]
    return Rows.given(pa.Table.from_pylist(rows, _COLUMNS))


def _losses(facts: StepFacts, *, with_deletes: bool) -> Iterator[str]:
    """Describe the records of the source that a step lacks."""
    if facts.source.lost is not None:
        yield facts.source.lost
    n_lone = facts.decision.counts.get("lone_tombstones", 0)
    if n_lone and with_deletes:
        yield f"deletes with only a tombstone, {n_lone:,}: their rows are still there"


@rule("expect_records_to_be_read", "No records of the source may be lost before they are read.")
def lost_records(sql: Dialect) -> str:
    """Pick the losses that are wrong: all."""
    return "true"


def not_shown(judged: Judged) -> Rows | None:
    """Select the sink's rows below the newest snapshot of the whole source table.

    Returns:
        One row per key. None if no snapshot has ended within the window, or the sink is not a Delta table.
    """
    tables = judged.tables
    last = judged.window.last_step(tables)
    snapshot = None if last is None else last.frontier.snapshot
    if snapshot is None or not snapshot.has_ended or snapshot == _snapshot_before(judged):
        return None
    if not isinstance(tables.spec.sink, DeltaSink):
        return None
    lowest = snapshot.lowest
    sink = tables.delta_sink

    def query(sql: Dialect) -> str:
        key = sql.names(judged.key)
        ranks = sql.ranks("_sequence", sink.sequence)
        limits = [f"CAST({limit} AS BIGINT)" for limit in lowest]
        return f"""
            SELECT {key}
            FROM sink_rows
            WHERE {sql.is_before(ranks, limits)}"""

    return Rows({"sink_rows": judged.sink_rows}, query, judged.key, judged.key)


def _snapshot_before(judged: Judged) -> WholeSnapshot | None:
    """Return the newest snapshot before the window."""
    for version, facts in judged.tables.state.steps():
        if version <= judged.window.input_since:
            return facts.frontier.snapshot
    return None


@rule(
    "expect_snapshot_to_show_all_rows",
    "Each row of the sink must be in the newest snapshot of the source's table, or have changed since.",
)
def rows_not_shown(sql: Dialect) -> str:
    """Pick the rows that the snapshot did not show: all."""
    return "true"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the lost records of the source."""
    yield judged.batch(noted(judged), lost_records.expected())
    below_snapshot = not_shown(judged)
    if below_snapshot is not None:
        yield judged.batch(below_snapshot, rows_not_shown.expected())
