"""Samples of the rows that break a rule, where columns are personal: Data Docs and Dagster have more readers than the tables.

Samples of Ebbtide's rules are masked cell by cell: bookkeeping and columns that are not personal are shown. A project's rule may
show anything anywhere: if it names no column, or a personal one, only counts remain.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from ebbtide.checks._samples import ROWS_AS_TEXT
from ebbtide.redaction import MASK

Result = dict[str, Any]
"""The part of an expectation's result that Great Expectations reports."""
COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list", "column_set")
"""Arguments with column names in Great Expectations' built-in types."""


def masked_result(type_: str, arguments: Result, found: Result, shown: Collection[str]) -> Result:
    """Return a result without values that must not be shown.

    Args:
        type_: The expectation's.
        arguments: What it was made with.
        found: What it reports.
        shown: Columns whose values may be shown.
    """
    details = found.get("details") or {}
    if "sample" in details:
        sample = [masked_row(row, shown) for row in details["sample"]]
        return {**found, "details": {"sample": sample}}
    named = _columns_named(arguments)
    shows_no_person = named and named.issubset(shown)
    if shows_no_person or type_.startswith("expect_table_"):
        return found
    return _counts_only(found, details)


def masked_row(row: Result, shown: Collection[str]) -> Result:
    """Return a row of a sample with `***` in place of hidden values.

    Args:
        row: Column to value, JSON.
        shown: As in `masked_result`.
    """
    return {name: _masked_cell(name, value, shown) for name, value in row.items()}


def _masked_cell(name: str, value: Any, shown: Collection[str]) -> Any:
    if value is None or name in shown:
        return value
    if isinstance(value, dict):
        return masked_row(value, shown)
    if name in ROWS_AS_TEXT:
        return _masked_text(value, shown)
    return MASK


def _masked_text(text: str, shown: Collection[str]) -> str:
    try:
        row = json.loads(text)
    except ValueError:
        return MASK
    return json.dumps(masked_row(row, shown)) if isinstance(row, dict) else MASK


def _columns_named(arguments: Result) -> set[str]:
    named: set[str] = set()
    for argument in COLUMN_ARGUMENTS:
        value = arguments.get(argument) or ()
        named.update([value] if isinstance(value, str) else value)
    return named


def _counts_only(found: Result, details: Result) -> Result:
    counts = {name: value for name, value in found.items() if name.endswith(("_count", "_percent"))}
    if "unexpected_rows" in details:  # a query's: the value observed is how many there are
        return {**counts, "observed_value": found["observed_value"], "details": {"unexpected_rows": [{"row": MASK}]}}
    if "partial_unexpected_list" in found:
        return {**counts, "partial_unexpected_list": [MASK]}
    return {**counts, "observed_value": MASK}
