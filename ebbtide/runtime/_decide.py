"""Decide: a step's changes and the stored entries of their keys in, one commit to the state out.

That commit is the decision: it alone determines the sink's rows (`ebbtide.runtime._publish`). Workers decide, each
about a share of the keys, and write files; the driver commits these. A small step is decided in the driver, without a job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import OffsetRanges
from ebbtide.columns import columns_named
from ebbtide.delta import DataFile, KeyIndex, Snapshot
from ebbtide.ledger import Head, StepFacts
from ebbtide.model import Action, Append, Apply
from ebbtide.operators import FormerKeys
from ebbtide.runtime._outputs import to_commit
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._stage import Staged
from ebbtide.runtime._workers.deciding import Decided, Decider, DecideShare
from ebbtide.runtime._workers.staging import Share, balanced
from ebbtide.sources import Part
from ebbtide.storage import Location
from ebbtide.tables import Stored
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor

Committed = tuple[Snapshot, StepFacts]
"""A version of the state, and the facts committed with it."""
OVERWRITING = frozenset({"updated", "deleted", "filled"})
"""Counts of a step that changes rows which the sink has."""
PENDING = "pending_key_changes"
"""Count of the rows that wait for a value from under another key."""
ROWS_IN_DRIVER = 20_000
"""Maximum changes of a step that the driver decides itself: a Spark job costs more."""


def decide(
    executor: Executor,
    plan: Plan,
    head: Head,
    staged: Staged,
    facts: StepFacts,
    *,
    snapshot: Snapshot,
    parts: Sequence[Part],
) -> Committed:
    """Decide a batch.

    Args:
        executor: Runs the tasks.
        head: Its last step.
        staged: The batch's records.
        snapshot: The state after the last step.
        parts: Parts of the source that the batch read, to be remembered.

    Returns:
        The version of the state that holds the decision, and the facts as committed: with the counts.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    work = _work(plan, head, facts, snapshot)
    if plan.spec.selects_rows:
        work = replace(work, drafts=Location(plan.at("staged")) / str(facts.step))
    linked = _linked(plan, staged, snapshot)
    shares = _shares(executor, staged, linked)
    # In the same commit as the decision, so that no crash lets a file be read twice, or never.
    notes = plan.state.noted_files(parts, facts.step) if parts else None
    is_alone = len(shares) == 1 and work.drafts is None
    if is_alone:
        work = replace(work, notes=notes)
    deciding = DecideShare(
        work,
        plan.operator.changes,
        tuple(plan.operator.key),
        _repeats_of(plan, head, staged),
    )
    is_little = staged.summary.counts.changes <= ROWS_IN_DRIVER
    parts_decided = executor.map(deciding, shares, is_little=is_little, at=lambda share: share.middle(executor.slices))
    decided = Decided.total(parts_decided)
    if decided.drafts:
        from ebbtide.runtime._selection import select_decided

        decided, facts = select_decided(
            executor,
            plan,
            work,
            decided,
            staged,
            facts,
            is_little=is_little,
        )
    is_pending = decided.metrics.get(PENDING, 0) > 0
    facts = facts.with_state({PENDING: is_pending})
    if notes is not None and not is_alone:
        decided = decided.plus(Decided([plan.state.add_rows(notes, data_change=True)]))
    return _commit(plan, head, decided, facts, snapshot)


def selected_changes(executor: Executor, plan: Plan, staged: Staged, folder: str) -> Staged:
    """Return a step's changes for the decision, transformed if a transform applies to changes.

    Args:
        staged: Records of the step.
        folder: Where the staged files are.
    """
    if not plan.spec.selects_changes:
        return staged
    from ebbtide.runtime._selection import select_staged

    return select_staged(executor, plan, staged, folder, _n_tasks(executor, staged))


