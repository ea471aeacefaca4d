"""Columns that a step adds, by the spec's `schema_evolution_mode`; see docs/how-to/drift.md."""

from __future__ import annotations

from ebbtide.ddl import as_compared, is_column_name
from ebbtide.formats import agreed
from ebbtide.model import BatchSummary
from ebbtide.spec import Pipeline


def columns_taken_in(spec: Pipeline, summary: BatchSummary) -> dict[str, str]:
    """Return the columns of a batch that the pipeline adds, to their types: those whose type and name are certain.

    Args:
        summary: Summary of the batch.
    """
    if spec.schema_evolution_mode != "evolve":
        return {}
    names = map(as_compared, spec.table.columns.names)
    taken = Pipeline.RESERVED_COLUMNS.union(names)
    types = {}
    for name, stated in sorted(summary.types.items()):
        type_ = agreed(stated)
        compared = as_compared(name)
        if type_ is not None and is_column_name(name) and compared not in taken:
            taken = taken | {compared}
            types[name] = type_
    return types
