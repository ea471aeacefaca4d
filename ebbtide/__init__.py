"""Ebbtide: upsert sinks and expiring state for Spark.

Turns out-of-order changelogs (Debezium CDC, join outputs) into correct Delta tables on Spark, with per-entry state TTL. Its names are loaded when they are first taken: each of Spark's workers imports this package.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.errors import EbbtideError as EbbtideError
    from ebbtide.inspect import create_view as create_view
    from ebbtide.inspect import state as state
    from ebbtide.inspect import status as status
    from ebbtide.model import RowKind as RowKind
    from ebbtide.model import StateTtlConfig as StateTtlConfig
    from ebbtide.model._materializer.multiset import OrderedMultiset as OrderedMultiset
    from ebbtide.model._materializer.multiset import Strategy as Strategy
    from ebbtide.model._materializer.operator import SinkUpsertMaterializer as SinkUpsertMaterializer
    from ebbtide.model._state.function import Change as Change
    from ebbtide.model._state.function import FunctionContext as FunctionContext
    from ebbtide.model._state.function import ListStateDescriptor as ListStateDescriptor
    from ebbtide.model._state.function import MapStateDescriptor as MapStateDescriptor
    from ebbtide.model._state.function import StatefulFunction as StatefulFunction
    from ebbtide.model._state.function import ValueStateDescriptor as ValueStateDescriptor
    from ebbtide.model._ttl import CleanupConfig as CleanupConfig
    from ebbtide.model._ttl import CompactionFilter as CompactionFilter
    from ebbtide.model._ttl import ExpiryClock as ExpiryClock
    from ebbtide.model._ttl import IncrementalCleanup as IncrementalCleanup
    from ebbtide.model._ttl import StateVisibility as StateVisibility
    from ebbtide.model._ttl import TimeCharacteristic as TimeCharacteristic
    from ebbtide.model._ttl import UpdateType as UpdateType
    from ebbtide.operations import maintain as maintain
    from ebbtide.runtime import RunSummary as RunSummary
    from ebbtide.runtime import StepProgress as StepProgress
    from ebbtide.runtime import auto_session as auto_session
    from ebbtide.runtime import build_session as build_session
    from ebbtide.runtime._driver import refresh as refresh
    from ebbtide.runtime._driver import run as run
    from ebbtide.runtime._local import local_session as local_session
    from ebbtide.spec import MaterializedView as MaterializedView
    from ebbtide.spec import Pipeline as Pipeline
    from ebbtide.spec import UpsertPipeline as UpsertPipeline
    from ebbtide.spec import UpsertPipelines as UpsertPipelines
    from ebbtide.spec._load import load as load
    from ebbtide.spec._stateful import StatefulPipeline as StatefulPipeline
else:
    __getattr__, __all__ = names_of(__name__)
