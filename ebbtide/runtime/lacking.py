"""Rows that changelog and quarantine have lost: what the state's commits still hold of them is appended again, the rest is counted.

What a step emitted stands in its commit's files, until VACUUM deletes them; its facts name the files of its bad records. A rewind, a
swap and a change of columns are not appended again: of what steps up to one of these wrote nothing comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Action, DataFile
from ebbtide.delta.table import read_file
from ebbtide.errors import DamagedFileError, DeltaLogError
from ebbtide.ledger.facts import StepFacts
from ebbtide.model.decision import Alter, Append, Clear, Replace, Restore
from ebbtide.runtime.plan import Plan
from ebbtide.sinks.quarantine import COLUMNS
from ebbtide.state_table.change_set import StepChanges

Steps = Sequence[tuple[int, StepFacts]]
"""Steps in order: the state's version, and the facts."""


@dataclass(frozen=True)
class Lacking:
    """What a table lacks of some steps.

    Args:
        again: Rows of each step that can be appended again.
        lost: Rows of each step that are nowhere.
        returning: Rows that left with each step, of which is no longer known which they were: they stay.
        unknown_until: The last step of which is not known what it wrote; 0: there is none.
    """

    again: dict[int, int]
    lost: dict[int, int]
    returning: dict[int, int]
    unknown_until: int

    def text(self) -> str:
        """Say it in words; empty if nothing is lacking."""
        parts = []
        if self.again:
            parts.append(f"{_counted(self.again)} can be appended again")
        if self.lost:
            parts.append(f"{_counted(self.lost)} lost: the files that held them are gone")
        if self.returning:
            left = _counted(self.returning)
            parts.append(f"{left}, which left then, may be there again: the files that named them are gone")
        if self.unknown_until:
            parts.append(f"what steps up to {self.unknown_until} wrote there is lost: the state does not hold it")
        return "; ".join(parts)


def _counted(rows: dict[int, int]) -> str:
    n_rows = amount(sum(rows.values()), "row")
    steps = ", ".join(map(str, sorted(rows)))
    return f"{n_rows} of step {steps}"


def lacking(plan: Plan, name: str, since: int) -> Lacking:
    """Return what a changelog or a quarantine lacks of the steps after one.

    Args:
        plan: The pipeline.
        name: `changelog` or `quarantine`.
        since: The last step that it has; 0 for none.
    """
    steps, unknown_until = _steps_after(plan, name, since)
    again: dict[int, int] = {}
    lost: dict[int, int] = {}
    returning: dict[int, int] = {}
    for version, facts in steps:
        n_rows, n_lost = _emitted_of(plan, version, facts) if name == "changelog" else _bad_of(plan, facts)
        if n_rows > n_lost:
            again[facts.step] = n_rows - n_lost
        if n_lost:
            lost[facts.step] = n_lost
        if name == "quarantine" and facts.decision.removed and _remaining(plan, facts).is_removal_lost:
            returning[facts.step] = sum(facts.decision.removed.values())
    return Lacking(again, lost, returning, unknown_until)


def append_lacking(plan: Plan, name: str) -> None:
    """Append again what a changelog or a quarantine lacks and the state's commits still tell; a step that it has is skipped.

    Args:
        plan: The pipeline.
        name: `changelog` or `quarantine`.
    """
    since = plan.beside(name).last_step()
    steps, _ = _steps_after(plan, name, since)
    for version, facts in steps:
        is_cleared = isinstance(facts.decision.tables[name], Clear)
        if name == "quarantine":
            _append_bad(plan, facts, is_cleared=is_cleared)
        else:
            _append_emitted(plan, version, facts, is_cleared=is_cleared)


def _append_bad(plan: Plan, facts: StepFacts, *, is_cleared: bool) -> None:
    if is_cleared:
        plan.quarantine.empty(facts)
    else:
        plan.quarantine.append(_remaining(plan, facts).actions, facts)


