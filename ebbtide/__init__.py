"""Ebbtide: upsert sinks and expiring state for Spark.

Out-of-order changelogs become Delta tables that are right, with state that expires when its owner said it would.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbtide.model.changelog import RowKind
    from ebbtide.model.ttl import StateTtlConfig, StateVisibility, TimeCharacteristic, UpdateType
    from ebbtide.streaming.progress import RunSummary, StepProgress
    from ebbtide.streaming.spec import UpsertPipeline

_HOMES = {
    "RowKind": "model.changelog",
    "RunSummary": "streaming.progress",
    "StateTtlConfig": "model.ttl",
    "StateVisibility": "model.ttl",
    "StepProgress": "streaming.progress",
    "TimeCharacteristic": "model.ttl",
    "UpdateType": "model.ttl",
    "UpsertPipeline": "streaming.spec",
}
"""Where each public name lives; loaded when first asked for, since each of Spark's workers imports this package."""

__all__ = [
    "RowKind",
    "RunSummary",
    "StateTtlConfig",
    "StateVisibility",
    "StepProgress",
    "TimeCharacteristic",
    "UpdateType",
    "UpsertPipeline",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ebbtide' has no attribute {name!r}")
    return getattr(import_module(f"ebbtide.{_HOMES[name]}"), name)
