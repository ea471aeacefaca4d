"""The findings of a repair, and the ways it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ebbtide.amounts import amount
from ebbtide.operations._operation import Report


@dataclass(frozen=True)
class Finding:
    """A table beside the state with which something is wrong.

    Args:
        table: Its name.
        found: What is wrong with it.
        way: What a repair does; of one that is refused what to do instead.
        rows: The rows that it has lost, and those that come back, in words; empty: it has lost none.
        is_aside: A repair moves it aside and creates it again.
        is_refused: There is no way.
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
            "to be moved aside and made again" if self.is_aside else "",
            self.way,
            self.rows,
        ]
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class RepairReport:
    """The damages of a pipeline's tables, and what is done about them.

    Args:
        pipeline: Its name.
        findings: Of each table beside the state with which something is wrong.
        missing: Keys that the sink lacks, where it was compared with the state: where its log shows nothing wrong.
        other: Keys of which it has another row.
        extra: Keys that it should not have.
        repeated: Keys of which it has several rows, counted among those above or not.
        state_version: Version of the state that its rows are brought back to; None: no other client has changed them.
        action: What was done: `repair`, `acknowledged: TEXT`; empty: nothing, this is the plan.
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
        """The findings without a way."""
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
            yield "the tables are what the state says; nothing to repair."
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
        return "To do it: 'ebbtide repair --apply'.\n  To leave it as it is: 'ebbtide acknowledge --reason TEXT'."
