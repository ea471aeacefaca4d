"""Pipelines in Dagster: components, and the factories behind them. Needs `pip install 'ebbtide[dagster]'`.

A project's `defs.yaml` names `type: ebbtide.dagster.UpsertPipeline`; one that builds its definitions in Python calls
`pipeline_definitions(spec)`.
"""

from ebbtide.errors import MissingExtraError

try:
    import dagster  # noqa: F401 - checks that it is installed
except ModuleNotFoundError as error:
    raise MissingExtraError.of_extra("dagster", "Dagster") from error

from ebbtide.dagster.components import MaterializedView, Resources, StatefulPipeline, UpsertPipeline, UpsertPipelines
from ebbtide.dagster.definitions import pipeline_definitions
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource

__all__ = [
    "ClockResource",
    "MaterializedView",
    "Resources",
    "SparkResource",
    "StatefulPipeline",
    "StorageResource",
    "UpsertPipeline",
    "UpsertPipelines",
    "pipeline_definitions",
]
