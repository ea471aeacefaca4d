"""Full-snapshot cleanup: removes expired entries from the state's newest snapshot.

Few expired rows in a file: a deletion vector hides them. Many, or hidden rows that expired more than half of
`checks.cleanup_within` ago: the file is rewritten. Older snapshots keep expired rows until VACUUM, as in any Delta table. The
clock is that of a run that would begin now. What a tick must act on expires in a tick first, as a run's: the sink's row of an
entry, a call of `on_expire`. Source: FLIP-25, "cleanup in full snapshot".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.columns import Long, Mask, flags
from ebbtide.durations import to_ms
from ebbtide.entries import Step
from ebbtide.ledger import Cause, StepFacts
from ebbtide.model import Reading
from ebbtide.operations._maintenance.deletion import Expired, planned
from ebbtide.operations._maintenance.doomed import Found, find
from ebbtide.operations._maintenance.judging import Doom, judge_rows
from ebbtide.operations._maintenance.measuring import Done
from ebbtide.operations._quarantine.drop import trim
from ebbtide.operators import ExpiryRules, Operator
from ebbtide.runtime import Plan, Stepper
from ebbtide.tables import StateTable, Stored
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class Gone:
    """Picks entries that have expired or were dropped.

    Args:
        at: The step whose clock decides.
        stored_ms: How long an expired row may stay in a file, hidden by a vector, ms.
        expired: Marks the entries that have expired, of some rules. Default: those that need no tick first.
    """

    at: Step
    stored_ms: int = Long.MAX
    expired: Callable[[ExpiryRules, pa.Table, Step], Mask] = ExpiryRules.deletable

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """See `Pick`."""
        is_dropped = flags(entries, "_removed")
        return is_dropped | self.expired(operator.expiry, entries, self.at)

    def doom(self, state: StateTable) -> Doom:
        """Return this selection with the entry columns and file statistics that it reads."""
        rules = state.operator.expiry
        columns = {"_removed", *rules.columns, *rules.tick_columns}
        # Half of the time that the check allows: the other half remains until the next cleanup.
        half_ago = self.at.earlier(self.stored_ms // 2)
        return Doom(
            self,
            frozenset(columns),
            may_have=lambda file: state.may_hold_deletable(file, self.at),
            is_purged=Expired(half_ago),
            may_purge=lambda file: state.may_hold_expired(file, half_ago),
        )


def doom_of(
    plan: Plan, at: Step, expired: Callable[[ExpiryRules, pa.Table, Step], Mask] = ExpiryRules.deletable
) -> Doom:
    """Return the selection of a cleanup or a compaction at a step; `expired`: see `Gone`."""
    stored_ms = to_ms(plan.spec.checks.cleanup_within)
    return Gone(at, stored_ms, expired).doom(plan.state)


def present_clock(plan: Plan, last: StepFacts, wall_ms: int) -> Reading:
    """Return the clock of a cleanup: that of a run that begins now.

    Where downtime is left out, it is that of the last step: a cleanup reads nothing, so only the next run knows whether the
    time since then counts.

    Args:
        last: The last step.
        wall_ms: The wall clock, epoch ms.
    """
    if plan.spec.downtime_over is not None:
        return last.frontier.clock
    return plan.clock_after(last.frontier, wall_ms)


def cleanup(executor: Executor, stepper: Stepper, wall_ms: int, max_files: int | None = None) -> Done:
    """Delete expired and dropped entries of the state with all their versions, then old records of the quarantine.

    Each is a step, behind a tick if one must act on expired entries. Before them the snapshot transformers of a function get the
    entries that they have yet to be handed, in a step too.

    Args:
        stepper: Makes the pipeline's steps.
        wall_ms: The wall clock, epoch ms.
        max_files: See `find`.
    """
    # Read once: each reading would catch up by a further day with a clock that was held.
    clock = present_clock(stepper.plan, stepper.made, wall_ms)
    tick = stepper.expire(executor, stepper.facts(Cause(what="tick"), clock), only_awaited=True)
    if tick is not None:
        stepper.publish(executor)
    transformed = stepper.transform(executor, stepper.facts(Cause(what="cleanup"), clock))
    facts = stepper.facts(Cause(what="cleanup"), clock)
    doom = doom_of(stepper.plan, facts.operator_step)
    deleted = delete_entries(executor, stepper, facts, doom, max_files=max_files)
    has_trimmed = trim(executor, stepper, clock)
    is_step = deleted.is_step or has_trimmed or tick is not None or transformed is not None
    return deleted._replace(is_step=is_step, transformed=transformed)


def delete_entries(
    executor: Executor,
    stepper: Stepper,
    facts: StepFacts,
    doom: Doom,
    *,
    max_files: int | None = None,
) -> Done:
    """Commit a step that deletes entries with all their versions; only files that hold one are changed.

    Without such entries nothing is committed.

    Args:
        stepper: Makes the pipeline's steps.
        doom: Selects the entries.
        max_files: See `find`.
    """
    state = stepper.plan.state
    newest = stepper.newest()
    stored = state.stored(newest)
    found, left = found_in(executor, stored, packed(state.operator), doom, max_files)
    deletion = planned(state, stored, found, doom)
    if deletion:
        actions = deletion.actions(executor, newest, state.writer())
        stepper.commit(facts, actions)
    return Done(bool(deletion), found, left)


def found_in(
    executor: Executor,
    state: Stored,
    operator: Callable[[], Operator],
    doom: Doom,
    max_files: int | None,
) -> tuple[Found, int]:
    """Return the entries found, and the number of files with such entries left to later runs; arguments as `find`."""
    judged = judge_rows(executor, state, operator, doom)
    found = find(executor, state, operator, doom, max_files=max_files, judged=judged)
    if max_files is None:
        return found, 0
    n_files = sum(bool(each.doomed) for each in judged.values())
    left = max(n_files - max_files, 0)
    return found, left
