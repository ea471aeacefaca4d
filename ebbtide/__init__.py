"""Ebbtide: upsert sinks and expiring state for Spark.

Turns out-of-order changelogs (Debezium CDC, join outputs) into correct Delta tables on Spark, with per-entry state TTL.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbtide.errors import EbbtideError as EbbtideError
    from ebbtide.inspect.state import create_view as create_view
    from ebbtide.inspect.state import state as state
    from ebbtide.inspect.status import status as status
    from ebbtide.model.changelog import RowKind as RowKind
    from ebbtide.model.materializer.multiset import OrderedMultiset as OrderedMultiset
    from ebbtide.model.materializer.multiset import Strategy as Strategy
    from ebbtide.model.materializer.operator import SinkUpsertMaterializer as SinkUpsertMaterializer
    from ebbtide.model.state.function import Change as Change
    from ebbtide.model.state.function import FunctionContext as FunctionContext
    from ebbtide.model.state.function import ListStateDescriptor as ListStateDescriptor
    from ebbtide.model.state.function import MapStateDescriptor as MapStateDescriptor
    from ebbtide.model.state.function import StatefulFunction as StatefulFunction
    from ebbtide.model.state.function import ValueStateDescriptor as ValueStateDescriptor
    from ebbtide.model.ttl import CleanupConfig as CleanupConfig
    from ebbtide.model.ttl import CompactionFilter as CompactionFilter
    from ebbtide.model.ttl import ExpiryClock as ExpiryClock
    from ebbtide.model.ttl import IncrementalCleanup as IncrementalCleanup
    from ebbtide.model.ttl import StateTtlConfig as StateTtlConfig
    from ebbtide.model.ttl import StateVisibility as StateVisibility
    from ebbtide.model.ttl import TimeCharacteristic as TimeCharacteristic
    from ebbtide.model.ttl import UpdateType as UpdateType
    from ebbtide.operations.registry import maintain as maintain
    from ebbtide.runtime.driver import refresh as refresh
    from ebbtide.runtime.driver import run as run
    from ebbtide.runtime.engines import auto_session as auto_session
    from ebbtide.runtime.local import local_session as local_session
    from ebbtide.runtime.progress import RunSummary as RunSummary
    from ebbtide.runtime.progress import StepProgress as StepProgress
    from ebbtide.runtime.session import build_session as build_session
    from ebbtide.spec.load import load as load
    from ebbtide.spec.pipeline import Pipeline as Pipeline
    from ebbtide.spec.several import UpsertPipelines as UpsertPipelines
    from ebbtide.spec.stateful import StatefulPipeline as StatefulPipeline
    from ebbtide.spec.upsert import UpsertPipeline as UpsertPipeline
    from ebbtide.spec.view import MaterializedView as MaterializedView

_HOMES = {
    "Change": "model.state.function",
    "CleanupConfig": "model.ttl",
    "CompactionFilter": "model.ttl",
    "EbbtideError": "errors",
    "ExpiryClock": "model.ttl",
    "FunctionContext": "model.state.function",
    "IncrementalCleanup": "model.ttl",
    "ListStateDescriptor": "model.state.function",
    "MapStateDescriptor": "model.state.function",
    "MaterializedView": "spec.view",
    "OrderedMultiset": "model.materializer.multiset",
    "Pipeline": "spec.pipeline",
    "RowKind": "model.changelog",
    "RunSummary": "runtime.progress",
    "SinkUpsertMaterializer": "model.materializer.operator",
    "StateTtlConfig": "model.ttl",
    "StateVisibility": "model.ttl",
    "StatefulFunction": "model.state.function",
    "StatefulPipeline": "spec.stateful",
    "StepProgress": "runtime.progress",
    "Strategy": "model.materializer.multiset",
    "TimeCharacteristic": "model.ttl",
    "UpdateType": "model.ttl",
    "UpsertPipeline": "spec.upsert",
    "UpsertPipelines": "spec.several",
    "ValueStateDescriptor": "model.state.function",
    "auto_session": "runtime.engines",
    "build_session": "runtime.session",
    "create_view": "inspect.state",
    "load": "spec.load",
    "local_session": "runtime.local",
    "maintain": "operations.registry",
    "refresh": "runtime.driver",
    "run": "runtime.driver",
    "state": "inspect.state",
    "status": "inspect.status",
}
"""Where each public name lives; loaded when first asked for, since each of Spark's workers imports this package."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ebbtide' has no attribute {name!r}")
    return getattr(import_module(f"ebbtide.{_HOMES[name]}"), name)
