"""Repairs changelog and quarantine: their rows are appended again, if the state's commits still hold them. Further outputs take the sink's.

A table that cannot be read is moved aside and begins again; nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ebbtide.delta import Log
from ebbtide.ledger import TableFacts
from ebbtide.operations._repair.report import Finding
from ebbtide.runtime import Stepper
from ebbtide.storage import Location


def what_became(known: TableFacts | None, found: TableFacts | None) -> str:
    """Describe the damage of a table that the last step knew; empty if it is complete."""
    if known is None:
        return ""
    if found is None:
        return "gone"
    if found.id != known.id:
        return "another table is in its place"
    if found.step < known.step:
        return f"put back from step {known.step} to step {found.step}"
    return ""


def appended_findings(stepper: Stepper, unreadable: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the damages of changelog and quarantine."""
    known = stepper.made.state.tables
    found = stepper.tables.facts()
    for name in ("changelog", "quarantine"):
        is_unreadable = name in unreadable
        there = found.get(name)
        became = unreadable.get(name) or what_became(known.get(name), there)
        finding = _appended_finding(stepper, name, became, there, is_unreadable=is_unreadable)
        if finding is not None:
            yield finding


def output_findings(stepper: Stepper) -> Iterator[Finding]:
    """Yield the damages of further outputs."""
    known = stepper.made.state.tables
    found = stepper.tables.facts()
    for name in stepper.plan.outputs:
        became = what_became(known.get(name), found.get(name))
        if became:
            yield Finding(name, became, "it takes all rows of the sink")


def _appended_finding(
    stepper: Stepper,
    name: str,
    became: str,
    found: TableFacts | None,
    *,
    is_unreadable: bool,
) -> Finding | None:
    """Return the damage of a changelog or a quarantine; None if there is none.

    Args:
        name: The table's.
        became: Description of the damage; empty: it has all steps that the last step knew.
        found: The present table; None if it does not exist or cannot be read.
        is_unreadable: It cannot be read.
    """
    is_own = found is not None and not became.startswith("another")
    since = found.step if found is not None and is_own else 0
    # The rows of the steps after the last one that the table has.
    missing = stepper.missing_rows(name, since)
    if not became:
        what = "gone" if found is None else "put back to before the last step"
        is_unmade = name == "changelog" and stepper.spec.emits_every and found is None
        if not missing.lost and not is_unmade:
            return None
        return Finding(name, what, rows=missing.text())
    if is_own and not missing.unknown_until_step:
        return Finding(name, became, rows=missing.text())
    # Gone, replaced, or without the steps before the first that can be appended: it begins again.
    missing = stepper.missing_rows(name, 0)
    is_aside = is_unreadable or found is not None
    return Finding(name, became, rows=missing.text(), is_aside=is_aside)


def set_aside(stepper: Stepper, names: list[str]) -> None:
    """Rename the folders of tables that cannot be continued; nothing is deleted."""
    for name in names:
        folder = stepper.plan.at(name)
        if name == "quarantine":
            _set_log_aside(folder)
        else:
            Location(folder).move_aside()
    stepper.look_again()


def _set_log_aside(folder: str) -> None:
    """Set a table aside whose files must stay, since steps name them: they are appended again.

    The log is moved last: killed before that, the table is unchanged; killed after, it is gone and its files remain.
    """
    aside = Location(folder).free_aside()
    for file in Location(folder).walk():
        original = Location(folder) / file.name
        original.copy_to(Location(aside) / file.name)
    Path(aside).mkdir(exist_ok=True)
    last = Path(folder, Log.FOLDER)
    last.rename(Path(aside, Log.FOLDER))
