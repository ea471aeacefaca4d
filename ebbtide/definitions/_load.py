"""Loads a spec of any kind; its `type` names the kind, a Dagster component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ebbtide import spec as models
from ebbtide.errors import ConfigError
from ebbtide.spec import Pipeline, Project, SpecFile

if TYPE_CHECKING:
    from ebbtide.spec import UpsertPipelines

KINDS: dict[str, str] = {
    "ebbtide.dagster.UpsertPipeline": "UpsertPipeline",
    "ebbtide.dagster.StatefulPipeline": "StatefulPipeline",
    "ebbtide.dagster.MaterializedView": "MaterializedView",
    "ebbtide.UpsertPipeline": "UpsertPipeline",
    "ebbtide.StatefulPipeline": "StatefulPipeline",
    "ebbtide.MaterializedView": "MaterializedView",
    "pipelines.components.UpsertPipelineComponent": "UpsertPipeline",
    "pipelines.components.StatefulPipelineComponent": "StatefulPipeline",
}
"""A spec's `type` to the name of its model, which is loaded when a file names it: names of components, names of specs without Dagster, and former names."""

SEVERAL = frozenset({"ebbtide.dagster.UpsertPipelines", "ebbtide.UpsertPipelines"})
"""The `type` of files with several pipelines."""


def load(location: str | Path) -> Pipeline:
    """Read a spec from a `defs.yaml`, or from the folder that holds one; `FOLDER/NAME` is one of several in a file.

    Raises:
        ConfigError: no such file, an unknown kind, or an unusable spec.
    """
    found = _load_each(location)
    if len(found) != 1:
        raise ConfigError.of(
            f"The spec '{location}' is several pipelines.",
            got=len(found),
            allowed=f"one of {', '.join(one for one, _ in found)}",
        )
    [(_, spec)] = found
    return spec


def _load_each(location: str | Path) -> list[tuple[str, Pipeline]]:
    """Read the specs of one file, each with its location.

    Raises:
        ConfigError: see `load`.
    """
    member = _member_at(location)
    if member is not None:
        return [(str(location), member)]
    _refuse_absent(Path(location))
    read = SpecFile.read(location)
    if not is_several(read.document):
        return [(str(location), _of_kind(read.path, read.document))]
    several = models.UpsertPipelines.load(read.path)
    return [(str(read.path.parent / spec.name), spec) for spec in several.pipelines]


def _several_at(location: str | Path) -> UpsertPipelines | None:
    """Read a file that holds several pipelines; None if it is another one, or there is none."""
    given = Path(location)
    file = given if given.name == "defs.yaml" else given / "defs.yaml"
    if not file.is_file():
        return None
    read = SpecFile.read(location)
    return models.UpsertPipelines.load(read.path) if is_several(read.document) else None


def is_several(document: Mapping[str, Any]) -> bool:
    """Return whether a file's content is several pipelines."""
    return str(document.get("type")) in SEVERAL


def names_in(document: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's pipelines."""
    attributes = document.get("attributes") or {}
    members = [attributes]
    if is_several(document):
        members = attributes.get("pipelines") or []
    names = []
    for member in members:
        has_name = isinstance(member, Mapping) and "name" in member
        if has_name:
            names.append(str(member["name"]))
    return names


def _member_at(location: str | Path) -> Pipeline | None:
    """Return the pipeline `FOLDER/NAME` if the folder's file holds several and has no such subfolder."""
    path = Path(location)
    several = None if path.exists() else _several_at(path.parent)
    if several is None:
        return None
    for spec in several.pipelines:
        if spec.name == path.name:
            return spec
    raise ConfigError.of(
        f"The spec '{path.parent}' has no such pipeline.",
        got=path.name,
        allowed=", ".join(spec.name for spec in several.pipelines),
    )


def _refuse_absent(path: Path) -> None:
    """Refuse a location without a spec, and name the nearest spec of the project.

    Raises:
        ConfigError: there is no such file, or no spec in the folder.
    """
    is_empty = path.is_dir() and not (path / "defs.yaml").is_file()
    if path.exists() and not is_empty:
        return
    what = f"The folder '{path}' holds no spec." if is_empty else f"There is no spec at '{path}'."
    near = {folder.name: str(folder) for folder in _spec_folders(path)}
    close = get_close_matches(path.name, near, n=1)
    hint = f"Did you mean '{near[close[0]]}'?" if close else "'ebbtide new' writes one from records."
    raise ConfigError.of(
        what, allowed="a defs.yaml, the folder that holds one, or a folder of such folders", next_step=hint
    )


def _spec_folders(path: Path) -> list[Path]:
    """Return the folders of specs near a location, and those among the current project's definitions."""
    around = (path.parent, *(Project.around(Path.cwd()).folder / name for name in ("pipelines/defs", "defs")))
    here = Path.cwd()
    found = []
    for folder in around:
        for pattern in ("*/defs.yaml", "*/*/defs.yaml"):
            found += [file.parent for file in sorted(folder.glob(pattern))]
    return [each.relative_to(here) if each.is_relative_to(here) else each for each in found]


def _of_kind(path: Path, document: Mapping[str, Any]) -> Pipeline:
    named = document.get("type")
    kind = KINDS.get(str(named))
    if kind is None:
        allowed = "ebbtide.dagster.UpsertPipeline, UpsertPipelines, StatefulPipeline or MaterializedView"
        close = get_close_matches(str(named), [*KINDS, *SEVERAL], n=1)
        raise ConfigError.of(
            f"The spec '{path}' has no known type.",
            got="none" if named is None else named,
            allowed=allowed,
            next_step=f"Did you mean '{close[0]}'?" if close else "Write it as 'type:' at the top of the file.",
        )
    model: type[Pipeline] = getattr(models, kind)
    return model.load(path)


def load_all(locations: Iterable[str]) -> list[tuple[str, Pipeline]]:
    """Read the specs at some locations; a folder without a defs.yaml means the specs in its folders.

    Returns:
        Each spec with its location.

    Raises:
        ConfigError: one is not usable, or two have the same name and therefore the same sink.
    """
    loaded: list[tuple[str, Pipeline]] = []
    for location in locations:
        for spec_location in _spec_locations(location):
            loaded += _load_each(spec_location)
    refuse_shared_names((spec.name, location) for location, spec in loaded)
    return loaded


def all_several(location: str) -> list[UpsertPipelines]:
    """Read the files at a location that hold several pipelines; see `load_all`."""
    found = map(_several_at, _spec_locations(location))
    return [several for several in found if several is not None]


def _spec_locations(location: str) -> list[str]:
    """Return the folders with specs below a folder that has none; for any other location, itself."""
    path = Path(location)
    has_own = (path / "defs.yaml").exists()
    if has_own or not path.is_dir():
        return [location]
    files = sorted(path.glob("*/defs.yaml"))
    return [str(file.parent) for file in files] or [location]


def refuse_shared_names(named: Iterable[tuple[str, str]]) -> None:
    """Refuse two pipelines with the same name, which would have the same sink.

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
                allowed="a unique name for each: it names the sink and the state",
            )
        known[name] = location
