"""The component types by the names that they had here; new specs say `ebbtide.dagster.UpsertPipeline`."""

from ebbtide.dagster import StatefulPipeline as StatefulPipelineComponent
from ebbtide.dagster import UpsertPipeline as UpsertPipelineComponent

__all__ = ["StatefulPipelineComponent", "UpsertPipelineComponent"]
