"""A stateful function that makes random operations on states of every pair of options."""

import json
import random
from datetime import timedelta

from oracles import state_ops

from ebbtide import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    ValueStateDescriptor,
)

TTL_MS = 10_000
KINDS = {
    "value": ValueStateDescriptor("BIGINT"),
    "list": ListStateDescriptor("BIGINT"),
    "map": MapStateDescriptor("BIGINT"),
    "reducing": ReducingStateDescriptor("BIGINT", reduce=state_ops.reduce),
    "aggregating": AggregatingStateDescriptor("BIGINT", aggregate=state_ops.Sevens()),
}
PAIRWISE = [
    ("DISABLED", "NEVER_RETURN_EXPIRED", "PROCESSING_TIME", "WATERMARK"),
    ("ON_CREATE", "NEVER_RETURN_EXPIRED", "EVENT_TIME", "WATERMARK"),
    ("ON_CREATE", "RETURN_EXPIRED_IF_NOT_CLEANED_UP", "PROCESSING_TIME", "WATERMARK"),
    ("ON_CREATE_AND_WRITE", "NEVER_RETURN_EXPIRED", "PROCESSING_TIME", "WATERMARK"),
    ("ON_CREATE_AND_WRITE", "RETURN_EXPIRED_IF_NOT_CLEANED_UP", "EVENT_TIME", "WATERMARK"),
    ("ON_READ_AND_WRITE", "RETURN_EXPIRED_IF_NOT_CLEANED_UP", "EVENT_TIME", "WATERMARK"),
    ("ON_READ_AND_WRITE", "NEVER_RETURN_EXPIRED", "PROCESSING_TIME", "WATERMARK"),
    ("ON_READ", "NEVER_RETURN_EXPIRED", "EVENT_TIME", "PROCESSING_TIME"),
    ("ON_READ", "RETURN_EXPIRED_IF_NOT_CLEANED_UP", "PROCESSING_TIME", "WATERMARK"),
]
NAMES = [f"{kind}_{i}" for i in range(len(PAIRWISE)) for kind in KINDS]


class Walker(StatefulFunction):
    """Makes one random operation on each state for each row, and tells what they gave."""

    output = "step BIGINT, gave STRING"

    def process(self, key, rows, ctx):
        for change in rows:
            step, gave = change.row["step"], {}
            for name in NAMES:
                kind = name.partition("_")[0]
                drawn = state_ops.operation(random.Random(f"{step}/{key[0]}/{name}"), kind, 1_000)
                gave[name] = state_ops.perform(getattr(self, name), kind, *drawn)
            yield {"step": step, "gave": json.dumps(gave, default=str)}


for name in NAMES:
    setattr(Walker, name, KINDS[name.partition("_")[0]])


def config(i):
    update, visibility, time, clock = PAIRWISE[i]
    ttl = timedelta(milliseconds=TTL_MS)
    return StateTtlConfig(
        ttl=ttl, update_type=update, state_visibility=visibility, time_characteristic=time, expiry_clock=clock
    )
