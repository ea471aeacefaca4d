"""The code location of `fifty.py`: one `defs.yaml` a pipeline, as a project has them."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

PROJECT = Path(os.environ["EBBTIDE_LIVE_DIR"]) / "project"


@dg.definitions
def defs() -> dg.Definitions:
    """Return the location."""
    loaded = dg.load_from_defs_folder(path_within_project=PROJECT)
    return dg.Definitions.merge(loaded, dg.Definitions(executor=dg.in_process_executor))
