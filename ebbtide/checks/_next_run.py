"""The next run: spec, tables and source are as it needs them, so that green checks never stand over runs that are all refused."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._inputs import GivenRows
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.errors import EbbtideError, Transient
from ebbtide.runtime import AtRest

_COLUMNS = pa.schema([("refusal", pa.string()), ("may_pass", pa.bool_())])


def refusals(judged: Judged) -> Rows:
    """Look at the pipeline as its next run would.

    Returns:
        No row, or one: `refusal`, the run's error, and `may_pass`, whether a later run may not meet it.
    """
    tables = judged.tables
    rows = []
    try:
        found = AtRest.of(tables.spec, tables.all_pipelines)
        found.refuse()
        found.discovered(judged.clock_ms)
    except EbbtideError as error:
        rows.append({"refusal": str(error), "may_pass": isinstance(error, Transient)})
    given = GivenRows(pa.Table.from_pylist(rows, _COLUMNS))
    return Rows({"facts": given}, lambda _: "SELECT * FROM facts", ["refusal"], ["refusal"])


@rule("expect_next_run_to_begin", "Spec, tables and source must be as the next run needs them.")
def refused_runs(sql: Dialect) -> str:
    """Pick what refuses a run."""
    return "NOT may_pass"


@rule("expect_source_to_answer", "The source must answer.")
def unanswered(sql: Dialect) -> str:
    """Pick what a later run may not meet."""
    return "may_pass"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge what the next run would meet."""
    yield judged.batch(refusals(judged), refused_runs.expected(), unanswered.expected("warning"))
