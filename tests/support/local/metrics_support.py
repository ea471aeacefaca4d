"""Metrics as tests read them, and the commands that print them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from click.testing import CliRunner, Result
from frame.waiting import PATIENCE_S
from local.local_pipeline import LocalPipeline
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from ebbtide.cli import main
from ebbtide.inspect import WatchedFleet

Samples = dict[tuple[str, ...], float]


def samples_of(text: str) -> Samples:
    """Return the samples of a text in OpenMetrics by name and values of labels, but that of `pipeline`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "pipeline"]
            found[sample.name, *labels] = sample.value
    return found


def text_of(watched: WatchedFleet) -> str:
    """Return the metrics of watched runs as text in OpenMetrics."""
    registry = CollectorRegistry()
    registry.register(watched.exposition())
    return generate_latest(registry).decode()


def write_spec(pipeline: LocalPipeline, folder: Path) -> str:
    """Write a pipeline's spec into a folder."""
    given = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    path = folder / "defs.yaml"
    path.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    return str(path)


def command(pipeline: LocalPipeline, folder: Path, name: str, *options: str) -> Result:
    """Call a command on a pipeline."""
    return CliRunner().invoke(main, [name, write_spec(pipeline, folder), "--root", pipeline.root, *options])


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """Return status, type and text of an answer."""
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def followed(pipeline: LocalPipeline, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Begin to follow a pipeline in a process of its own; return it and the port of its metrics."""
    options = ["--root", pipeline.root, "--follow", "--engine", "local", "--metrics-port", "0", "--log-format", "json"]
    run = [sys.executable, "-m", "ebbtide.cli", "run", write_spec(pipeline, folder), *options]
    process = subprocess.Popen(run, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    said = json.loads(process.stderr.readline())["message"]
    return process, int(said.rpartition(":")[2].partition("/")[0])


def wait_for_step(port: int, number: int) -> Samples:
    """Wait until a run has made a step; return its samples."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        found = samples_of(get(port, "/metrics", Accept=OPENMETRICS)[2])
        if found.get(("ebbtide_step",)) == number:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"no step {number}")
