"""`type: pipelines.components.UpsertPipelineComponent`."""

from __future__ import annotations

from typing import Any, Self

import dagster as dg

from assets.pipeline import pipeline_definitions
from ebbtide import UpsertPipeline


class UpsertPipelineComponent(dg.Component):
    """A changelog that becomes a right Delta table: assets, checks, jobs and schedules from one spec.

    Its attributes are those of `ebbtide.UpsertPipeline`; the command line reads the same file.
    """

    def __init__(self, spec: UpsertPipeline) -> None:
        self.spec = spec

    @classmethod
    def get_model_cls(cls) -> type[UpsertPipeline]:
        """Return the schema of the attributes."""
        return UpsertPipeline

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Make the component from a defs.yaml."""
        return cls(attributes.located(context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the pipeline's definitions."""
        return pipeline_definitions(self.spec)
