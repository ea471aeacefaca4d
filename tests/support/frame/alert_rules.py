"""The alert rules of examples/monitoring, and whether they fire on the samples of two scrapes."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import yaml
from local.metrics_support import Samples

MONITORING = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
COMPARED = {">": operator.gt, "<": operator.lt, "==": operator.eq}
COMPARISON = re.compile(r"(.+) (>|<|==) ([\d.]+)")
TERM = re.compile(r'(?:(\w+)\()?(ebbtide_\w+)(?:\{\w+="(\w+)"\})?(?:\[\w+\]\))?')


def fires(name: str, before: Samples, now: Samples, *labels: str) -> bool:
    """Return whether a rule fires on two scrapes, if what changed between them goes on; its `for` is not waited for.

    Args:
        name: Name of the rule.
        before: Samples of the first scrape.
        now: Those of the second one.
        labels: Values of the labels beside the pipeline's that the sample has.
    """
    return all(_holds(part, before, now, labels) for part in RULES[name]["expr"].split(" and "))


def _holds(comparison: str, before: Samples, now: Samples, labels: tuple[str, ...]) -> bool:
    found = COMPARISON.fullmatch(comparison)
    assert found is not None, comparison
    values = [_value(term, before, now, labels) for term in found[1].split(" / ")]
    value = values[0] if len(values) == 1 else values[0] / values[1]
    return COMPARED[found[2]](value, float(found[3]))


def _value(term: str, before: Samples, now: Samples, labels: tuple[str, ...]) -> float:
    found = TERM.fullmatch(term)
    assert found is not None, term
    function, name, label = found.groups()
    key = (name, *labels, *([label] if label else []))
    first, last = before[key], now[key]
    return {
        None: last,
        "increase": last - first,
        "deriv": last - first,
        "delta": last - first,
        "min_over_time": min(first, last),
    }[function]
