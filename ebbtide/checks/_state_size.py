"""State size: the newest version of the state stays below the limits."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule

_COLUMNS = pa.schema([("_files", pa.int64()), ("_bytes", pa.int64()), ("_rows", pa.int64())])


def size(judged: Judged) -> Rows:
    """Read the size of the state from its log.

    Returns:
        One row: `_files` and their `_bytes`, deleted rows included; visible `_rows`, null if a file has no count.
    """
    snapshot = judged.tables.state.snapshot(judged.window.state_until)
    n_bytes = sum(file.size for file in snapshot.files.values())
    row = {"_files": len(snapshot.files), "_bytes": n_bytes, "_rows": snapshot.live_rows}
    return Rows.given(pa.Table.from_pylist([row], _COLUMNS))


@rule("expect_state_bytes_to_stay_below", "The data files of the state must have at most $most bytes.")
def excess_bytes(sql: Dialect, most: int) -> str:
    """Pick the state if its files have more bytes.

    Args:
        sql: The dialect.
        most: The most bytes allowed.
    """
    return f"_bytes > {most}"


@rule("expect_state_rows_to_stay_below", "The state must have at most $most rows.")
def excess_rows(sql: Dialect, most: int) -> str:
    """Select the state if it has more rows, or no row count.

    Args:
        sql: The dialect.
        most: The most rows allowed.
    """
    return f"_rows IS NULL OR _rows > {most}"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the size of the state by the limits of the spec."""
    limits = judged.tables.spec.checks
    expected = []
    if limits.max_state_bytes is not None:
        expected.append(excess_bytes.expected(most=limits.max_state_bytes))
    if limits.max_state_rows is not None:
        expected.append(excess_rows.expected(most=limits.max_state_rows))
    if expected:
        yield judged.batch(size(judged), *expected)
