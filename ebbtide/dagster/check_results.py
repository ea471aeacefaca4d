"""The one place that knows both Great Expectations' results and Dagster's."""

from __future__ import annotations

from typing import Any

import dagster as dg

from ebbtide.quality.validate import Finding, Verdict
from ebbtide.rules.version_range import VersionRange


def to_check_result(key: dg.AssetCheckKey, verdict: Verdict, window: VersionRange) -> dg.AssetCheckResult:
    """Turn a check's verdict into Dagster's.

    Args:
        key: The check.
        verdict: What was found.
        window: What was judged.
    """
    metadata: dict[str, Any] = {
        "broken_rows": sum(finding.broken for finding in verdict.findings),
        "judged": dg.MetadataValue.json(window.until),
        "sink_versions": f"{window.sink_since + 1} to {window.sink_until}",
        "state_versions": f"{window.state_since + 1} to {window.state_until}",
    }
    for finding in verdict.findings:
        if finding.broken:
            metadata[f"{finding.expectation} ({finding.severity})"] = _table(finding)
    if verdict.docs:
        metadata["data_docs"] = dg.MetadataValue.path(str(verdict.docs))
    broken = [f"{f.expectation}: {f.broken} rows" for f in verdict.findings if f.broken]
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.ERROR if verdict.is_error or verdict.passed else dg.AssetCheckSeverity.WARN,
        description="; ".join(broken) or ("" if verdict.findings else "There is nothing that could break it."),
        metadata=metadata,
    )


def not_judged(key: dg.AssetCheckKey, why: str) -> dg.AssetCheckResult:
    """Say that there was nothing to judge: a warning, since nothing was shown."""
    return dg.AssetCheckResult(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=False,
        severity=dg.AssetCheckSeverity.WARN,
        description=why,
    )


def _table(finding: Finding) -> dg.TableMetadataValue:
    names = list(dict.fromkeys(name for row in finding.sample for name in row))
    records = [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in finding.sample]
    return dg.MetadataValue.table(records, schema=dg.TableSchema([dg.TableColumn(name) for name in names]))


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
