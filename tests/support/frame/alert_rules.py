"""The alert rules of examples/monitoring, and whether promtool finds that they fire on the samples of two scrapes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from local.local_run import HOUR, START
from local.metrics_support import Samples

from ebbtide.inspect._metrics import METRICS

MONITORING = Path(__file__).resolve().parents[3] / "examples" / "monitoring"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
}
BEFORE_MIN = 60
"""Minutes for which the first scrape's samples stay."""
MEASURED = ("ebbtide_measured_timestamp_seconds",)
UP = "up"
"""What Prometheus itself notes: 1 if a target has answered."""
BY_SAMPLE = {metric.sample: metric for metric in METRICS if metric.kind != "histogram"}


def fires(
    name: str, before: Samples, now: Samples, *labels: str, at_ms: int = START + HOUR, minutes: int = 120
) -> bool:
    """Return whether promtool sees a rule fire once the samples of one scrape have followed those of another.

    Args:
        name: Name of the rule.
        before: Samples of the first scrape, as they were for an hour.
        now: Those of the second one.
        labels: Values of the labels beside the pipeline's that the alert has.
        at_ms: When the second one was made, epoch ms.
        minutes: How long it stays as it is.
    """
    selected = dict(zip(_label_names(name), labels, strict=False))
    selected |= {"alertname": name, "alertstate": "firing"}
    fired = f"count_over_time(ALERTS{{{_text(selected)}}}[{minutes}m])"
    output = _evaluated(fired, before, now, at_ms, minutes)
    assert ("SUCCESS" in output) != ("ALERTS" in output), output
    return "SUCCESS" not in output


def firing(before: Samples, now: Samples, at_ms: int, minutes: int = 30) -> frozenset[str]:
    """Return the names of all rules that promtool sees fire while the metrics are measured on and on; arguments as of `fires`."""
    before, now = ({key: value for key, value in found.items() if key != MEASURED} for found in (before, now))
    fired = f'count by (alertname) (count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m]))'
    output = _evaluated(fired, before, now, at_ms, minutes)
    _, _, got = output.partition("got:")
    names = re.findall(r'alertname="(\w+)"', got)
    assert bool(names) != ("SUCCESS" in output), output
    return frozenset(names)


def _evaluated(expression: str, before: Samples, now: Samples, at_ms: int, minutes: int) -> str:
    """Return what promtool says of an expression that is to have no value in the end; arguments as of `fires`."""
    end_min = BEFORE_MIN + minutes
    test = {
        "interval": "1m",
        "input_series": list(_series(before, now, at_ms / 1000, minutes)),
        "promql_expr_test": [{"expr": expression, "eval_time": f"{end_min}m", "exp_samples": []}],
    }
    rules = str(MONITORING / "alerts.yaml")
    with TemporaryDirectory() as folder:
        path = Path(folder, "test.yaml")
        path.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}))
        done = subprocess.run(["promtool", "test", "rules", str(path)], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def _series(before: Samples, now: Samples, at_s: float, minutes: int) -> Iterator[dict[str, str]]:
    """Yield the samples as promtool takes them; its time is 0 at the first one."""
    shift_s = at_s - BEFORE_MIN * 60
    for key in before.keys() | now.keys():
        sample, *labels = key
        if sample == UP:
            given = {"job": "ebbtide"}
        elif sample in BY_SAMPLE:
            metric = BY_SAMPLE[sample]
            given = dict(zip(sorted({*metric.label_names} - {"pipeline"}), labels, strict=True))
            given |= {"pipeline": "t"} if metric.is_of_pipeline else {}
        else:
            continue  # a histogram
        values = []
        for samples, n_minutes in ((before, BEFORE_MIN - 1), (now, minutes)):
            if key not in samples:
                values.append(f"_x{n_minutes + 1}")
                continue
            value = samples[key] - (shift_s if sample.endswith("_timestamp_seconds") else 0)
            values.append(f"{value:.3f}x{n_minutes}")
        yield {"series": f"{sample}{{{_text(given)}}}", "values": " ".join(values)}


def _label_names(name: str) -> list[str]:
    """Return the labels of a rule's alert but the pipeline's, in the order of those of a scrape."""
    first = re.findall(r"ebbtide_\w+(?=[^\w\"]|$)", RULES[name]["expr"])
    return sorted({*BY_SAMPLE[first[0]].label_names} - {"pipeline"}) if first else []


def _text(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
