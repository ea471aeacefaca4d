"""Schema drift: the source has no columns that the schema lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, rule

_COLUMNS = pa.schema([("step", pa.int64()), ("unknown_column", pa.string())])


def left_out(judged: Judged) -> Rows:
    """Read the record columns that were left out, according to the present spec.

    Returns:
        One row per step and column: `step`, `unknown_column`. Without columns that the spec now has, or ignores.
    """
    spec = judged.tables.spec
    window = judged.window
    known = {
        *spec.table.columns.names,
        *spec.renamed.values(),
        *spec.ignored_columns,
    }
    rows = []
    for version, facts in judged.tables.state.steps():
        if version <= window.input_since:
            break  # the newest come first
        if version > window.state_until:
            continue
        unknown = [name for name in facts.read.ignored_columns if name not in known]
        rows += [{"step": facts.step, "unknown_column": name} for name in unknown]
    return Rows.given(pa.Table.from_pylist(rows, _COLUMNS))


@rule(
    "expect_columns_to_be_known",
    "The source must have no columns that the schema lacks, but those under ignored_columns.",
)
def unknown_columns(sql: Dialect) -> str:
    """Pick the columns that were left out: all."""
    return "true"


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the columns of the source that were left out."""
    yield judged.batch(left_out(judged), unknown_columns.expected("warning"))
