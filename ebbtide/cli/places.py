"""Folders of a project as options: its tables and its definitions.

A separate module, so that `ebbtide sql` loads no libraries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ebbtide.cli.errors import ROOT
from ebbtide.environment import ROOT as ROOT_VARIABLE
from ebbtide.errors import ConfigError

PROJECT_DEFS, DEFS, PROJECT_TESTS = "pipelines/defs", "defs", "tests/pipelines"
"""Folders of definitions in a project and outside of one; folder of the pipelines' tests."""
MARK = """\
# This file marks the folder of a project: Ebbtide keeps the tables of its pipelines in .ebbtide next to it, from any working folder,
# and relative paths of their sources begin here.
[tool.ebbtide]
"""
"""Content of the file that marks a project, as written by `ebbtide new`."""
NEED_NO_ROOT = frozenset({"run", "refresh", "lag", "sql", "sql-gateway", "adopt", "start", "pause"})
"""Commands that need no existing folder of tables: they create it, or only read sources."""


def project_above(location: Path) -> Path | None:
    """Return the nearest folder with a pyproject.toml, at or above a location."""
    here = location.resolve()
    for folder in (here, *here.parents):
        if (folder / "pyproject.toml").is_file():
            return folder
    return None


def in_project(name: str) -> str:
    """Return a folder of the current project, relative to the working folder; outside of a project, of the working folder."""
    project = project_above(Path.cwd())
    return name if project is None else os.path.relpath(project / name)


def default_root(specs: tuple[str, ...] = ()) -> str:
    """Return the folder of tables of the specs' project. So a command uses the same tables from any working folder.

    Args:
        specs: Locations of specs; none: the current project.

    A spec outside of a project belongs to the nearest folder above it with tables, up to the working folder.

    Raises:
        ConfigError: the specs belong to several projects.
    """
    here = Path.cwd()
    projects = {project_above(Path(spec)) or _unmarked(Path(spec)) for spec in specs} or {project_above(here) or here}
    if len(projects) > 1:
        raise ConfigError.of(
            "The specs belong to several projects, each with its tables.",
            got=", ".join(sorted(map(str, projects))),
            allowed="specs of one project, or --root",
        )
    [project] = projects
    return ROOT if project == here.resolve() or project == here else str(project / ROOT)


def _unmarked(spec: Path) -> Path:
    """Return the folder of tables for a spec outside of a project: where it was run before, else the working folder."""
    here = Path.cwd()
    location = spec.resolve()
    for folder in (location, *location.parents):
        if folder == here.resolve():
            return here
        if (folder / ROOT).is_dir():
            return folder
    return here


@contextmanager
def marked_project(folder: Path) -> Iterator[Path | None]:
    """Make the working folder a project for a new definition; yield the file that marks it.

    None: the folder is already in a project, or the definition is elsewhere. If the work fails, the file is removed.

    Args:
        folder: Folder of the definition.
    """
    here = Path.cwd()
    is_inside = folder.resolve().is_relative_to(here.resolve())
    if project_above(here) is not None or not is_inside:
        yield None
        return
    mark = here / "pyproject.toml"
    mark.write_text(MARK, encoding="utf-8")
    try:
        yield mark
    except click.exceptions.Exit:
        raise  # the definition was written, and must be corrected
    except BaseException:
        mark.unlink()
        raise


def _usable_root(context: click.Context, option: click.Parameter, root: str | None) -> str:
    from ebbtide.storage import Location

    try:
        if root is None:
            # Given arguments are processed before missing options.
            given = context.params.get("specs") or context.params.get("spec") or ()
            return default_root((given,) if isinstance(given, str) else given)
        root = Location(root).expanded("--root")
        Location(root).refuse_unusable("--root")
        if (
            context.info_name not in NEED_NO_ROOT
            and Location(root).is_local
            and not Path(Location(root).resolved()).is_dir()
        ):
            raise ConfigError.of(
                "The folder of tables does not exist.",
                got=f"--root {root}",
                allowed="an existing folder: 'ebbtide run' creates it",
            )
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
    show_default=f"{PROJECT_DEFS} of the project if it exists, else {DEFS}",
    help="Folder of the definitions; statements add to it.",
)


py_files_option = click.option(
    "--py-files",
    metavar="FILES",
    default="",
    help="Python code for functions: .py, .zip or .egg, with commas between them; workers and jobs get it.",
)
