"""Quarantine: the share of bad records stays below the limit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule

_COLUMNS = pa.schema([("step", pa.int64()), ("records", pa.int64()), ("quarantined", pa.int64())])


def batches(judged: Judged) -> Rows:
    """Read the steps' counts of records.

    Returns:
        One row per batch: `step`, `records` (bad ones included), `quarantined`.
    """
    window = judged.window
    rows = []
    for version, facts in judged.tables.state.steps():
        if version <= window.input_since:
            break
        if version <= window.state_until and facts.decision.reads_source:
            rows.append({"step": facts.step, "records": facts.read.records, "quarantined": facts.read.quarantined})
    return Rows.given(
        pa.Table.from_pylist(rows, _COLUMNS),
        "SELECT *, sum(quarantined) OVER () AS _all_bad, sum(records) OVER () AS _all FROM facts",
    )


@rule("expect_quarantine_rate_to_stay_below", "At most $max_rate of the records may be bad.")
def excess_bad_records(sql: Dialect, max_rate: float) -> str:
    """Pick the steps with bad records, if all steps together have a greater share of them than `max_rate`.

    Args:
        sql: The dialect.
        max_rate: Greatest share allowed, 0 to 1.
    """
    return f"quarantined > 0 AND _all_bad > _all * CAST({max_rate!r} AS DOUBLE)"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the share of bad records of each step."""
    max_rate = judged.tables.spec.checks.max_quarantine_rate
    yield judged.batch(batches(judged), excess_bad_records.expected(max_rate=max_rate))
