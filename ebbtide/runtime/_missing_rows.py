"""Rows that changelog and quarantine have lost: rows that the state's commits still hold are appended again, the rest is counted.

A step's emissions are in its commit's files until VACUUM deletes them; its facts name the files of its bad records. A rewind, a
swap and a change of columns are not made again: of what steps up to one of these wrote nothing comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ebbtide.amounts import amount
from ebbtide.delta import Action, DataFile, Log, WholeFiles
from ebbtide.ledger import StepFacts
from ebbtide.model import Alter, Append, Apply, Clear, Replace, Restore, Rewrite
from ebbtide.runtime._plan import Plan

Steps = Sequence[tuple[int, StepFacts]]
"""Steps in order: the state's version, and the facts."""


@dataclass(frozen=True)
class MissingRows:
    """Rows that a table lacks of some steps.

    Args:
        recoverable: Rows of each step that can be appended again.
        lost: Rows of each step that no file has.
        may_reappear: Rows removed by each step, if the files that named them are gone: they stay.
        unknown_until_step: The last step whose rows are unknown; 0: there is none.
    """

    recoverable: dict[int, int]
    lost: dict[int, int]
    may_reappear: dict[int, int]
    unknown_until_step: int

    def text(self) -> str:
        """Write it for a terminal; empty if nothing is missing."""
        parts = []
        if self.recoverable:
            recoverable = _counted(self.recoverable)
            parts.append(f"{recoverable} can be appended again")
        if self.lost:
            lost = _counted(self.lost)
            parts.append(f"{lost} lost: the files that held them are gone")
        if self.may_reappear:
            left = _counted(self.may_reappear)
            parts.append(f"{left}, which left then, may be there again: the files that named them are gone")
        if self.unknown_until_step:
            parts.append(f"what steps up to {self.unknown_until_step} wrote there is lost: the state does not hold it")
        return "; ".join(parts)


def _counted(rows: dict[int, int]) -> str:
    n_rows = amount(sum(rows.values()), "row")
    steps = ", ".join(map(str, sorted(rows)))
    return f"{n_rows} of step {steps}"


def steps_to_repeat(plan: Plan, name: str, since: int) -> tuple[Steps, int]:
    """Return the steps after one that wrote rows of a table, and the last step whose rows are unknown; 0: none.

    A refresh, if any, comes first: it emptied the table. A repair does not change the rows that a table must show.

    Args:
        name: The table's: one of `Decision.OWN_OUTPUTS`.
        since: The last step that the table has; 0 for none.
    """
    found: list[tuple[int, StepFacts]] = []
    oldest = 1
    newest = plan.state.last()
    if newest is not None:
        _, last = newest
        oldest = last.step + 1  # the commit of the newest step may be missing too
    for version, facts in plan.state.steps():
        if facts.step <= since:
            return found[::-1], 0
        oldest = facts.step
        match facts.decision.tables.get(name):
            case Clear():
                found.append((version, facts))
                return found[::-1], 0
            case Append() | Apply():
                found.append((version, facts))
            case Restore() | Replace() | Alter() | Rewrite(alters=True):
                return found[::-1], facts.step
    # The log of the state may begin with a later step.
    is_whole = oldest <= since + 1
    unknown_until = 0 if is_whole else oldest - 1
    return found[::-1], unknown_until


def missing_rows(plan: Plan, name: str, since: int) -> MissingRows:
    """Return the rows that a changelog or a quarantine lacks from the steps after one.

    Args:
        name: `changelog` or `quarantine`.
        since: The last step that it has; 0 for none.
    """
    steps, unknown_until = steps_to_repeat(plan, name, since)
    missing = MissingRows({}, {}, {}, unknown_until)
    for version, facts in steps:
        if name == "quarantine":
            bad = _BadRecords.of(plan, facts.decision.bad_rows)
            n_kept = bad.n_kept
            n_lost = bad.n_lost
            removed = facts.decision.removed
            if bad.is_removal_lost and removed:
                missing.may_reappear[facts.step] = sum(removed.values())
        else:
            n_rows = _n_emitted(facts)
            n_kept = n_rows if _is_readable(plan, version) else 0
            n_lost = n_rows - n_kept
        if n_kept:
            missing.recoverable[facts.step] = n_kept
        if n_lost:
            missing.lost[facts.step] = n_lost
    return missing


def appendable(plan: Plan, name: str, since: int) -> Iterator[tuple[int, StepFacts, Clear | Append]]:
    """Yield what a changelog or a quarantine lacks and the state's commits still hold: version, facts and action of each step.

    Args:
        name: `changelog` or `quarantine`.
        since: The last step that it has; 0 for none.
    """
    steps, _ = steps_to_repeat(plan, name, since)
    for version, facts in steps:
        action = facts.decision.tables[name]
        if isinstance(action, Clear):
            yield version, facts, action
        elif name == "quarantine":
            bad = _BadRecords.of(plan, facts.decision.bad_rows)
            yield version, facts, Append(tuple(bad.actions))
        elif _is_readable(plan, version):
            yield version, facts, Append()


def _n_emitted(facts: StepFacts) -> int:
    """Return how many rows of the changelog a step has emitted, its TRUNCATE among them."""
    n_rows = facts.decision.counts.get("emitted", 0)
    return n_rows + facts.read.floor_raised


def _is_readable(plan: Plan, version: int) -> bool:
    """Return whether the files of a step's commit, with its emissions, are complete."""
    state = plan.state.path
    whole = WholeFiles(state)
    files = map(DataFile, Log(state).commit(version).adds())
    return all(map(whole.has, files))


@dataclass(frozen=True)
class _BadRecords:
    """The bad records of a step that are still known.

    Args:
        actions: The step's changes of the quarantine whose files exist.
        n_kept: Records that come with them.
        n_lost: Records in missing files.
        is_removal_lost: The step removed records that can no longer be identified.
    """

    actions: list[Action]
    n_kept: int
    n_lost: int
    is_removal_lost: bool

    @classmethod
    def of(cls, plan: Plan, changes: Sequence[Action]) -> _BadRecords:
        """Read them: of a file that loses records it takes both what it was and what is left."""
        # A file that loses records has two actions: it is removed as it was, and added as what is left of it. They go together.
        by_path: dict[str, list[Action]] = {}
        for action in changes:
            for named in action.values():
                by_path.setdefault(named["path"], []).append(action)
        kept: list[Action] = []
        whole = WholeFiles(plan.quarantine.path)
        n_kept = 0
        n_lost = 0
        is_removal_lost = False
        for actions in by_path.values():
            is_shortened = any("remove" in action for action in actions)
            files: list[DataFile] = []
            for action in actions:
                files += map(DataFile, action.values())
            # A shortened file adds no record.
            n_rows = 0
            if not is_shortened:
                n_rows = sum(file.rows or 0 for file in files)
            if all(map(whole.has, files)):
                kept += actions
                n_kept += n_rows
            else:
                n_lost += n_rows
                is_removal_lost |= is_shortened
        return cls(kept, n_kept, n_lost, is_removal_lost)