def _append_emitted(plan: Plan, version: int, facts: StepFacts, *, is_cleared: bool) -> None:
    emitted = _emitted(plan, version, facts)
    if is_cleared:
        plan.changelog.empty(facts)
    elif emitted is not None:
        plan.changelog.append(emitted, facts)


def _steps_after(plan: Plan, name: str, since: int) -> tuple[Steps, int]:
    """Return the steps after one that wrote a table, from a refresh on with that, and the last one of which that is not known."""
    found: list[tuple[int, StepFacts]] = []
    oldest = since + 1
    for version, facts in plan.state.steps():
        if facts.step <= since:
            break
        oldest = facts.step
        match facts.decision.tables.get(name):
            case Clear():  # an older copy has rows of before; nothing of that counts
                found.append((version, facts))
                return found[::-1], 0
            case Append():
                found.append((version, facts))
            case Restore() | Replace() | Alter():
                return found[::-1], facts.step
    # The log of the state may begin with a later step.
    unknown_until = oldest - 1 if oldest > since + 1 else 0
    return found[::-1], unknown_until


def _emitted_of(plan: Plan, version: int, facts: StepFacts) -> tuple[int, int]:
    """Count what a step emitted, and what of it is lost."""
    n_rows = facts.decision.counts.get("emitted", 0) + facts.read.floor_raised
    if not n_rows:
        return 0, 0
    is_lost = _emitted(plan, version, facts) is None
    return n_rows, n_rows if is_lost else 0


def _emitted(plan: Plan, version: int, facts: StepFacts) -> pa.Table | None:
    """Read what a step emitted; None if it emitted nothing, or that cannot be read."""
    n_emitted = facts.decision.counts.get("emitted", 0)
    if not (n_emitted or facts.read.floor_raised):
        return None
    changes = StepChanges(plan.state.path, version, plan.operator)
    try:
        return changes.emitted(plan.changelog.schema)
    except DamagedFileError:
        return None


def _bad_of(plan: Plan, facts: StepFacts) -> tuple[int, int]:
    """Count the bad records of a step, and those of them that are lost."""
    adds = [action for action in facts.decision.bad_rows if "add" in action]
    shortened = {action["remove"]["path"] for action in facts.decision.bad_rows if "remove" in action}
    n_rows = n_lost = 0
    for add in adds:
        file = DataFile(add["add"])
        if file.path in shortened:
            continue  # of its records some leave, none come
        n_of_file = file.rows or 0
        n_rows += n_of_file
        if not _can_be_read(plan, add):
            n_lost += n_of_file
    return n_rows, n_lost


@dataclass(frozen=True)
class _Remaining:
    """What is still known of a step's bad records.

    Args:
        actions: What the step changed in the quarantine, as far as its files are there.
        is_removal_lost: Records left with it of which is no longer known which they were.
    """

    actions: list[Action]
    is_removal_lost: bool


def _remaining(plan: Plan, facts: StepFacts) -> _Remaining:
    """Return what is still known of a step's bad records: of a file that lost some it takes both what it was and what is left."""
    by_path: dict[str, list[Action]] = {}
    for action in facts.decision.bad_rows:
        for named in action.values():
            by_path.setdefault(named["path"], []).append(action)
    actions: list[Action] = []
    is_removal_lost = False
    for of_file in by_path.values():
        if all(_can_be_read(plan, action) for action in of_file):
            actions += of_file
        elif any("remove" in action for action in of_file):
            is_removal_lost = True
    return _Remaining(actions, is_removal_lost)


def _can_be_read(plan: Plan, action: Action) -> bool:
    """Return whether the file of bad records that an action names is there, as it was written."""
    named = action.get("add") or action["remove"]
    try:
        read_file(plan.quarantine.path, DataFile(named), COLUMNS)
    except (DamagedFileError, DeltaLogError):
        return False
    return True
