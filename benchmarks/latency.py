"""How long a record takes from its producer into the sink of a run that goes on, by trigger interval: a small load, one broker.

`python benchmarks/latency.py --intervals 1s 200ms --seconds 60`: a record every 100 ms into one partition; per interval the 50th and 99th
percentile from before it is produced to the commit of the sink that shows it, and how many steps that were.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from confluent_kafka import Producer  # noqa: E402 - of the tests' packages
from kafka_broker import Broker  # noqa: E402

from ebbtide.delta import log  # noqa: E402

EVERY_S = 0.1
WARM_UP = 50
"""Records that are not counted: the first steps load code."""


def main() -> None:
    """Measure each interval with a broker of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--intervals", nargs="+", default=["1s", "200ms", "50ms"])
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    print("| trigger_interval | records | steps | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder, "broker"))
        try:
            for interval in given.intervals:
                home = Path(folder, interval)
                latencies_ms, n_steps = measure(broker, home, interval, given.seconds)
                cuts = statistics.quantiles(latencies_ms, n=100)
                print(f"| {interval} | {len(latencies_ms)} | {n_steps} | {cuts[49]:.0f} | {cuts[98]:.0f} |", flush=True)
        finally:
            broker.stop()


def measure(broker: Broker, home: Path, interval: str, seconds: float) -> tuple[list[float], int]:
    """Follow a topic while records come; return how long each took, and the number of steps."""
    topic = f"latency-{interval}"
    broker.create(topic, 1)
    spec = home / "spec"
    spec.mkdir(parents=True)
    attributes = {
        "name": "latency",
        "source": {"type": "kafka", "bootstrap_servers": broker.servers, "topic": topic},
        "format": {"type": "plain"},
        "schema": "id BIGINT, n BIGINT",
        "key": ["id"],
        "order": {"sequence": ["n"]},
        "trigger_interval": interval,
    }
    document = {"type": "ebbtide.UpsertPipeline", "attributes": attributes}
    (spec / "defs.yaml").write_text(json.dumps(document))  # JSON is YAML
    command = [sys.executable, "-m", "ebbtide.cli", "run", str(spec), "--root", str(home), "--follow"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 0})
            produced = [_produce(producer, topic, 0)]
            next(line for line in run.stderr or () if " step 1 " in line)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                produced.append(_produce(producer, topic, len(produced)))
                time.sleep(EVERY_S)
            time.sleep(5)
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=120)
        finally:
            run.kill()
    visible = _visible(str(home / "latency" / "sink"))
    counted = range(WARM_UP, len(produced))
    n_steps = len({visible[number] for number in counted})
    return [1000 * (visible[number] - produced[number]) for number in counted], n_steps


def _produce(producer: Producer, topic: str, number: int) -> float:
    now_s = time.time()
    value = {"_kind": "+I", "id": number, "n": number}
    producer.produce(topic, json.dumps(value))
    producer.poll(0)
    return now_s


def _visible(sink: str) -> dict[int, float]:
    """Return when each id was first committed, seconds since 1970."""
    found: dict[int, float] = {}
    for version in log.versions(sink):
        at_s = Path(log.commit_file(sink, version)).stat().st_mtime
        for location in log.added(sink, version):
            for number in pq.read_table(location, columns=["id"])["id"].to_pylist():
                found.setdefault(number, at_s)
    return found


if __name__ == "__main__":
    main()
