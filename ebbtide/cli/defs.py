"""The folder of definitions, as an option: alone, since the prompt of `ebbtide sql` loads no libraries."""

from __future__ import annotations

from pathlib import Path

import click

PROJECT_DEFS, DEFS = "pipelines/defs", "defs"
"""Folder of the definitions in a project, and outside of one."""


def _default_defs() -> str:
    return PROJECT_DEFS if Path(PROJECT_DEFS).is_dir() else DEFS


defs_option = click.option(
    "--defs",
    default=_default_defs,
    show_default=f"{PROJECT_DEFS} if it is there, else {DEFS}",
    help="Folder of the definitions; statements add to it.",
)
