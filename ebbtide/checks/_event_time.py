"""Event time: what arrives is recent, whatever the time at which it was written."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.durations import to_ms

_COLUMNS = pa.schema([("step", pa.int64()), ("newest_event_ms", pa.int64()), ("behind_ms", pa.int64())])


def newest_event(judged: Judged) -> Rows:
    """Read how old the newest event of all steps is.

    Returns:
        One row: `step`, the last; `newest_event_ms`, epoch ms, and `behind_ms`, how long ago that is, both null where no record had an
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
    """Pick the newest event if it is too old, or if there is none.

    Args:
        sql: The dialect.
        max_delay_ms: How far it may lie back, ms.
    """
    return f"behind_ms IS NULL OR behind_ms > {max_delay_ms}"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge how old the newest event is."""
    max_delay = judged.tables.spec.checks.max_event_delay
    if max_delay is None:
        return
    yield judged.batch(newest_event(judged), stale_events.expected(max_delay_ms=to_ms(max_delay)))