def expire(
    executor: Executor,
    plan: Plan,
    head: Head,
    facts: StepFacts,
    *,
    snapshot: Snapshot,
    must_commit: bool,
    only_awaited: bool = False,
) -> Committed | None:
    """Decide a tick: drop expired entries, fire timers.

    Args:
        head: Its last step.
        snapshot: The state after the last step.
        must_commit: Commit though nothing is due: the facts have something new.
        only_awaited: Examine only keys with entries that must not be deleted without a tick.

    Returns:
        As `decide`; None if nothing is due.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    keys = plan.state.due_keys(snapshot, facts.operator_step, only_awaited=only_awaited)
    work = _work(plan, head, facts, snapshot)
    decided = _by_key(executor, work.expire, keys)
    if not (must_commit or decided.n_entries):
        return None
    return _commit(plan, head, decided, facts, snapshot)


def transform(executor: Executor, plan: Plan, head: Head, facts: StepFacts, *, snapshot: Snapshot) -> Committed | None:
    """Decide what the snapshot transformers of a function leave of the entries that they have yet to be handed; arguments as `expire`.

    Returns:
        As `decide`; None if there are none.

    Raises:
        LeaseLostError: another run committed this step first.
        StatefulFunctionError: a transformer failed.
    """
    since = head.facts.state.transformed
    keys = plan.state.untransformed_keys(snapshot, since)
    if not len(keys):
        return None
    work = _work(plan, head, facts, snapshot)
    decided = _by_key(executor, partial(work.transform, since=since), keys)
    # Also if all entries are kept: each is handed over once.
    return _commit(plan, head, decided, facts.with_state({"transformed": facts.step}), snapshot)


def _by_key(executor: Executor, decide: Callable[[pa.Table], Decided], keys: pa.Table) -> Decided:
    """Decide some keys, each once; many by tasks."""
    n_tasks = 1 if len(keys) <= ROWS_IN_DRIVER else partitions(executor, len(keys))
    rows_each = -(-len(keys) // n_tasks)  # rounded up
    groups = [keys.slice(start, rows_each) for start in range(0, len(keys), max(rows_each, 1))]
    parts_decided = executor.map(decide, groups, is_little=n_tasks == 1)
    return Decided.total(parts_decided)


def partitions(executor: Executor, rows: int) -> int:
    """Return how many tasks a step's rows go to."""
    if executor.MOST_ROWS is None:
        return executor.parallelism
    for_size = -(-rows // executor.MOST_ROWS)  # rounded up
    return max(executor.parallelism, for_size)


def _work(plan: Plan, head: Head, facts: StepFacts, snapshot: Snapshot) -> Decider:
    return Decider(
        operator=packed(plan.operator),
        writer=plan.state.writer(),
        step=facts.operator_step,
        state=replace(plan.state.stored(snapshot), generation=plan.copies_generation(facts)),
        sink=_sink_rows(plan, head),
        group_bytes=plan.spec.max_group_bytes,
    )


def _sink_rows(plan: Plan, head: Head) -> Stored | None:
    """Return the sink's rows if they replace expired entries."""
    if not plan.spec.expires_live or head.facts.decision.is_reset:
        return None
    sink = Snapshot.read(plan.sink.path)
    if sink is None:
        return None
    return Stored(plan.sink.path, tuple(sink.files.values()), plan.sink.schema, table_id=sink.id)


def _n_tasks(executor: Executor, staged: Staged) -> int:
    """Return how many tasks a batch is dealt out to; one is the driver."""
    n_changes = staged.summary.counts.changes
    return 1 if n_changes <= ROWS_IN_DRIVER else partitions(executor, n_changes)


def _shares(executor: Executor, staged: Staged, linked: pa.Table | None) -> list[Share]:
    """Divide the batch among tasks; linked keys are a separate share."""
    n_tasks = _n_tasks(executor, staged)
    dealt = balanced(staged.files, n_tasks, executor.slices)
    shares = [Share(staged.files, slices, linked) for slices in dealt]
    if linked is not None:
        shares.append(Share(staged.files, None, linked, has_linked=True))
    return shares


def _commit(plan: Plan, head: Head, decided: Decided, facts: StepFacts, snapshot: Snapshot) -> Committed:
    """Commit what tasks have decided: from here on the step is made, and all else follows from the commit."""
    counts = {name: count for name, count in decided.metrics.items() if count}
    if facts.read.erased:
        counts["erased"] = facts.read.erased
    if facts.read.not_rows:
        counts["not_rows"] = facts.read.not_rows
    own = _actions(plan, facts, counts)
    tables = {**own, **facts.decision.tables}
    decision = facts.decision.model_copy(update={"counts": counts, "tables": tables})
    facts = to_commit(plan, head.facts, facts.with_decision(decision))
    made = plan.state.perform(decided.adds, facts, snapshot)
    return made, facts


def _actions(plan: Plan, facts: StepFacts, counts: Mapping[str, int]) -> dict[str, Action]:
    """Return the actions of sink and changelog for the decided entries."""
    actions: dict[str, Action] = {}
    raises_floor = facts.read.floor_raised
    overwrites = raises_floor or not OVERWRITING.isdisjoint(counts)
    if overwrites or counts.get("inserted"):
        # Rows that were in the sink before the first step are adopted as if they came.
        is_adoption = facts.state.unadopted is not None
        actions["sink"] = Apply(only_inserts=not (overwrites or is_adoption))
    has_emitted = raises_floor or bool(counts.get("emitted"))
    if plan.spec.emits_every and has_emitted:
        actions["changelog"] = Append()
    return actions


def _repeats_of(plan: Plan, head: Head, staged: Staged) -> OffsetRanges | None:
    """Return the offsets of repeated records; replayed records were read before, but not applied."""
    known = plan.offsets_read(head)
    if known is None or not staged.replayed:
        return known
    return known.without_ranges(staged.replayed)


def _linked(plan: Plan, staged: Staged, snapshot: Snapshot) -> pa.Table | None:
    """Return the keys of rows with changed keys that the step may concern under an old key; None if there are none.

    They are decided on together: a value may have to be looked for under another key.
    """
    if FormerKeys.COLUMN not in plan.operator.schema.names:
        return None
    key = tuple(plan.operator.key)
    schema = plan.operator.schema
    columns = columns_named(schema, (*key, FormerKeys.COLUMN))
    # Every file of the state may hold such entries, but almost none does: the statistics of a file say so, and what was read of
    # one is kept for the process. The cost is that of the files with links.
    moved = [columns.empty_table()]
    for data_file in snapshot.files.values():
        if not data_file.is_all_null(FormerKeys.COLUMN):
            add = json.dumps(data_file.add)
            moved.append(_links_in(plan.state.path, add, columns))
    has_moved = any(map(len, moved))
    if not (staged.summary.counts.key_changes or has_moved):
        return None
    names = [*key, "_sequence", FormerKeys.COLUMN]
    changes = _staged_columns(staged, names)
    keys = FormerKeys.linked(changes, moved, key)
    if keys is None:
        return None
    distinct, *_ = KeyIndex.distinct_keys(keys, key)
    return distinct


def _staged_columns(staged: Staged, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of all changes of a batch."""
    for file in staged.files:
        for batch in file.read():
            changes = pa.table(batch)
            yield changes.select(names)


@lru_cache(maxsize=4096)
def _links_in(table: str, add: str, columns: pa.Schema) -> pa.Table:
    """Return the entries of a file of the state that went through a key change; a file does not change, and few entries do.

    Args:
        table: The state.
        add: The log's `add` of the file, as JSON.
        columns: What to read.
    """
    file = DataFile(json.loads(add))
    rows = file.read(table, columns, live=False)
    has_links = pc.is_valid(rows[FormerKeys.COLUMN])
    return rows.filter(has_links)
