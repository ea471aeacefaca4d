"""The verdict of a check, and its findings. Importing this does not load Great Expectations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """The finding of one expectation.

    Args:
        expectation: Its type.
        column: The column that it judges; None if it judges rows or the table.
        severity: `critical` or `warning`.
        broken: Rows that break it; 1 if it judges all rows together.
        sample: Some of them, or the observation of the whole.
    """

    expectation: str
    column: str | None
    severity: str
    broken: int
    sample: list[dict[str, Any]]

    @property
    def rule(self) -> str:
        """The expectation, with its column."""
        if self.column is None:
            return self.expectation
        return f"{self.expectation} {self.column}"


@dataclass
class Verdict:
    """The verdict of a check.

    Args:
        findings: One for each expectation.
        docs: Its page in the Data Docs; None if none was written, for example if nothing was judged.
    """

    findings: list[Finding] = field(default_factory=list)
    docs: Path | None = None

    @property
    def passed(self) -> bool:
        """Return whether no expectation found anything."""
        return not any(finding.broken for finding in self.findings)

    @property
    def is_error(self) -> bool:
        """Return whether an expectation of severity critical found something."""
        return any(finding.broken and finding.severity == "critical" for finding in self.findings)

    @property
    def outcome(self) -> Literal["passed", "warning", "failed"]:
        """`passed`, `warning` or `failed`."""
        if self.passed:
            return "passed"
        return "failed" if self.is_error else "warning"
