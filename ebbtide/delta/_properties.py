"""Properties that a user gives a table: those that are written as they are, those that bring a feature, and those that are refused.

Source: Delta's `DeltaConfigs`, which Spark judges properties by. A table that has them is the same as one that Spark has made with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ebbtide.delta._features import WRITTEN

FEATURE = "delta.feature."
"""Begins the name of a property that stands in the table's protocol alone."""
UNIT_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
PART = re.compile(rf"(\d+)\s+({'|'.join(UNIT_MS)})s?", re.IGNORECASE)
INTERVAL = re.compile(rf"\s*(?:interval\s+)?{PART.pattern}(?:\s+{PART.pattern})*\s*", re.IGNORECASE)
"""An interval of fixed length, as Delta reads it."""
_LEAVE_OUT = "Ebbtide does not write it: leave it out"
_TRUTH = ("true|false", "true or false")
_DURATION = (INTERVAL.pattern, "an interval such as 'interval 2 weeks', in units up to weeks")
_COUNT = (r"[1-9]\d{0,8}", "a whole number from 1")
_OFF = ("false", f"false. {_LEAVE_OUT}")
_NEVER = r"(?!)"
_RULES = {
    "delta.appendOnly": ("false", "false, since a sink is updated"),
    "delta.autoOptimize": _TRUTH,
    "delta.autoOptimize.autoCompact": _TRUTH,
    "delta.autoOptimize.optimizeWrite": _TRUTH,
    "delta.checkpoint.writeStatsAsJson": _TRUTH,
    "delta.checkpoint.writeStatsAsStruct": _TRUTH,
    "delta.checkpointInterval": _COUNT,
    "delta.checkpointPolicy": ("classic|v2", "classic or v2"),
    "delta.checkpointRetentionDuration": _DURATION,
    "delta.columnMapping.mode": ("none", "none. 'ebbtide migrate' renames and drops columns without it"),
    "delta.compatibility.symlinkFormatManifest.enabled": _OFF,
    "delta.dataSkippingNumIndexedCols": (r"-1|\d{1,9}", "a whole number from -1"),
    "delta.dataSkippingStatsColumns": (".+", "columns of the sink"),
    "delta.deletedFileRetentionDuration": _DURATION,
    "delta.dropFeatureTruncateHistory.retentionDuration": _DURATION,
    "delta.enableChangeDataFeed": ("true", "true, since views and checks read it"),
    "delta.enableDeletionVectors": _TRUTH,
    "delta.enableExpiredLogCleanup": _TRUTH,
    "delta.enableFullRetentionRollback": _TRUTH,
    "delta.enableIcebergCompatV1": _OFF,
    "delta.enableIcebergCompatV2": _OFF,
    "delta.enableIcebergCompatV3": _OFF,
    "delta.enableInCommitTimestamps": _OFF,
    "delta.enableRowTracking": _OFF,
    "delta.enableTypeWidening": _OFF,
    "delta.isolationLevel": ("Serializable", "Serializable"),
    "delta.logRetentionDuration": _DURATION,
    "delta.minReaderVersion": (_NEVER, "none: name the feature, delta.feature.NAME: supported"),
    "delta.minWriterVersion": (_NEVER, "none: name the feature, delta.feature.NAME: supported"),
    "delta.randomPrefixLength": _COUNT,
    "delta.randomizeFilePrefixes": _TRUTH,
    "delta.sampleRetentionDuration": _DURATION,
    "delta.setTransactionRetentionDuration": (_NEVER, "none: other clients would drop the marks of steps"),
    "delta.targetFileSize": (r"[1-9]\d*([kmgt]?b)?", "a size such as 100mb"),
    "delta.tuneFileSizesForRewrites": _TRUTH,
    **{f"{FEATURE}{name}": ("supported|enabled", "supported") for name in sorted(WRITTEN)},
}
"""Property to the pattern of its values, and the pattern in words."""
_SPELLED = {name.lower(): name for name in _RULES}
_CONSTRAINTS = "delta.constraints."
_NO_PROPERTIES = {"comment", "external", "is_managed_location", "location", "owner", "path", "provider"}
"""Names that Spark takes for something else than a table's properties."""


def judged_properties(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return properties under the names that Delta spells, in any case of letters; and those that are not written.

    Args:
        given: Properties of a user.

    Returns:
        The properties; and of each that is not written, its name and value, and what is allowed.

    Example:
        >>> judged_properties({"delta.checkpointinterval": "7", "delta.enableRowTracking": "true", "team": "x"})[1]
        {'delta.enableRowTracking: true': 'false. Ebbtide does not write it: leave it out'}
    """
    named: dict[str, str] = {}
    unfit = {}
    for written, text in given.items():
        name = _SPELLED.get(written.lower(), written)
        pattern, allowed = _rule_of(name)
        if name in named:
            unfit[written] = "each property once, in any case of its letters"
        elif not re.fullmatch(pattern, text, re.IGNORECASE):
            unfit[f"{name}: {text}"] = allowed
        named[name] = text
    return named, unfit


def _rule_of(name: str) -> tuple[str, str]:
    """Return the pattern of a property's values, and the pattern in words."""
    if name in _RULES:
        return _RULES[name]
    lower = name.lower()
    if lower.startswith(_CONSTRAINTS):
        return _NEVER, "no constraint: Ebbtide does not check it. Rules of checks.expectations are checked after a run"
    if lower.startswith("delta."):
        return _NEVER, f"a property of Delta that Ebbtide knows. {_LEAVE_OUT}"
    if lower in _NO_PROPERTIES or lower.startswith("option."):
        return _NEVER, "another name, which Spark too takes for a property"
    return "(?s:.*)", "any text"


def configuration_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand in a table's metadata."""
    return {name: text for name, text in properties.items() if not name.startswith(FEATURE)}


def features_of(properties: Mapping[str, str]) -> list[str]:
    """Return the features that properties bring."""
    features = [name.removeprefix(FEATURE) for name in properties if name.startswith(FEATURE)]
    if properties.get("delta.checkpointPolicy", "").lower() == "v2":
        features.append("v2Checkpoint")
    return features
