"""The component types that a defs.yaml may name."""

from pipelines.components.upsert_pipeline import UpsertPipelineComponent

__all__ = ["UpsertPipelineComponent"]
