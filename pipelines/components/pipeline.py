"""`type: pipelines.components.UpsertPipelineComponent`, `type: pipelines.components.StatefulPipelineComponent`."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import dagster as dg

from assets.pipeline import pipeline_definitions
from ebbtide import Pipeline, StatefulPipeline, UpsertPipeline


class _PipelineComponent(dg.Component):
    """Assets, checks, jobs and schedules from one spec; the command line reads the same file."""

    model: ClassVar[type[Pipeline]]

    def __init__(self, spec: Pipeline) -> None:
        self.spec = spec

    @classmethod
    def get_model_cls(cls) -> type[Pipeline]:
        """Return the schema of the attributes."""
        return cls.model

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Make the component from a defs.yaml."""
        return cls(attributes.located(context.path))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the pipeline's definitions."""
        return pipeline_definitions(self.spec)


class UpsertPipelineComponent(_PipelineComponent):
    """A changelog that becomes a right Delta table. Its attributes are those of `ebbtide.UpsertPipeline`."""

    model = UpsertPipeline


class StatefulPipelineComponent(_PipelineComponent):
    """A function with state that expires, run per key. Its attributes are those of `ebbtide.StatefulPipeline`."""

    model = StatefulPipeline
