"""States on Delta beside the reference: 2,000 keys, 40 steps, every pair of options."""

import json
import random

import pytest
from clusters.spark_support import write
from oracles import state_ops
from oracles.reference_state import Reference
from oracles.state_ops import expect, operation
from state_walker import NAMES, PAIRWISE, TTL_MS, config

from ebbtide import StatefulPipeline, run
from ebbtide.inspect import state

KEYS, STEPS = 2_000, 40


def event_ms(step, key):
    return step * 3_000 + random.Random(f"event {step}/{key}").choice(
        (0, 2_000, -1_000, -9_000, -13_000, -1 - step * 3_000)
    )


@pytest.mark.model
def test_states_on_delta_do_as_the_reference(spark, tmp_path):
    import pyspark.cloudpickle

    pyspark.cloudpickle.register_pickle_by_value(state_ops)
    parts = [
        [json.dumps({"kind": "+I", "id": k, "step": n, "at": event_ms(n, k)}) for k in range(KEYS)]
        for n in range(STEPS)
    ]
    spec = StatefulPipeline(
        name="walk",
        source={"path": str(write(tmp_path / "in", *parts)), "records": "value", "max_files_per_step": 1},
        format={"type": "plain", "row": None, "time_units": {"at": "ms"}},
        schema="id BIGINT, step BIGINT, at TIMESTAMP",
        key=["id"],
        output_key=["id", "step"],
        event_time="at",
        function="state_walker:Walker",
        ttl={name: config(int(name.partition("_")[2])) for name in NAMES},
    )
    steps = [step for step in run(spark, spec, str(tmp_path)).steps if step.kind == "batch"]
    assert len(steps) == STEPS
    gave = {
        (row["id"], row["step"]): json.loads(row["gave"])
        for row in spark.read.format("delta").load(str(tmp_path / "walk" / "sink")).toLocalIterator()
    }
    references = {name: reference(int(name.partition("_")[2])) for name in NAMES}
    compared = 0
    for n, step in enumerate(steps):
        for each in references.values():
            each.now = step.clock.now_ms
            each.watermark = -(2**63) if step.clock.watermark_ms is None else step.clock.watermark_ms
        for key in range(KEYS):
            for name, each in references.items():
                each.event = event_ms(n, key)
                kind = name.partition("_")[0]
                drawn = operation(random.Random(f"{n}/{key}/{name}"), kind, 1_000)
                want = json.loads(json.dumps(expect(each, kind, key, *drawn), default=str))
                assert gave[key, n][name] == want, (name, PAIRWISE[int(name[-1])], n, key, drawn)
                compared += 1
    assert compared == KEYS * STEPS * len(NAMES)
    assert len(state(spark, spec, str(tmp_path), where="live")) > KEYS


def reference(i):
    update, visibility, time, clock = PAIRWISE[i]
    by_event = time == "EVENT_TIME"
    return Reference(update, visibility.startswith("RETURN"), by_event, by_event and clock == "WATERMARK", TTL_MS)
