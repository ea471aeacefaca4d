"""A topic on Spark: the same table as from files."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from clusters.spark_support import shop_lines, shop_spec
from frame.limits import set_limits
from oracles.shop_truth import same_as_truth
from servers.kafka_support import over_topic, records_of

from ebbtide import run
from ebbtide.runtime import Plan
from ebbtide.runtime._following import Following

CRASH = Path(__file__).parent / "crash.py"


@pytest.mark.grid  # without Spark: tests/runtime/test_kafka.py
def test_orders_from_a_topic_followed_and_killed_in_a_step_equal_truth(spark, broker, tmp_path):
    set_limits(records_in_driver=1_000)  # by tasks
    lines = shop_lines("orders")
    broker.create("orders", 3)
    broker.put("orders", records_of(lines[:5_000]))
    spec = over_topic(shop_spec("orders", tmp_path), broker, "orders", max_records_per_step=4_000)
    given = spec.model_dump_json(by_alias=True, exclude_unset=True)
    command = [sys.executable, CRASH, given, tmp_path, "after the decision", "follow"]
    killed = subprocess.run(command, check=False, stderr=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2_000:]
    broker.put("orders", records_of(lines[5_000:]))
    stop = threading.Event()

    def stop_after_batch(step):
        if step.kind == "batch":
            stop.set()

    following = Following(interval_ms=100)
    steps = run(spark, spec, str(tmp_path), follow=following, on_progress=stop_after_batch, stop=stop).steps
    assert [step.kind for step in steps] == ["replay", "batch"]
    assert sum(facts.read.records for _, facts in Plan.under(str(tmp_path), spec).state.steps()) == len(lines)
    assert same_as_truth(spec, tmp_path)
