"""A transform at work in a step: by sequence on the rows that were decided, in order of arrival on the changes that were staged.

Both come before the step's commit, so that a row whose expression fails is counted, and quarantined, with the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ebbtide.changelog import ORDER
from ebbtide.delta import Action as FileAction
from ebbtide.delta import DataFile
from ebbtide.executors import Executor
from ebbtide.expressions import Expressions
from ebbtide.ledger import StepFacts
from ebbtide.model import Append, BatchSummary
from ebbtide.redaction import MASK
from ebbtide.runtime._bad_rows import refuse_too_many
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._stage import Find, Staged
from ebbtide.runtime._workers.deciding import Decided, Decider
from ebbtide.runtime._workers.staging import BAD_ROWS, Share, StagedFile, Stager, balanced
from ebbtide.runtime._workers.transform import (
    DraftFinish,
    DraftInputs,
    Failed,
    Results,
    StagedFinish,
    StagedInputs,
    StoredFinish,
    StoredInputs,
)
from ebbtide.storage import Location, ParquetFile

if TYPE_CHECKING:
    from ebbtide.spec import Transform, UpsertPipeline

TRANSFORM_FAILED = "transform_failed"
"""The reason of a bad record whose row a transform's expression fails on."""
LOST = {"source": "state", "partition": 0, "position": 0}
"""Origin of a failing row whose record the step has not read: a stored row that was filled in."""
SINK_COUNTS = ("inserted", "updated", "deleted")


def expressions_of(executor: Executor, plan: Plan) -> Expressions:
    """Return the expressions of a pipeline with a transform."""
    spec = cast("UpsertPipeline", plan.spec)
    transform = cast("Transform", spec.transform)
    return Expressions(
        executor,
        transform,
        spec.table,
        spec.sink_table.columns,
        spec.personal,
    )


def select_decided(
    executor: Executor,
    plan: Plan,
    work: Decider,
    decided: Decided,
    staged: Staged,
    facts: StepFacts,
    *,
    is_little: bool,
) -> tuple[Decided, StepFacts]:
    """Evaluate the rows that a step has decided, and write its entries.

    Args:
        work: What decided, which wrote drafts.
        decided: What was decided.
        staged: The step's records.
        is_little: See `Executor.map`.

    Returns:
        The actions to commit, and the facts with the failing rows.

    Raises:
        QuarantineThresholdError: too many rows fail.
    """
    expressions = expressions_of(executor, plan)
    names = tuple(expressions.inputs.names)
    key = tuple(plan.spec.state_key_of.items())
    writing = replace(work, drafts=None)
    finish = DraftFinish(writing, key, results_of(plan, expressions))
    done = expressions.select(
        decided.drafts,
        DraftInputs(names),
        finish,
        is_little=is_little,
    )
    for draft in decided.drafts:
        Location(draft).delete()
    written = Decided.total(part for part, _ in done)
    counts = Counter({name: n for name, n in decided.metrics.items() if name not in SINK_COUNTS})
    counts.update(written.metrics)
    selected = replace(written, metrics=counts)
    failed = [failed for _, failed in done]
    return selected, with_failed(plan, expressions, failed, staged, facts)


def select_staged(executor: Executor, plan: Plan, staged: Staged, folder: str, n_tasks: int) -> Staged:
    """Evaluate the changes that a step has staged: what does not fit is left out, what fails is bad.

    Args:
        staged: The step's changes, with the source's columns.
        folder: Where the staged files are.
        n_tasks: Number of tasks; with one there is no job.

    Returns:
        The step's changes with the sink's columns, and all its bad rows.
    """
    if not staged.summary.counts.changes:
        return staged
    expressions = expressions_of(executor, plan)
    names = tuple(expressions.inputs.names)
    before = plan.stager(folder, refused=None)  # its columns and key alone
    inputs = StagedInputs(names, before.columns, tuple(before.key))
    operator = plan.operator
    stager = Stager(folder, operator.changes, operator.key, n_slices=executor.slices)
    finish = StagedFinish(inputs, stager, results_of(plan, expressions))
    shares = [Share(staged.files, slices) for slices in balanced(staged.files, n_tasks, executor.slices)]
    done = expressions.select(
        shares,
        inputs,
        finish,
        is_little=n_tasks == 1,
    )
    selected = [file for file, _ in done]
    bad_before = [StagedFile(bad=file.bad) for file in staged.files if file.bad is not None]
    bad = bad_rows(plan, expressions, [failed for _, failed in done], staged.find)
    now_bad = _written(bad, Location(folder) / "transform.bad.parquet")
    n_left = sum(sum(file.rows) for file in selected)
    summary = staged.summary.with_counts(changes=n_left)
    return replace(staged, files=(*selected, *bad_before, *now_bad), summary=summary)


def _written(bad: pa.Table, location: str) -> list[StagedFile]:
    if not len(bad):
        return []
    with ParquetFile(location).in_batches(BAD_ROWS) as file:
        for batch in bad.to_batches():
            file.write(batch)
    return [StagedFile(bad=location)]


def results_of(plan: Plan, expressions: Expressions) -> Results:
    """Return the reader of a pipeline's expression results, which also reports why a row fails."""
    names = [*plan.spec.key, *expressions.inputs.names]
    reported = tuple(dict.fromkeys(names))
    # One more than a step may have: by that the step knows that there are too many.
    most = plan.spec.quarantine.max_rows_per_step + 1
    return Results(expressions.sink, reported, most)


