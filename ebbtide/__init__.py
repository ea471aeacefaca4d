"""Ebbtide: upsert sinks and expiring state for Spark.

Turns out-of-order changelogs (Debezium CDC, join outputs) into correct Delta tables on Spark, with per-entry state TTL. Its names are loaded when they are first taken: each of Spark's workers imports this package.
"""

import os
from typing import TYPE_CHECKING

from ebbtide.doors import names_of

# Arrow's allocator gives free memory back after a second, and the next step gets it again page by page. It reads the delay, in ms, when
# it is loaded: a program that imports pyarrow first keeps Arrow's own.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "60000")

if TYPE_CHECKING:
    from ebbtide.changelog import RowKind as RowKind
    from ebbtide.definitions import load as load
    from ebbtide.errors import EbbtideError as EbbtideError
    from ebbtide.executors import InProcess as InProcess
    from ebbtide.inspect import state as state
    from ebbtide.inspect import state_frame as state_frame
    from ebbtide.inspect import status as status
    from ebbtide.keyed_state import AggregatingStateDescriptor as AggregatingStateDescriptor
    from ebbtide.keyed_state import Change as Change
    from ebbtide.keyed_state import CleanupConfig as CleanupConfig
    from ebbtide.keyed_state import CompactionFilter as CompactionFilter
    from ebbtide.keyed_state import ExpiryClock as ExpiryClock
    from ebbtide.keyed_state import FunctionContext as FunctionContext
    from ebbtide.keyed_state import IncrementalCleanup as IncrementalCleanup
    from ebbtide.keyed_state import ListStateDescriptor as ListStateDescriptor
    from ebbtide.keyed_state import MapStateDescriptor as MapStateDescriptor
    from ebbtide.keyed_state import ReducingStateDescriptor as ReducingStateDescriptor
    from ebbtide.keyed_state import StatefulFunction as StatefulFunction
    from ebbtide.keyed_state import StateTtlConfig as StateTtlConfig
    from ebbtide.keyed_state import StateVisibility as StateVisibility
    from ebbtide.keyed_state import TimeCharacteristic as TimeCharacteristic
    from ebbtide.keyed_state import UpdateType as UpdateType
    from ebbtide.keyed_state import ValueStateDescriptor as ValueStateDescriptor
    from ebbtide.materializer import OrderedMultiset as OrderedMultiset
    from ebbtide.materializer import SinkUpsertMaterializer as SinkUpsertMaterializer
    from ebbtide.materializer import Strategy as Strategy
    from ebbtide.operations import maintain as maintain
    from ebbtide.runtime import Automatic as Automatic
    from ebbtide.runtime import RunSummary as RunSummary
    from ebbtide.runtime import StepProgress as StepProgress
    from ebbtide.runtime import refresh as refresh
    from ebbtide.runtime import run as run
    from ebbtide.sessions import build_session as build_session
    from ebbtide.spec import MaterializedView as MaterializedView
    from ebbtide.spec import Pipeline as Pipeline
    from ebbtide.spec import StatefulPipeline as StatefulPipeline
    from ebbtide.spec import UpsertPipeline as UpsertPipeline
    from ebbtide.spec import UpsertPipelines as UpsertPipelines
else:
    __getattr__, __all__ = names_of(__name__)
