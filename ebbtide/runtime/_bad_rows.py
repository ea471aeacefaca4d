"""The bad records of a step, before it is decided: those that are new, refused where the spec refuses them, and laid ready."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.amounts import amount
from ebbtide.ddl import as_compared, is_column_name
from ebbtide.errors import SchemaDriftError
from ebbtide.formats import BadRecordError, agreed
from ebbtide.ledger import Head, StepFacts
from ebbtide.model import Append, BatchSummary
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._stage import Staged
from ebbtide.runtime._workers.staging import too_many_bad
from ebbtide.spec import Pipeline


@dataclass(frozen=True)
class BadRows:
    """The bad records of a step.

    Args:
        new: Those that no earlier step has put into the quarantine.
        n_known: Number of bad records that are in the quarantine already: a source may deliver a record twice.
    """

    new: pa.Table
    n_known: int

    @classmethod
    def of(cls, plan: Plan, head: Head, staged: Staged) -> BadRows:
        """Find them, before anything is committed.

        Args:
            head: Its last step.
            staged: The step's records.

        Raises:
            SchemaDriftError: some do not fit the schema, and the spec refuses these.
            QuarantineThresholdError: there are too many.
        """
        bad = staged.bad()
        new = plan.quarantine.new(bad, plan.offsets_read(head))
        refuse_drift(plan.spec, new)
        refuse_too_many(plan, len(new), staged.summary.counts.records)
        return cls(new, len(bad) - len(new))

    def laid_ready(self, plan: Plan, facts: StepFacts) -> StepFacts:
        """Write the new ones where the quarantine takes them from; return the step's facts, whose decision names the files."""
        actions = plan.quarantine.write(self.new, facts)
        return facts.with_tables({"quarantine": Append(tuple(actions))}) if actions else facts


def refuse_too_many(plan: Plan, n_bad: int, n_records: int) -> None:
    """Refuse a step with more bad records than the spec allows.

    Args:
        n_bad: Bad records of the step.
        n_records: All its records.

    Raises:
        QuarantineThresholdError: there are too many; nothing is committed.
    """
    limit = plan.spec.quarantine.max_rows_per_step
    if n_bad <= limit:
        return
    raise too_many_bad(plan.spec.name, f"{n_bad} of {n_records}", limit, plan.at("staged"))


def refuse_drift(spec: Pipeline, bad: pa.Table) -> None:
    """Refuse a step whose records do not fit the schema, where the spec says so.

    Args:
        bad: The step's bad records.

    Raises:
        SchemaDriftError: there are some; nothing is committed.
    """
    if spec.schema_evolution_mode != "fail":
        return
    is_drift = pc.is_in(bad["_reason"], pa.array(sorted(BadRecordError.OF_DRIFT)))
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
