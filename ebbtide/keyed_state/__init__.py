"""State with a time to live, by key, one entry at a time: FLIP-25.

`StateTtlConfig` says when an entry expires. A `StatefulFunction` declares its states by descriptors and gets a `FunctionContext`;
`FunctionRun` calls it for each change over a `Store`, which holds each `Entry`. All expiry of a single entry is decided here.
`compact` drops what has expired from a store, as a compaction filter does.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.keyed_state._cleanup import compact as compact
    from ebbtide.keyed_state._function import AggregatingStateDescriptor as AggregatingStateDescriptor
    from ebbtide.keyed_state._function import Change as Change
    from ebbtide.keyed_state._function import Deletion as Deletion
    from ebbtide.keyed_state._function import FunctionContext as FunctionContext
    from ebbtide.keyed_state._function import FunctionRun as FunctionRun
    from ebbtide.keyed_state._function import ListStateDescriptor as ListStateDescriptor
    from ebbtide.keyed_state._function import MapStateDescriptor as MapStateDescriptor
    from ebbtide.keyed_state._function import ReducingStateDescriptor as ReducingStateDescriptor
    from ebbtide.keyed_state._function import StatefulFunction as StatefulFunction
    from ebbtide.keyed_state._function import ValueStateDescriptor as ValueStateDescriptor
    from ebbtide.keyed_state._raw import Entry as Entry
    from ebbtide.keyed_state._raw import Store as Store
    from ebbtide.keyed_state._states import KeyedState as KeyedState
    from ebbtide.keyed_state._ttl import TIMERS as TIMERS
    from ebbtide.keyed_state._ttl import CleanupConfig as CleanupConfig
    from ebbtide.keyed_state._ttl import CompactionFilter as CompactionFilter
    from ebbtide.keyed_state._ttl import ExpiryClock as ExpiryClock
    from ebbtide.keyed_state._ttl import IncrementalCleanup as IncrementalCleanup
    from ebbtide.keyed_state._ttl import StateTtlConfig as StateTtlConfig
    from ebbtide.keyed_state._ttl import StateVisibility as StateVisibility
    from ebbtide.keyed_state._ttl import TimeCharacteristic as TimeCharacteristic
    from ebbtide.keyed_state._ttl import Ttl as Ttl
    from ebbtide.keyed_state._ttl import UpdateType as UpdateType
else:
    __getattr__, __all__ = names_of(__name__)
