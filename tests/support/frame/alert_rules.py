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
    end_min = BEFORE_MIN + minutes
    selected = dict(zip(_label_names(name), labels, strict=False))
    selected |= {"alertname": name, "alertstate": "firing"}
    fired = f"count_over_time(ALERTS{{{_text(selected)}}}[{minutes}m])"
    test = {
        "interval": "1m",
        "input_series": list(_series(before, now, at_ms / 1000, minutes)),
        "promql_expr_test": [{"expr": fired, "eval_time": f"{end_min}m", "exp_samples": []}],
    }
    rules = str(MONITORING / "alerts.yaml")
    with TemporaryDirectory() as folder:
        path = Path(folder, "test.yaml")
        path.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "1m", "tests": [test]}))
        done = subprocess.run(["promtool", "test", "rules", str(path)], check=False, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert ("SUCCESS" in output) != ("ALERTS" in output), output
    return done.returncode != 0


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
