"""Ebbtide: upsert sinks and expiring state for Spark.

Out-of-order changelogs become Delta tables that are right, with state that expires when its owner said it would.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbtide.model.changelog import RowKind
    from ebbtide.model.state.function import (
        Change,
        FunctionContext,
        ListStateDescriptor,
        MapStateDescriptor,
        StatefulFunction,
        ValueStateDescriptor,
    )
    from ebbtide.model.ttl import (
        CleanupConfig,
        CompactionFilter,
        ExpiryClock,
        IncrementalCleanup,
        StateTtlConfig,
        StateVisibility,
        TimeCharacteristic,
        UpdateType,
    )
    from ebbtide.streaming.progress import RunSummary, StepProgress
    from ebbtide.streaming.spec import Pipeline
    from ebbtide.streaming.stateful import StatefulPipeline
    from ebbtide.streaming.upsert import UpsertPipeline

_HOMES = {
    "Change": "model.state.function",
    "CleanupConfig": "model.ttl",
    "CompactionFilter": "model.ttl",
    "ExpiryClock": "model.ttl",
    "FunctionContext": "model.state.function",
    "IncrementalCleanup": "model.ttl",
    "ListStateDescriptor": "model.state.function",
    "MapStateDescriptor": "model.state.function",
    "Pipeline": "streaming.spec",
    "RowKind": "model.changelog",
    "RunSummary": "streaming.progress",
    "StateTtlConfig": "model.ttl",
    "StateVisibility": "model.ttl",
    "StatefulFunction": "model.state.function",
    "StatefulPipeline": "streaming.stateful",
    "StepProgress": "streaming.progress",
    "TimeCharacteristic": "model.ttl",
    "UpdateType": "model.ttl",
    "UpsertPipeline": "streaming.upsert",
    "ValueStateDescriptor": "model.state.function",
}
"""Where each public name lives; loaded when first asked for, since each of Spark's workers imports this package."""

__all__ = [
    "Change",
    "CleanupConfig",
    "CompactionFilter",
    "ExpiryClock",
    "FunctionContext",
    "IncrementalCleanup",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "Pipeline",
    "RowKind",
    "RunSummary",
    "StateTtlConfig",
    "StateVisibility",
    "StatefulFunction",
    "StatefulPipeline",
    "StepProgress",
    "TimeCharacteristic",
    "UpdateType",
    "UpsertPipeline",
    "ValueStateDescriptor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ebbtide' has no attribute {name!r}")
    return getattr(import_module(f"ebbtide.{_HOMES[name]}"), name)
