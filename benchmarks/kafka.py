"""A topic read by the tasks themselves, beside the same topic through Spark's connector and the same records from files.

The input is the shop's orders, `--copies` times over with keys shifted, in 8 steps from 3 partitions. Each side runs in a process of its
own, in turn; timed is the stream alone, from a started session to the last commit. CPU is that of the whole process tree (driver, JVM,
Python workers), without the broker's.

    python benchmarks/kafka.py [--copies 64] [--rounds 1] [--token-jar JAR]

Prints a line per side and round. `--token-jar` is Spark's Kafka token provider, where the connector's own version of it is not to be had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from harness import tree_cpu_s
from naive_merge import FILES_PER_STEP, PROJECT, STEPS, errors, make_input
from pyspark.sql import DataFrame, SparkSession

from ebbtide import Pipeline, UpsertPipeline
from ebbtide.formats.records import PLACED_RECORDS
from ebbtide.runtime import plan as plans
from ebbtide.runtime.driver import run
from ebbtide.runtime.session import DELTA_JAR, build_session
from ebbtide.sources.kafka.source import KafkaSource
from ebbtide.sources.records import RowRecords
from ebbtide.sources.source import Discovery, Records
from ebbtide.spec.kafka import KafkaSource as KafkaSpec

TOPIC = "orders"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
SIDES = ("files", "tasks", "connector")


def main() -> int:
    """Make the input, run the sides in turn."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--copies", type=int, default=64)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--token-jar")
    options.add_argument("--side", choices=SIDES)
    options.add_argument("--work")
    options.add_argument("--servers")
    asked = options.parse_args()
    if asked.side:
        return one_side(asked.side, Path(asked.work), asked.copies, asked.servers, asked.token_jar)
    sys.path.insert(0, str(PROJECT / "tests" / "support"))
    from kafka_broker import Broker

    with tempfile.TemporaryDirectory() as work:
        events = make_input(Path(work), asked.copies)
        broker = Broker(Path(work, "broker"))
        try:
            fill(broker, Path(work, "in"))
            print(f"{events} events, {STEPS} steps, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
            for number in range(asked.rounds):
                for side in SIDES if number % 2 == 0 else reversed(SIDES):
                    command = [sys.executable, __file__, "--side", side, "--work", work, "--copies", str(asked.copies)]
                    command += ["--servers", broker.servers]
                    command += ["--token-jar", asked.token_jar] if asked.token_jar else []
                    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                    print(f"{side:<9} {printed.splitlines()[-1]}", flush=True)
        finally:
            broker.stop()
    return 0


def fill(broker: Any, folder: Path) -> None:
    """Put the files' records into a topic."""
    from kafka_support import records_of

    broker.create(TOPIC, 3)
    for path in sorted(folder.iterdir()):
        with path.open("rb") as lines:
            broker.put(TOPIC, records_of(lines))


def one_side(side: str, work: Path, copies: int, servers: str, token_jar: str | None) -> int:
    """Run one side; print its figures and its errors as JSON."""
    settings = {"spark.jars.packages": f"{DELTA_JAR},{CONNECTOR}"} if side == "connector" else {}
    if side == "connector" and token_jar:
        settings |= {"spark.jars.excludes": TOKENS, "spark.jars": token_jar}
    spark = build_session(f"bench-{side}", settings)
    target = work / f"{side}-{time.monotonic_ns()}"
    if side == "connector":
        plans.SOURCES[KafkaSpec] = through_spark
    wall, cpu = time.monotonic(), tree_cpu_s()
    summary = run(
        spark,
        spec_of(side, work, copies, servers),
        str(target),
        on_progress=lambda step: print(step.line(), file=sys.stderr),
    )
    figures: dict[str, Any] = {
        "wall_s": round(time.monotonic() - wall, 1),
        "cpu_s": round(tree_cpu_s() - cpu, 1),
        "records": summary.totals["records"],
    }
    print(json.dumps(figures | errors(spark, f"{summary.root}/sink", copies)))
    return 0


def spec_of(side: str, work: Path, copies: int, servers: str) -> Pipeline:
    """Make the shop's own spec over the input."""
    shipped = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / "orders")
    given = shipped.model_dump(by_alias=True, exclude_unset=True)
    if side == "files":
        source: dict[str, Any] = {"path": str(work / "in"), "max_files_per_step": FILES_PER_STEP}
    else:
        n_records = sum(1 for path in (work / "in").iterdir() for _ in path.open("rb"))
        source = {"type": "kafka", "bootstrap_servers": servers, "topic": TOPIC}
        source["max_records_per_step"] = -(-n_records // STEPS)
    return UpsertPipeline(**{**given, "source": source})


@dataclass(frozen=True)
class ThroughSpark(KafkaSource):
    """The same topic, its records as rows of Spark's connector."""

    def stream(self, spark: SparkSession, found: Discovery, location: str) -> DataFrame:
        """See `Source`."""
        options = {
            "kafka.bootstrap.servers": self.client.servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": self.settings.max_records_per_step,
        }
        return spark.readStream.format("kafka").options(**options).load()

    def records(self, frame: DataFrame, offset: Any, max_record_bytes: int) -> Records:
        """See `Source`."""
        columns = ("topic", "partition", "offset", "key", "value")
        return RowRecords(frame.select(*columns), placed)

    def position_of(self, offset: Any, since: Any) -> None:
        """See `Source`."""


def placed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn rows of the connector into records."""
    for batch in batches:
        partition = pc.cast(batch["partition"], pa.int64())
        no_header = pa.nulls(len(batch), pa.binary())
        offset = batch["offset"]
        columns = [
            batch["topic"],
            partition,
            offset,
            batch["value"],
            batch["key"],
            no_header,
            no_header,
            partition,
            offset,
        ]
        yield pa.record_batch(columns, names=PLACED_RECORDS.names).cast(PLACED_RECORDS)


def through_spark(spec: Pipeline) -> ThroughSpark:
    """Make the source."""
    ours = cast("KafkaSource", plans.positioned_source(spec))
    return ThroughSpark(ours.client, ours.topic, ours.settings)


if __name__ == "__main__":
    raise SystemExit(main())
