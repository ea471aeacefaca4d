"""Event time: the newest event is recent, regardless of the time of writing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.durations import to_ms

_COLUMNS = pa.schema([("step", pa.int64()), ("newest_event_ms", pa.int64()), ("behind_ms", pa.int64())])


def newest_event(judged: Judged) -> Rows:
    """Read the age of the newest event of all steps.

    Returns:
        One row: `step`, the last; `newest_event_ms`, epoch ms, and `behind_ms`, its age, both null if no record had an
        event time. None before the first step.
    """
    commit = judged.tables.state.last()
    rows = []
    if commit is not None:
        _, facts = commit
        newest_ms = facts.frontier.max_event_ms
        behind_ms = None if newest_ms is None else judged.clock_ms - newest_ms
        rows.append({"step": facts.step, "newest_event_ms": newest_ms, "behind_ms": behind_ms})
    return Rows.given(pa.Table.from_pylist(rows, _COLUMNS))


@rule("expect_newest_event_to_be_recent", "The newest event must not lie back more than $max_delay_ms ms.")
def stale_events(sql: Dialect, max_delay_ms: int) -> str:
    """Select the newest event if it is too old or missing.

    Args:
        sql: The dialect.
        max_delay_ms: Maximum age, ms.
    """
    return f"behind_ms IS NULL OR behind_ms > {max_delay_ms}"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the age of the newest event."""
    max_delay = judged.tables.spec.checks.max_event_delay
    if max_delay is None:
        return
    yield judged.batch(newest_event(judged), stale_events.expected(max_delay_ms=to_ms(max_delay)))
