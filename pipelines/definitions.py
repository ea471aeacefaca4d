"""What Dagster loads: composition only.

Environment: `EBBTIDE_ROOT`, folder of all pipelines' tables (default `.ebbtide` in the project).
"""

import os
from pathlib import Path

import dagster as dg

from ebbtide.streaming.load import names_in, refuse_shared_names
from resources.clock import ClockResource
from resources.spark import SparkResource
from resources.storage import StorageResource

PROJECT = Path(__file__).resolve().parent.parent


@dg.definitions
def defs() -> dg.Definitions:
    """Return everything in this code location."""
    root = os.environ.get("EBBTIDE_ROOT", str(PROJECT / ".ebbtide"))
    resources = {
        "spark": SparkResource(),
        "storage": StorageResource(root=root, data_docs=str(PROJECT / ".ebbtide" / "data_docs")),
        "clock": ClockResource(),
    }
    refuse_shared_names(names_in(Path(__file__).parent / "defs"))
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        dg.Definitions(resources=resources, executor=dg.in_process_executor),
    )
