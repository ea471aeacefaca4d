"""The component types that a defs.yaml may name."""

from pipelines.components.pipeline import StatefulPipelineComponent, UpsertPipelineComponent

__all__ = ["StatefulPipelineComponent", "UpsertPipelineComponent"]
