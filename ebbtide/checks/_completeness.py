"""Completeness: the sink has exactly the rows that the state shows."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._engines import SAMPLE_ROWS, Broken
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import rule
from ebbtide.checks._samples import sample_of
from ebbtide.runtime import SinkDifference, SinkHistory


@rule("expect_sink_to_be_complete", "The sink must have exactly the rows that the state shows.")
def differing_keys(sql: Dialect) -> str:
    """Select the keys whose row differs from the decided one, or that have several rows."""
    return "NOT _ebbtide_is_same OR _rows > 1"


def judge(judged: Judged) -> Iterator[Batch]:
    """Compare the whole sink with the whole state, if the state keeps the rows that the sink must show, and the last step is in the sink.

    A sample has the rows of a key as `_decided` and `_shown`, and how many the sink has, `_rows`; see `SinkDifference`.
    """
    tables = judged.tables
    window = judged.window
    facts = window.last_step(tables)
    if facts is None or not SinkHistory(tables, facts).is_kept:
        return
    found = SinkDifference.found(
        judged.engines.executor({"state_rows": judged.state_rows, "sink_rows": judged.sink_rows}),
        tables,
        facts,
        state_version=window.state_until,
        sink_version=window.sink_until,
        sink_since=window.sink_since,
        n_samples=SAMPLE_ROWS,
    )
    samples = found.samples.select([*judged.key, "_decided", "_shown", "_rows"])
    broken = Broken(len(found.differing), sample_of(samples))
    yield judged.batch(samples, differing_keys.expected(), broken=[broken])
