"""The one place that knows both Great Expectations' results and Dagster's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from ebbtide.amounts import shortened
from ebbtide.checks import Finding, Verdict, VersionRange, Wording
from ebbtide.dagster.operations import jobs_named

QUOTED = re.compile(r"'([^']*)'")
"""A command or a file in the text of a check."""
MOST_OF_A_CELL = 80
"""Characters of a value in a table: a whole row would run off the page."""


def to_check_result(
    key: dg.AssetCheckKey,
    verdict: Verdict,
    window: VersionRange,
    repair: str,
) -> dg.AssetCheckResult:
    """Turn a check's verdict into Dagster's.

    Args:
        key: The check.
        verdict: What was found.
        window: What was judged.
        repair: What makes the check pass again.
    """
    broken = [finding for finding in verdict.findings if finding.broken]
    severity = dg.AssetCheckSeverity.ERROR
    if broken and not verdict.is_error:
        severity = dg.AssetCheckSeverity.WARN
    metadata: dict[str, Any] = {
        "broken_rows": sum(finding.broken for finding in broken),
        "judged": dg.MetadataValue.json(window.until),
        "sink_versions": _versions(window.sink_since, window.sink_until),
        "state_versions": _versions(window.state_since, window.state_until),
        **_tables(broken),
    }
    if broken:
        metadata["found"] = dg.MetadataValue.md(Wording(broken).page())
        pipeline = key.asset_key.path[-1]
        metadata["repair"] = dg.MetadataValue.md(_mending(repair, pipeline))
    if window.unreadable:
        metadata["not_judged"] = window.unreadable
    if verdict.docs:
        metadata["data_docs"] = dg.MetadataValue.path(str(verdict.docs))
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=verdict.passed,
        severity=severity,
        description=_description(verdict, broken, repair),
        metadata=metadata,
    )


def _description(verdict: Verdict, broken: Sequence[Finding], repair: str) -> str:
    """Return a check's verdict in words; empty if all that was found holds."""
    if broken:
        return " ".join([*Wording(broken).sentences(), repair])
    if verdict.findings:
        return ""
    return "There is nothing that could break it."


def _mending(repair: str, pipeline: str) -> str:
    """Return what makes a check pass, as Markdown: its commands, and the jobs that do the same."""
    commands = QUOTED.sub(r"`\1`", repair)
    jobs = jobs_named(repair)
    if not jobs:
        return commands
    listed = " or ".join(f"`{job}`" for job in jobs)
    return f"{commands}\n\nIn Dagster: launch {listed} with the partition `{pipeline}`."


def not_judged(key: dg.AssetCheckKey, why: str) -> dg.AssetCheckResult:
    """Return the result of a check without rows to judge: a warning, since nothing was shown."""
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        description=why,
    )


def _versions(since: int, until: int) -> str:
    """Return a range of versions in words: those after one, up to another.

    Example:
        >>> _versions(0, 2), _versions(2, 2)
        ('1 to 2', 'none after 2')
    """
    if since >= until:
        return f"none after {until}"
    return f"{since + 1} to {until}"


def _tables(broken: Sequence[Finding]) -> dict[str, dg.TableMetadataValue]:
    """Return the samples of rows, each with a unique label: a spec may name a rule twice."""
    tables: dict[str, dg.TableMetadataValue] = {}
    for finding in broken:
        label = f"{finding.rule} ({finding.severity})"
        if label in tables:
            label = f"{label} {len(tables) + 1}"
        tables[label] = _table(finding)
    return tables


def _table(finding: Finding) -> dg.TableMetadataValue:
    """Lay a sample out; its rows need not have the same columns."""
    names: dict[str, None] = {}
    rows = [Wording.narrow(row) for row in finding.sample]
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = [dg.TableColumn(name) for name in names]
    records = [_record(row, names) for row in rows]
    return dg.MetadataValue.table(records, schema=dg.TableSchema(columns))


def _record(row: Mapping[str, Any], names: Iterable[str]) -> dg.TableRecord:
    cells = {name: _cell(row.get(name)) for name in names}
    return dg.TableRecord(cells)


def _cell(value: Any) -> str:
    """Return a value as a table shows it; Data Docs have it whole."""
    text = "" if value is None else str(value)
    return shortened(text, MOST_OF_A_CELL)
