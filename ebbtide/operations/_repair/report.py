"""The findings of a repair, and its ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ebbtide.amounts import amount
from ebbtide.operations._operation import Report


@dataclass(frozen=True)
class Finding:
    """A damaged output table.

    Args:
        table: Its name.
        found: Description of the damage.
        way: The repair; if refused, what to do instead.
        rows: Description of lost and recovered rows; empty: none are lost.
        is_aside: A repair moves it aside and creates it again.
        is_refused: A repair is not possible.
    """

    table: str
    found: str
    way: str = ""
    rows: str = ""
    is_aside: bool = False
    is_refused: bool = False

    def text(self) -> str:
        """Return the finding in one line."""
        parts = [
            f"{self.table}: {self.found}",
            "to be moved aside and recreated" if self.is_aside else "",
            self.way,
            self.rows,
        ]
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class RepairReport:
    """The damages of a pipeline's tables, and their repair.

    Args:
        pipeline: Its name.
        findings: The damaged output tables.
        missing: Keys that the sink lacks, if it was compared with the state because its log shows no damage.
        other: Keys whose row differs.
        extra: Keys that it should not have.
        repeated: Keys with several rows, also if counted above.
        state_version: Version of the state that is restored; None: no other client has changed it.
        action: The action: `repair`, `acknowledged: TEXT`; empty for a plan.
        step: The step that did it; None of a plan.
    """

    pipeline: str
    findings: tuple[Finding, ...] = ()
    missing: int = 0
    other: int = 0
    extra: int = 0
    repeated: int = 0
    state_version: int | None = None
    action: str = ""
    step: int | None = None

    @property
    def has_other_rows(self) -> bool:
        """Return whether sink and state differ for some key."""
        return bool(self.missing or self.other or self.extra or self.repeated)

    @property
    def differs(self) -> bool:
        """Return whether there is anything to repair."""
        return bool(self.findings) or self.has_other_rows or self.state_version is not None

    @property
    def losses(self) -> tuple[str, ...]:
        """The findings of tables that have lost rows, in words."""
        return tuple(finding.text() for finding in self.findings if finding.rows)

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The findings that cannot be repaired."""
        return tuple(finding for finding in self.findings if finding.is_refused)

    def as_report(self) -> Report:
        """Return the report in the form of all operations."""
        counts = {
            "missing": self.missing,
            "other": self.other,
            "extra": self.extra,
            "repeated": self.repeated,
        }
        details = {
            "findings": [asdict(finding) for finding in self.findings],
            "state_version": self.state_version,
            "action": self.action,
        }
        lines = list(self._lines())
        return Report(self.pipeline, lines, counts, details, self.step, self._next_step())

    def _lines(self) -> Iterator[str]:
        if not self.differs and self.step is None:
            yield "the tables match the state; nothing to repair."
            return
        if self.has_other_rows:
            missing = amount(self.missing, "row")
            repeated = amount(self.repeated, "key")
            yield f"{missing} missing, {self.other:,} other, {self.extra:,} too many, {repeated} repeated."
        elif self.findings or self.state_version is not None:
            is_state_changed = self.state_version is not None
            n_damages = len(self.findings) + is_state_changed
            damages = amount(n_damages, "damage")
            yield f"{damages} found."
        for finding in self.findings:
            yield finding.text()
        if self.state_version is not None:
            yield f"rows of the state that another client changed: back to its version {self.state_version}"
        if self.step is not None:
            yield f"Done in step {self.step}: {self.action}."
        elif self.refused:
            yield "A repair is refused."

    def _next_step(self) -> str:
        if self.step is not None or self.refused or not self.differs:
            return ""
        return "To do it: 'ebbtide repair --apply'.\n  To accept it: 'ebbtide acknowledge --reason TEXT'."
