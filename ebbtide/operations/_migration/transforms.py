"""Migration of transforms: the sink gets the rows that a changed projection or filter selects from the state, without the source.

Only by sequence, where the state keeps whole rows; in arrival mode it keeps selected rows. All rows are evaluated again: failing
rows leave the sink and are quarantined, and earlier quarantined rows of the transform are removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.columns import entry_table
from ebbtide.delta import Action
from ebbtide.ledger import StepFacts
from ebbtide.model import Append
from ebbtide.operations._quarantine.redecoding import TRANSFORM_FAILED
from ebbtide.operators import Operator, Selected
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline, Transform
from ebbtide.tables import Keep, Selection

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def transform_migration(spec: Pipeline, last: StepFacts) -> list[str]:
    """Describe the changes of a transform; empty if it is the same.

    Args:
        spec: The pipeline with its new spec.
        last: Facts of the last step.
    """
    before = last.state.spec.get("transform")
    after = spec.identity.get("transform")
    if before == after:
        return []
    if before is None or after is None:
        return ["transform: added" if before is None else "transform: removed, the sink shows the rows unchanged"]
    words = []
    for name in sorted({*before["select"], *after["select"]}):
        words += _changed(
            f"select.{name}",
            before["select"].get(name),
            after["select"].get(name),
        )
    for part in ("where", "schema", "key"):
        words += _changed(part, before[part], after[part])
    functions = [identity.get("functions", {}) for identity in (before, after)]
    for name in sorted({*functions[0], *functions[1]}):
        words += _changed(f"functions.{name}", *(each.get(name) for each in functions))
    return words


def _changed(field: str, before: Any, after: Any) -> list[str]:
    if before == after:
        return []
    return [f"transform.{field}: {before} -> {after}"]


def with_stored_transform(spec: Pipeline, last: StepFacts) -> Pipeline:
    """Return a spec with the transform that a step was made with."""
    stored = last.state.spec.get("transform")
    if stored == spec.identity.get("transform"):
        return spec
    transform = Transform(**_fields(stored)) if stored else None
    return spec.model_copy(update={"transform": transform})


def _fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored transform: its functions without the digests of their code."""
    functions = {}
    for name, (target, _) in stored.get("functions", {}).items():
        functions[name] = target
    return {
        "schema": stored["schema"],
        "select": stored["select"],
        "where": stored["where"],
        "key": stored["key"],
        "functions": functions,
    }


@dataclass(frozen=True)
class WithoutSelected:
    """Keeps entries without a transform's columns.

    Args:
        keep: Selects the entries to keep.
    """

    keep: Keep

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `ebbtide.tables.Keep`."""
        kept = self.keep(entries, operator)
        had_transform = "_out" in kept.column_names
        if not had_transform:
            return kept
        return kept.drop_columns(list(Selected.COLUMNS))


@dataclass(frozen=True)
class Unselected:
    """Keeps entries with a transform's columns, still empty.

    Args:
        keep: Selects the entries to keep.
        operator: Whose entries they become.
    """

    keep: Keep
    operator: Operator

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `ebbtide.tables.Keep`."""
        kept = self.keep(entries, operator)
        return entry_table(self.operator.schema, dict(zip(kept.column_names, kept.columns, strict=True)), len(kept))


def reselected(
    executor: Executor,
    plan: Plan,
    actions: Sequence[Action],
    facts: StepFacts,
) -> tuple[list[Action], StepFacts]:
    """Evaluate a transform over all rows of the state.

    Args:
        plan: The pipeline with its new spec.
        actions: The actions with the state's new files, without selected rows.

    Returns:
        The actions with files with selected rows, and the facts with the failing rows.

    Raises:
        QuarantineThresholdError: too many rows fail.
    """
    from ebbtide.runtime import Selecting  # loads PySpark

    selecting = Selecting(executor, plan)
    selecting.refuse_unfit()
    # The files just written are read, evaluated and written again with the selected columns; the first ones are deleted.
    adds = [action for action in actions if "add" in action]
    beside = [action for action in actions if "add" not in action]
    # All failing rows are evaluated again: the present failures replace those in the quarantine.
    known = plan.quarantine.records(Selection(reasons=(TRANSFORM_FAILED,)))
    if len(known):
        actions = tuple(plan.quarantine.replace(known))
        leaving = Append(actions, removed={"replayed": len(known)})
        facts = facts.with_tables({"quarantine": leaving})
    written, counted = selecting.stored(adds, KnownRecords(known), facts)
    return [*beside, *written], counted


@dataclass(frozen=True)
class KnownRecords:
    """Finds the records of rows that failed before in the quarantine.

    Args:
        known: The quarantine's records.
    """

    known: pa.Table

    def __call__(self, orders: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], tuple[dict[str, Any], bytes]]:
        """Return the records by step, part and position, each with its origin and its bytes."""
        found = {}
        known = self.known.select(["order", "origin", "raw"])
        for record in known.to_pylist():
            order = tuple(record["order"].values())
            found[order] = record["origin"], record["raw"]
        return found
