"""What a step does about records that do not fit the schema, by the spec's `schema_evolution_mode`; see docs/how-to/drift.md."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.amounts import amount
from ebbtide.errors import SchemaDriftError
from ebbtide.formats.inference import agreed
from ebbtide.model.step import BatchSummary
from ebbtide.spec.ddl import as_compared, is_column_name
from ebbtide.spec.fitting import RESERVED_COLUMNS
from ebbtide.spec.pipeline import Pipeline

REASONS = ("unknown_column", "wrong_type", "missing_column")
"""Reasons of bad records that do not fit the schema."""


def columns_taken_in(spec: Pipeline, summary: BatchSummary) -> dict[str, str]:
    """Return the columns of a batch that the pipeline takes in, to their types: those whose type and name are certain.

    Args:
        spec: The pipeline.
        summary: The batch's.
    """
    if spec.schema_evolution_mode != "evolve":
        return {}
    names = map(as_compared, spec.table.columns.names)
    taken = RESERVED_COLUMNS.union(names)
    types = {}
    for name, stated in sorted(summary.types.items()):
        type_ = agreed(stated)
        compared = as_compared(name)
        if type_ is not None and is_column_name(name) and compared not in taken:
            taken = taken | {compared}
            types[name] = type_
    return types


def refuse_drift(spec: Pipeline, bad: pa.Table) -> None:
    """Refuse a step whose records do not fit the schema, where the spec says so.

    Args:
        spec: The pipeline.
        bad: The step's bad records.

    Raises:
        SchemaDriftError: there are some; nothing is committed.
    """
    if spec.schema_evolution_mode != "fail":
        return
    is_drift = pc.is_in(bad["_reason"], pa.array(REASONS))
    drifted = bad.filter(is_drift)
    if not len(drifted):
        return
    [first] = drifted.slice(0, 1).select(["_reason", "_detail", "_origin"]).to_pylist()
    origin = first["_origin"]
    place = f"{origin['source']} partition {origin['partition']} position {origin['position']}"
    reason = first["_reason"]
    detail = first["_detail"]
    raise SchemaDriftError.of(
        f"Records do not fit the schema of '{spec.name}'; nothing of the step was committed.",
        got=f"{amount(len(drifted), 'record')}, the first of them {place}: {reason}: {detail}",
        allowed="records that fit, as schema_evolution_mode is fail",
        next_step="Change the schema and run 'ebbtide migrate', list a column under ignored_columns, or set schema_evolution_mode: quarantine.",
    )
