"""Foreign writes: only the pipeline changes its tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule
from ebbtide.ledger import DataCommit

_COLUMNS = pa.schema(
    [
        ("table", pa.string()),
        ("version", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("operation", pa.string()),
        ("pipeline", pa.string()),
    ]
)


def commits(judged: Judged) -> Rows:
    """Read the commits that changed data of the sink or the state; joining files changes none.

    Returns:
        One row per commit: `table`, `version`, `at`, `operation`, and the `pipeline` that made it, or null.
    """
    tables = judged.tables
    window = judged.window
    name = tables.spec.name
    sink_versions = range(window.sink_since + 1, window.sink_until + 1)
    state_versions = range(window.state_since + 1, window.state_until + 1)
    found = [
        *DataCommit.of_table(name, "sink", tables.at("sink"), sink_versions),
        *DataCommit.of_table(name, "state", tables.state.path, state_versions),
    ]
    rows = [_row(commit, name) for commit in found]
    return Rows.given(pa.Table.from_pylist(rows, _COLUMNS))


def _row(commit: DataCommit, pipeline: str) -> dict[str, object]:
    return {
        "table": commit.table,
        "version": commit.version,
        "at": datetime.fromtimestamp(commit.at_ms / 1000, UTC),
        "operation": commit.operation,
        "pipeline": pipeline if commit.is_own else None,
    }


@rule("expect_commits_to_be_ours", "Every change of the tables must be the pipeline's own.")
def foreign_commits(sql: Dialect) -> str:
    """Pick the commits that the pipeline did not make."""
    return "pipeline IS NULL"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge who wrote to the sink and the state."""
    yield judged.batch(commits(judged), foreign_commits.expected())
