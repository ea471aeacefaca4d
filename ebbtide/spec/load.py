"""Loads a spec of any kind; its `type`, the component that Dagster makes of it, tells which."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ebbtide.errors import ConfigError
from ebbtide.spec.pipeline import Pipeline, read_document
from ebbtide.spec.stateful import StatefulPipeline
from ebbtide.spec.upsert import UpsertPipeline
from ebbtide.spec.view import MaterializedView

KINDS: dict[str, type[Pipeline]] = {
    "ebbtide.dagster.UpsertPipeline": UpsertPipeline,
    "ebbtide.dagster.StatefulPipeline": StatefulPipeline,
    "ebbtide.dagster.MaterializedView": MaterializedView,
    "ebbtide.UpsertPipeline": UpsertPipeline,
    "ebbtide.StatefulPipeline": StatefulPipeline,
    "ebbtide.MaterializedView": MaterializedView,
    "pipelines.components.UpsertPipelineComponent": UpsertPipeline,
    "pipelines.components.StatefulPipelineComponent": StatefulPipeline,
}
"""A spec's `type` to its model: the components' names, those of the specs where there is no Dagster, and the names of old."""


def load(location: str | Path) -> Pipeline:
    """Read a spec from a `defs.yaml`, or from the folder that holds one.

    Raises:
        ConfigError: no such file, no kind of pipeline, or not a usable spec.
    """
    path, document = read_document(location)
    named = document.get("type")
    kind = KINDS.get(str(named))
    if kind is None:
        allowed = "ebbtide.dagster.UpsertPipeline, ebbtide.dagster.StatefulPipeline or ebbtide.dagster.MaterializedView"
        raise ConfigError.of(f"The spec '{path}' has no known type.", got=named, allowed=allowed)
    return kind.load(path)


def load_all(locations: Iterable[str]) -> list[tuple[str, Pipeline]]:
    """Read the specs at some locations; a folder without a defs.yaml of its own stands for those in its folders.

    Returns:
        Each spec with its location.

    Raises:
        ConfigError: one is not usable, or two have one name, and with it one sink.
    """
    loaded = []
    for location in locations:
        for spec_location in _spec_locations(location):
            spec = load(spec_location)
            loaded.append((spec_location, spec))
    refuse_shared_names((spec.name, location) for location, spec in loaded)
    return loaded


def _spec_locations(location: str) -> list[str]:
    """Return the folders with specs in a folder that has none of its own; of any other location itself."""
    path = Path(location)
    has_own = (path / "defs.yaml").exists()
    if has_own or not path.is_dir():
        return [location]
    files = sorted(path.glob("*/defs.yaml"))
    return [str(file.parent) for file in files] or [location]


def refuse_shared_names(named: Iterable[tuple[str, str]]) -> None:
    """Refuse two pipelines with one name, and with it one sink.

    Args:
        named: Name and location of each.

    Raises:
        ConfigError: there are two.
    """
    known: dict[str, str] = {}
    for name, location in named:
        if name in known:
            raise ConfigError.of(
                f"Two specs have one name: '{known[name]}' and '{location}'.",
                got=name,
                allowed="a name of its own for each: it names the sink, the state and the checkpoint",
            )
        known[name] = location
