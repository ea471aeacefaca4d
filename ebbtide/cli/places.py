"""Folders of a project as options: its tables and its definitions. Alone, since the prompt of `ebbtide sql` loads no libraries."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ebbtide.cli.errors import ROOT
from ebbtide.environment import ROOT as ROOT_VARIABLE
from ebbtide.errors import ConfigError

PROJECT_DEFS, DEFS, PROJECT_TESTS = "pipelines/defs", "defs", "tests/pipelines"
"""Folder of the definitions in a project, and outside of one; folder of the pipelines' tests."""


def project_above(location: Path) -> Path | None:
    """Return the nearest folder, a location or above it, with a pyproject.toml."""
    here = location.resolve()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file():
            return folder
    return None


def in_project(name: str) -> str:
    """Return a folder of the project that one stands in, as seen from here; that of the working folder outside of one."""
    project = project_above(Path.cwd())
    return name if project is None else os.path.relpath(project / name)


def default_root(specs: tuple[str, ...] = ()) -> str:
    """Return the folder of tables of the specs' project, so that a command means the same tables wherever one stands.

    Args:
        specs: Locations of specs; none: the project is the one that one stands in.

    Raises:
        ConfigError: the specs are of several projects.
    """
    here = Path.cwd()
    projects = {project_above(Path(spec)) or here for spec in specs} or {project_above(here) or here}
    if len(projects) > 1:
        raise ConfigError.of(
            "The specs are of several projects, each with tables of its own.",
            got=", ".join(sorted(map(str, projects))),
            allowed="specs of one project, or --root",
        )
    [project] = projects
    return ROOT if project == here.resolve() or project == here else str(project / ROOT)


def _usable_root(context: click.Context, option: click.Parameter, root: str | None) -> str:
    from ebbtide.storage.paths import refuse_unusable

    try:
        if root is None:
            # Arguments that were given are processed before options that were not.
            given = context.params.get("specs") or context.params.get("spec") or ()
            return default_root((given,) if isinstance(given, str) else given)
        refuse_unusable("--root", root)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return root


def _default_defs() -> str:
    project_defs = in_project(PROJECT_DEFS)
    return project_defs if Path(project_defs).is_dir() else DEFS


root_option = click.option(
    "--root",
    metavar="DIR",
    envvar=ROOT_VARIABLE.name,
    show_envvar=True,
    callback=_usable_root,
    help="Folder of all pipelines' tables: a path or a URI. Default: .ebbtide in the project.",
)
defs_option = click.option(
    "--defs",
    default=_default_defs,
    show_default=f"{PROJECT_DEFS} of the project if it is there, else {DEFS}",
    help="Folder of the definitions; statements add to it.",
)
