"""Metrics as tests read them, and the commands that print them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result
from local_pipeline import LocalPipeline
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ebbtide.cli.main import main

Samples = dict[tuple[str, ...], float]


def samples_of(text: str) -> Samples:
    """Return the samples of a text in OpenMetrics by name and values of labels, but that of `pipeline`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "pipeline"]
            found[sample.name, *labels] = sample.value
    return found


def write_spec(pipeline: LocalPipeline, folder: Path) -> str:
    """Write a pipeline's spec into a folder."""
    given = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    path = folder / "defs.yaml"
    path.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    return str(path)


def command(pipeline: LocalPipeline, folder: Path, name: str, *options: str) -> Result:
    """Call a command on a pipeline."""
    return CliRunner().invoke(main, [name, write_spec(pipeline, folder), "--root", pipeline.root, *options])
