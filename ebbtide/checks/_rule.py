"""Rules, and the rows that they judge: both are SQL with the same meaning in DuckDB and Spark.

The rows are a query over named inputs; a rule is a condition on them that no row may meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from ebbtide.checks._dialects import Dialect
from ebbtide.checks._inputs import GivenRows, Input

Severity = Literal["critical", "warning"]
Condition = Callable[..., str]
"""Writes a condition: (dialect, **arguments)."""


@dataclass(frozen=True)
class Rows:
    """Rows to judge.

    Args:
        inputs: What the query reads, by name.
        query: Writes the query; a rule sees the columns that it selects.
        columns: Columns that samples show.
        order: Columns that samples are ordered by.
    """

    inputs: Mapping[str, Input]
    query: Callable[[Dialect], str]
    columns: Sequence[str]
    order: Sequence[str]

    @classmethod
    def given(cls, rows: pa.Table, query: str = "SELECT * FROM facts") -> Rows:
        """Return given rows, `facts`; no table is read."""
        return cls({"facts": GivenRows(rows)}, lambda _: query, rows.column_names, rows.column_names)


@dataclass(frozen=True)
class Rule:
    """A condition that no row of a batch may meet.

    Args:
        expectation: Name of the expectation that is made from it: `expect_keys_to_be_unique`.
        template: The rule in a sentence, with `$argument` for arguments.
        condition: Writes the condition; its arguments after the dialect are those of the expectation.
    """

    expectation: str
    template: str
    condition: Condition

    def expected(self, severity: Severity = "critical", **arguments: Any) -> Expected:
        """Return the rule with its arguments.

        Args:
            severity: Severity of a row that breaks it.
            arguments: The arguments of `condition` after the dialect.
        """
        return Expected(self, arguments, severity)


@dataclass(frozen=True)
class Expected:
    """A rule with its arguments, applied to a batch.

    Args:
        rule: The rule.
        arguments: By name; JSON values.
        severity: Severity of a row that breaks it.
    """

    rule: Rule
    arguments: Mapping[str, Any]
    severity: Severity


def rule(expectation: str, template: str) -> Callable[[Condition], Rule]:
    """Make a function that writes a condition a rule; arguments as `Rule`."""

    def made(condition: Condition) -> Rule:
        return Rule(expectation, template, condition)

    return made
