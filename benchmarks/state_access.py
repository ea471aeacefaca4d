"""State access: a stateful function, and the columnar reconciler, beside Spark's transformWithState in Python.

The same input for all: JSON lines with a key, from files, a micro-batch a file. Each record is one read and one write of its key's
value. Each side runs in a process of its own, in turn; the first batches warm it up and fill the state, the last two are
measured, from commit to commit. CPU is that of the whole process tree.

    python benchmarks/state_access.py [--accesses 100000] [--keys 1,10000,1000000]
    python benchmarks/state_access.py --stored 1000000,10000000     # a step of 100,000 accesses over so many stored entries

The aim: 5 times the accesses per CPU second for a function, 20 times for the reconciler; 10 times the entries, 1.5 times the time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import tree_cpu_s
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ebbtide import (
    Change,
    FunctionContext,
    Pipeline,
    StatefulFunction,
    StatefulPipeline,
    UpsertPipeline,
    ValueStateDescriptor,
    run,
)
from ebbtide.runtime import Plan
from ebbtide.sessions import build_session

WARM, MEASURED = 2, 2
SIDES = ("transformWithState", "function", "reconciler")


class Count(StatefulFunction):
    """Reads and writes a counter for each record."""

    output = "n BIGINT"
    n = ValueStateDescriptor("BIGINT")

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Count."""
        for _ in rows:
            self.n.update((self.n.get() or 0) + 1)
        yield {"n": self.n.get()}


class SparkCount(StatefulProcessor):
    """The same for Spark."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the counter."""
        self._n = handle.getValueState("n", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        """Count."""
        n = 0
        for _ in rows:
            n = (self._n.get()[0] if self._n.exists() else 0) + 1
            self._n.update((n,))
        yield Row(id=key[0], n=n)

    def close(self) -> None:
        """Nothing to close."""


def main() -> int:
    """Make the input, run the sides in turn, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--accesses", type=int, default=100_000)
    options.add_argument("--keys", default="1,10000,1000000")
    options.add_argument("--stored")
    options.add_argument("--side", choices=SIDES)
    options.add_argument("--work", type=Path)
    options.add_argument("--fill", type=int, default=0)
    asked = options.parse_args()
    if asked.side:
        print(json.dumps(one_side(asked.side, asked.work, asked.fill)))
        return 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    if asked.stored:
        counts = [int(n) for n in asked.stored.split(",")]
        times = [measured("function", 100_000, n, fill=n) for n in counts]
        for n, each in zip(counts, times, strict=True):
            print(f"{n:>10} stored: {each}, {each['wall_s'] / times[0]['wall_s']:.2f} of the first's time")
        return 0
    for keys in map(int, asked.keys.split(",")):
        results = {side: measured(side, asked.accesses, keys) for side in SIDES}
        for side, each in results.items():
            rate, base = (asked.accesses / results[name]["cpu_s"] for name in (side, SIDES[0]))
            print(
                f"{asked.accesses} over {keys} keys, {side}: {each}, {rate:,.0f} accesses per CPU s, {rate / base:.1f} times",
                flush=True,
            )
    return 0


def measured(side: str, accesses: int, keys: int, *, fill: int = 0) -> dict[str, float]:
    """Run one side in a process of its own."""
    with tempfile.TemporaryDirectory() as work:
        make_input(Path(work), accesses // 2, keys)
        command = [sys.executable, __file__, "--side", side, "--work", work, "--fill", str(fill)]
        printed = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ).stdout
        return dict(json.loads(printed.splitlines()[-1]))


def make_input(work: Path, records: int, keys: int) -> None:
    """Write the micro-batches, records over random keys."""
    rng = random.Random(7)
    (work / "in").mkdir()
    for number in range(WARM + MEASURED):
        with (work / "in" / f"{number:04d}.jsonl").open("w") as out:
            for n in range(records):
                out.write(json.dumps({"kind": "+I", "id": rng.randrange(keys), "seq": number * records + n}) + "\n")
        os.utime(work / "in" / f"{number:04d}.jsonl", (10**9 + number, 10**9 + number))


def one_side(side: str, work: Path, fill: int) -> dict[str, float]:
    """Run one side; return what a measured batch took, the mean."""
    spark = build_session(f"bench-{side}")
    marks: list[tuple[float, float]] = []

    def mark(*_: Any) -> None:
        marks.append((time.monotonic(), tree_cpu_s()))

    if side == SIDES[0]:
        transform_with_state(spark, work, mark)
    else:
        spec = pipeline(side, work)
        if fill:
            fill_state(spark, spec, str(work), fill)
        run(spark, spec, str(work), on_progress=mark)
    spark.stop()
    first, last = marks[WARM - 1], marks[WARM + MEASURED - 1]
    wall, cpu = ((b - a) / MEASURED for a, b in zip(first, last, strict=True))
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}


def pipeline(side: str, work: Path) -> Pipeline:
    """Make ours: a function, or the reconciler, which keeps the newest row of each key."""
    common = {
        "name": side,
        "source": {"path": str(work / "in"), "records": "value", "max_files_per_step": 1},
        "format": {"type": "plain", "row": None},
        "schema": "id BIGINT, seq BIGINT",
        "key": ["id"],
    }
    if side == "function":
        return StatefulPipeline(**common, function="state_access:Count")
    return UpsertPipeline(**common, order={"sequence": ["seq"]})


def fill_state(spark: SparkSession, spec: Pipeline, root: str, entries: int) -> None:
    """Store a counter for each of so many keys, as a compaction leaves them."""
    tables = Plan.under(root, spec)
    tables.state.create(spark)
    rows = spark.range(0, entries, 1, max(2, entries // 1_000_000)).select(
        F.lit("row").alias("_entry"), "id", F.lit(0).cast("bigint").alias("_step"), F.lit(False).alias("_removed"),
        F.lit("n").alias("_state"), F.lit("").alias("_sub"), F.lit(1).cast("bigint").alias("_value_n"),
    )  # fmt: skip
    rows.write.format("delta").mode("append").save(tables.state.path)


def transform_with_state(spark: SparkSession, work: Path, mark: Any) -> None:
    """Run the peer with the settings that are best for it; its output is appended to a Delta table."""
    for name, value in {
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        spark.conf.set(name, value)
    lines = spark.readStream.schema("kind STRING, id BIGINT, seq BIGINT").option("maxFilesPerTrigger", 1)
    counted = lines.json(str(work / "in")).groupBy("id").transformWithState(
        statefulProcessor=SparkCount(), outputStructType="id BIGINT, n BIGINT", outputMode="Update", timeMode="None"
    )  # fmt: skip

    def append(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("delta").mode("append").save(str(work / "out"))
        mark()

    query = counted.writeStream.foreachBatch(append).option("checkpointLocation", str(work / "checkpoint"))
    query.outputMode("update").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
