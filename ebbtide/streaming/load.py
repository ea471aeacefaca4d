"""Loads a spec of either kind; its `type`, the component that Dagster makes of it, tells which."""

from __future__ import annotations

from pathlib import Path

from ebbtide.errors import ConfigError
from ebbtide.streaming.spec import Pipeline, read_document
from ebbtide.streaming.stateful import StatefulPipeline
from ebbtide.streaming.upsert import UpsertPipeline

KINDS: dict[str, type[Pipeline]] = {
    "UpsertPipelineComponent": UpsertPipeline,
    "StatefulPipelineComponent": StatefulPipeline,
}
"""Last part of a `type` to its spec."""


def load(location: str | Path) -> Pipeline:
    """Read a spec from a `defs.yaml`, or from the folder that holds one.

    Raises:
        ConfigError: no such file, no kind of pipeline, or not a usable spec.
    """
    path, document = read_document(location)
    named = document.get("type")
    kind = KINDS.get(str(named).rpartition(".")[2])
    if kind is None:
        allowed = ", ".join(f"pipelines.components.{name}" for name in KINDS)
        raise ConfigError.of(f"The spec '{path}' has no known type.", got=named, allowed=allowed)
    return kind.load(path)
