"""Tables beside the state that were deleted, replaced or put back: what they have lost, and what of it a repair brings back."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ebbtide.delta.log import LOG
from ebbtide.ledger.facts import TableFacts
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.decision import Replace, Restore
from ebbtide.paths import aside_of, copy_file, join, move_aside, walk
from ebbtide.runtime.belonging import OwnTables
from ebbtide.runtime.foreign import may_forget
from ebbtide.runtime.lacking import lacking
from ebbtide.runtime.step import Stepper
from ebbtide.sinks.stage import commit_stage

FORGOTTEN = "rows that the state has forgotten stood there alone: what is missing of them is lost"
"""What is said of a sink, where rows stay that the state forgets."""


@dataclass(frozen=True)
class Loss:
    """What became of a table.

    Args:
        table: Its name.
        what: What became of it, in words.
        rows: Which rows it has lost, and which come back; empty: it has lost none.
        is_aside: It cannot be gone on with: a repair moves it aside, and makes it anew.
    """

    table: str
    what: str
    rows: str
    is_aside: bool = False

    def text(self) -> str:
        """Say it in one line."""
        said = f"{self.table}: {self.what}"
        if self.is_aside:
            said += ", to be moved aside and made anew"
        return f"{said}; {self.rows}" if self.rows else said


def losses_of(
    stepper: Stepper,
    unreadable: Collection[str] = (),
    *,
    has_damaged_files: bool = False,
) -> tuple[Loss, ...]:
    """Return what became of the tables that were deleted, replaced or put back, or cannot be read.

    Args:
        stepper: Of the pipeline.
        unreadable: Names of the tables whose log cannot be read.
        has_damaged_files: Data files of the sink cannot be read, or were taken out by a repair that made no step.
    """
    losses = list(_losses(stepper, unreadable))
    if has_damaged_files and stepper.last is not None and may_forget(stepper.plan, stepper.last):
        losses.append(Loss("sink", "data files are gone or damaged", FORGOTTEN))
    return tuple(losses)


def _losses(stepper: Stepper, unreadable: Collection[str]) -> Iterator[Loss]:
    last = stepper.last
    if last is None:
        return
    found = stepper.tables.facts()
    for name in BESIDE_STATE:
        what = _what_became(last.state.tables.get(name), found.get(name))
        if name in unreadable:
            yield _unreadable_loss(stepper, name)
        elif name != "sink":
            yield from _appended_loss(stepper, name, what, found.get(name))
        elif (what or name not in found) and may_forget(stepper.plan, last):
            yield Loss(name, what or "gone", FORGOTTEN)


def lost_tables(stepper: Stepper, unreadable: Collection[str]) -> tuple[str, ...]:
    """Return the names of the tables that were deleted, replaced or put back, or cannot be read; arguments as `losses_of`."""
    last = stepper.last
    if last is None:
        return ()
    found = stepper.tables.facts()
    return tuple(
        name
        for name in BESIDE_STATE
        if name in unreadable or _what_became(last.state.tables.get(name), found.get(name))
    )


def pass_over(stepper: Stepper, names: Collection[str]) -> None:
    """Have lost tables take the last step as it is, where that brings tables back to an earlier version, or gives them a backfill's rows.

    They have no such version any more, and the backfill is deleted once all had its rows. What they must have the repair says.

    Args:
        stepper: Of the pipeline; the tables are made anew.
        names: Those of the lost tables.
    """
    last = stepper.last
    actions = last.decision.tables.values() if last is not None else ()
    if last is None or not any(isinstance(action, Restore | Replace) for action in actions):
        return
    for name in names:
        commit_stage(stepper.plan.at(name), lambda _: [], last, name)


def _unreadable_loss(stepper: Stepper, name: str) -> Loss:
    last = stepper.last
    rows = ""
    if name != "sink":
        rows = lacking(stepper.plan, name, 0).text()
    elif last is not None and may_forget(stepper.plan, last):
        rows = FORGOTTEN
    return Loss(name, "its log cannot be read", rows, is_aside=True)


def _what_became(known: TableFacts | None, found: TableFacts | None) -> str:
    """Say what became of a table that the last step knew; empty if it has all that it had then."""
    if known is None:
        return ""
    if found is None:
        return "gone"
    if found.id != known.id:
        return "another table is in its place"
    if found.step < known.step:
        return f"put back from step {known.step} to step {found.step}"
    return ""


def _appended_loss(stepper: Stepper, name: str, what: str, found: TableFacts | None) -> Iterator[Loss]:
    """Yield what became of a changelog or a quarantine, if something did."""
    has_own_steps = found is not None and not what.startswith("another")
    since = found.step if found is not None and has_own_steps else 0
    lacks = lacking(stepper.plan, name, since)
    if what and has_own_steps and not lacks.unknown_until:
        yield Loss(name, what, lacks.text())
    elif what:  # gone, another's, or without the steps before the first that can be appended
        yield Loss(name, what, lacking(stepper.plan, name, 0).text(), is_aside=found is not None)
    elif lacks.lost:  # of the last step
        yield Loss(name, "gone" if found is None else "put back to before the last step", lacks.text())


def set_aside(stepper: Stepper, names: list[str]) -> None:
    """Rename the folders of tables that cannot be gone on with.

    Args:
        stepper: Of the pipeline.
        names: Those of the tables.
    """
    for name in names:  # nothing is deleted
        folder = stepper.plan.at(name)
        if name == "quarantine":
            _set_log_aside(folder)
        else:
            move_aside(folder)
    stepper.tables = OwnTables(stepper.plan)


def _set_log_aside(folder: str) -> None:
    """Set a table aside whose files stay, too, as steps name them: they are appended again.

    The log goes last: killed before, nothing has become of the table, and after it is gone, with its files.
    """
    aside = aside_of(folder)
    for file in walk(folder):
        copy_file(join(folder, file.name), join(aside, file.name))
    Path(aside).mkdir(exist_ok=True)
    Path(folder, LOG).rename(Path(aside, LOG))