def with_failed(
    plan: Plan,
    expressions: Expressions,
    failed: Sequence[Failed],
    staged: Staged,
    facts: StepFacts,
) -> StepFacts:
    """Return a step's facts with the rows that its transform fails on, which are written down for the quarantine.

    Raises:
        QuarantineThresholdError: with them there are too many bad records.
    """
    n_failed = sum(each.n_rows for each in failed)
    if not n_failed:
        return facts
    bad = bad_rows(plan, expressions, failed, staged.find)
    n_bad = facts.read.quarantined + n_failed
    if n_bad > plan.spec.quarantine.max_rows_per_step:
        _written(bad, Location(plan.at("staged")) / str(facts.step) / "transform.bad.parquet")
    refuse_too_many(plan, n_bad, facts.read.records)
    return with_bad(plan, bad, facts)


def with_bad(plan: Plan, bad: pa.Table, facts: StepFacts) -> StepFacts:
    """Return a step's facts with further bad rows, which are written down for the quarantine."""
    if not len(bad):
        return facts
    n_bad = len(bad)
    total = facts.frontier.total_quarantined
    if total is not None:  # unknown where an older release did not count
        total += n_bad
    of_step = {"quarantined": facts.read.quarantined + n_bad}
    counted = {
        "read": facts.read.model_copy(update=of_step),
        "frontier": facts.frontier.model_copy(update={"total_quarantined": total}),
    }
    before = facts.decision.tables.get("quarantine")
    known = before if isinstance(before, Append) else Append()
    actions = plan.quarantine.write(bad, facts)
    appended = Append((*known.actions, *actions), known.removed)
    with_counts = facts.model_copy(update=counted)
    return with_counts.with_tables({"quarantine": appended})


def bad_rows(plan: Plan, expressions: Expressions, failed: Sequence[Failed], find: Find) -> pa.Table:
    """Return the quarantine's rows for failing rows: their records, once each.

    Args:
        expressions: What fails.
        failed: The rows.
        find: Finds the records.
    """
    tables = [each.rows for each in failed if each.n_rows]
    if not tables:
        return BAD_ROWS.empty_table()
    rows = pa.concat_tables(tables)
    reasons = expressions.reasons(rows)
    keys = _key_texts(plan, rows)
    orders = [tuple(order.values()) for order in rows["_order"].to_pylist()]
    all_values = rows.drop_columns("_order").to_pylist()
    found = find(orders)
    by_order: dict[tuple[int, ...], dict[str, Any]] = {}
    for order, key, reason, values in zip(orders, keys, reasons, all_values, strict=True):
        as_text = str(values)
        origin, raw = found.get(order, (LOST, as_text.encode()))
        record = {
            "_reason": TRANSFORM_FAILED,
            "_detail": f"{key}: {reason}",
            "_origin": origin,
            "_order": dict(zip(ORDER.names, order, strict=True)),
            "_raw": raw,
        }
        by_order.setdefault(order, record)
    return pa.Table.from_pylist(list(by_order.values()), BAD_ROWS)


def _key_texts(plan: Plan, rows: pa.Table) -> list[str]:
    """Return the text of each row's key, without personal values."""
    spec = plan.spec
    texts = []
    for row in rows.select(spec.key).to_pylist():
        parts = [f"{name}={MASK if name in spec.personal else value}" for name, value in row.items()]
        texts.append(", ".join(parts))
    return texts


@dataclass(frozen=True)
class Selecting:
    """Evaluates a pipeline's transform over rows that no run has just read.

    Args:
        executor: The executor; it has Spark.
        plan: The pipeline; it has a transform.
    """

    executor: Executor
    plan: Plan

    def replayed(self, staged: Staged, folder: str, facts: StepFacts) -> tuple[Staged, StepFacts]:
        """Return replayed records for the decision, and the facts with those that now fail.

        Args:
            staged: The records.
            folder: Where the staged files are.
        """
        plan = self.plan
        if not plan.spec.selects_changes:
            return staged, facts
        selected = select_staged(self.executor, plan, staged, folder, n_tasks=1)
        return selected, with_bad(plan, selected.bad(), facts)

    def stored(self, adds: Sequence[FileAction], find: Find, facts: StepFacts) -> tuple[list[FileAction], StepFacts]:
        """Evaluate the rows of new files of the state, and write them again with the selected rows; the given files are deleted.

        Args:
            adds: The actions that would add the files.
            find: Finds the records of rows that fail.

        Returns:
            The actions that add the written files, and the facts with the failing rows.

        Raises:
            ConfigError: Spark's analyzer refuses an expression.
            QuarantineThresholdError: too many rows fail.
        """
        plan = self.plan
        expressions = self._expressions
        state = plan.state
        inputs = StoredInputs(tuple(expressions.inputs.names), state.path, state.schema)
        key = tuple(plan.spec.state_key_of.items())
        finish = StoredFinish(inputs, key, state.bounded, results_of(plan, expressions))
        n_bytes = sum(add["add"]["size"] for add in adds)
        done = expressions.select(
            adds,
            inputs,
            finish,
            is_little=n_bytes <= Executor.LITTLE_BYTES,
        )
        for add in adds:
            Location(DataFile(add["add"]).location(state.path)).delete()
        written = [action for each, _ in done for action in each]
        failed = [failed for _, failed in done]
        staged = Staged((), BatchSummary(), find=find)
        return written, with_failed(plan, expressions, failed, staged, facts)

    def refuse_unfit(self) -> None:
        """Refuse expressions that Spark's analyzer refuses.

        Raises:
            ConfigError: it does.
        """
        self._expressions.refuse_unfit()

    @cached_property
    def _expressions(self) -> Expressions:
        return expressions_of(self.executor, self.plan)
