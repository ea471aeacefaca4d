"""What a user writes today, beside Ebbtide: the same input, the same settings, one run.

The peer is the usual recipe: foreachBatch, from_json, the newest change per key by row_number, Delta MERGE. The input is
the shop's orders, `--copies` times over with keys shifted, in 8 micro-batches. Each side runs in a process of its own,
in turn; timed is the stream alone, from a started session to the last commit. CPU is that of the whole process tree
(driver, JVM, Python workers). Compiled Python modules are kept, and sessions end well, so that from the second run on all sides
have the archive of Spark's classes.

    python benchmarks/naive_merge.py [--copies 64] [--rounds 1] [--one-compiler] [--floor]

Prints a line per side and round, then the ratios Ebbtide / naive, of which 0.28 or less is the aim, and Ebbtide / floor, 0.50.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from delta import DeltaTable
from harness import tree_cpu_s
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline, run
from ebbtide.sessions import build_session, end_session

PROJECT = Path(__file__).resolve().parent.parent
SHIFT = 10**9
STEPS, FILES_PER_STEP = 8, 2
ROW = (
    "order_id BIGINT, customer_id BIGINT, status STRING, total DECIMAL(14,2), currency STRING, notes STRING, "
    "placed_at TIMESTAMP, updated_at BIGINT, ship_on INT, meta STRING, discount DECIMAL(14,2)"
)
RECORD = "topic STRING, partition INT, offset BIGINT, key STRING, value STRING"


def main() -> int:
    """Make the input, run both sides in turn, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--copies", type=int, default=64)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--one-compiler", action="store_true", help="run the peer as Ebbtide runs, without C2")
    options.add_argument(
        "--floor", action="store_true", help="also measure Spark reading, shuffling and appending, no logic"
    )
    options.add_argument("--record", metavar="MACHINE", help="add the rounds to naive_merge.json, for figures.py")
    options.add_argument("--side", choices=["naive", "floor", "ebbtide"])
    options.add_argument("--work")
    asked = options.parse_args()
    if asked.side:
        return one_side(asked.side, Path(asked.work), asked.copies, one_compiler=asked.one_compiler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sides = ("naive", "floor", "ebbtide") if asked.floor else ("naive", "ebbtide")
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as work:
        events = make_input(Path(work), asked.copies)
        print(f"{events} events, {STEPS} steps, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        for number in range(asked.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                command = [sys.executable, __file__, "--side", side, "--work", work, "--copies", str(asked.copies)]
                command += ["--one-compiler"] if asked.one_compiler else []
                printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                results[side].append(json.loads(printed.splitlines()[-1]))
                print(f"{side:<8} {json.dumps(results[side][-1])}", flush=True)
    for peer, measure in itertools.product(sides[:-1], ("cpu_s", "wall_s")):
        ratios = [
            ours[measure] / theirs[measure] for ours, theirs in zip(results["ebbtide"], results[peer], strict=True)
        ]
        print(f"{measure}: ebbtide / {peer} = {statistics.median(ratios):.2f}")
    if asked.record:
        record(results, asked.record)
    return 0


def record(results: dict[str, list[dict[str, Any]]], machine: str) -> None:
    """Add the rounds to the file from which pages are written."""
    path = Path(__file__).with_suffix(".json")
    known = json.loads(path.read_text(encoding="utf-8"))
    for number in range(len(results["ebbtide"])):
        cpu_s = {side: rounds[number]["cpu_s"] for side, rounds in results.items()}
        known["rounds"].append({"machine": machine, "cpu_s": cpu_s})
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def make_input(work: Path, copies: int) -> int:
    """Write the orders' records `copies` times over, arrival order kept; return their number."""
    lines = []
    for path in sorted((PROJECT / "data" / "shop" / "capture").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as source:
            lines += [record for record in map(json.loads, source) if record["topic"] == "shop.public.orders"]
    folder = work / "in"
    folder.mkdir()
    count = STEPS * FILES_PER_STEP
    size = -(-len(lines) // count)
    for number in range(count):
        path = folder / f"{number:04d}.jsonl"
        with path.open("w", encoding="utf-8") as out:
            for record in lines[number * size : (number + 1) * size]:
                value = json.loads(record["value"]) if record["value"] else None
                for copy in range(copies):
                    out.write(json.dumps(shifted(record, value, copy), ensure_ascii=False) + "\n")
        os.utime(path, (10**9 + number, 10**9 + number))  # Spark's file source goes by time
    return len(lines) * copies


def shifted(record: dict[str, Any], value: dict[str, Any] | None, copy: int) -> dict[str, Any]:
    """Give a record the keys and offsets of a copy."""
    moved = {"topic": record["topic"], "partition": record["partition"] + 3 * copy, "offset": record["offset"]}
    key = json.loads(record["key"])
    text = None
    if value is not None:
        rows = {
            side: {**value[side], "order_id": value[side]["order_id"] + copy * SHIFT} if value[side] else None
            for side in ("before", "after")
        }
        text = json.dumps({**value, **rows}, ensure_ascii=False)
    return {**moved, "ts": record["ts"], "key": json.dumps({"order_id": key["order_id"] + copy * SHIFT}), "value": text}


def one_side(side: str, work: Path, copies: int, *, one_compiler: bool) -> int:
    """Run one side; print its figures and its errors as JSON."""
    # What users write runs as Spark starts by itself; Ebbtide as it is shipped, with one compiler.
    settings = {"spark.driver.extraJavaOptions": ""} if side != "ebbtide" and not one_compiler else {}
    spark = build_session(f"bench-{side}", settings)
    target = work / f"{side}-{time.monotonic_ns()}"
    wall, cpu = time.monotonic(), tree_cpu_s()
    sink = SIDES[side](spark, work / "in", target)
    figures = {"wall_s": round(time.monotonic() - wall, 1), "cpu_s": round(tree_cpu_s() - cpu, 1)}
    figures["rows"] = spark.read.format("delta").load(sink).count()
    if side != "floor":
        figures |= errors(spark, sink, copies)
    print(json.dumps(figures))
    end_session(spark)
    return 0


def ebbtide(spark: SparkSession, source: Path, target: Path) -> str:
    """Run the shop's own spec over the input."""
    spec = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / "orders")
    update = {"path": str(source), "max_files_per_step": FILES_PER_STEP}
    spec = spec.model_copy(update={"source": spec.source.model_copy(update=update)})
    summary = run(spark, spec, str(target), on_progress=lambda step: print(step.line(), file=sys.stderr))
    return f"{summary.root}/sink"


def naive(spark: SparkSession, source: Path, target: Path) -> str:
    """Run the usual recipe."""
    sink = str(target / "sink")
    DeltaTable.create(spark).location(sink).addColumns(spark.createDataFrame([], ROW).schema).execute()
    envelope = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<lsn: BIGINT>, op STRING"

    def merge(batch: DataFrame, batch_id: int) -> None:
        parsed = batch.where("value IS NOT NULL").select(F.from_json("value", envelope).alias("e")).select("e.*")
        rows = parsed.where("op <> 't'").select("op", "source.lsn", F.coalesce("after", "before").alias("row"))
        newest = F.row_number().over(Window.partitionBy("row.order_id").orderBy(F.desc("lsn")))
        last = rows.withColumn("n", newest).where("n = 1").select("op", "row.*")
        columns = {name: f"s.{name}" for name in last.columns if name != "op"}
        into = DeltaTable.forPath(batch.sparkSession, sink).alias("t").merge(last.alias("s"), "t.order_id = s.order_id")
        into = into.whenMatchedDelete("s.op = 'd'").whenMatchedUpdate(set=columns)
        into.whenNotMatchedInsert("s.op <> 'd'", values=columns).execute()

    records = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", FILES_PER_STEP).json(str(source))
    stream = records.writeStream.foreachBatch(merge).option("checkpointLocation", str(target / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    return sink


def floor(spark: SparkSession, source: Path, target: Path) -> str:
    """Read, parse, shuffle by key and append, without any logic: what no pipeline of Spark's own operators goes below."""
    sink = str(target / "sink")
    envelope = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<lsn: BIGINT>, op STRING"

    def append(batch: DataFrame, batch_id: int) -> None:
        parsed = batch.where("value IS NOT NULL").select(F.from_json("value", envelope).alias("e")).select("e.*")
        rows = parsed.where("op <> 't'").select(F.coalesce("after", "before").alias("row")).select("row.*")
        by_key = rows.repartition("order_id")
        by_key.write.format("delta").mode("append").save(sink)

    records = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", FILES_PER_STEP).json(str(source))
    stream = records.writeStream.foreachBatch(append).option("checkpointLocation", str(target / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    return sink


SIDES = {"naive": naive, "floor": floor, "ebbtide": ebbtide}


def errors(spark: SparkSession, sink: str, copies: int) -> dict[str, int]:
    """Compare a sink with the truth, which every copy must equal."""
    with gzip.open(PROJECT / "data" / "shop" / "truth" / "orders.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    names = ("order_id", "customer_id", "status", "total", "currency", "notes", "meta", "discount")
    truth = spark.createDataFrame(
        [tuple(row[name] for name in names) for row in rows], ", ".join(f"{name} STRING" for name in names)
    )
    want = truth.crossJoin(spark.range(copies).withColumnRenamed("id", "copy")).withColumn(
        "order_id", F.expr(f"CAST(order_id AS BIGINT) + copy * {SHIFT}")
    )
    want = want.withColumns(
        {
            "total": F.col("total").cast("decimal(14,2)"),
            "discount": F.col("discount").cast("decimal(14,2)"),
            "customer_id": F.col("customer_id").cast("bigint"),
        }
    )
    got = spark.read.format("delta").load(sink).select(*names)
    joined = want.alias("w").join(got.alias("g"), F.col("w.order_id") == F.col("g.order_id"), "full")
    differs = F.lit(False)
    for name in names[1:]:
        differs |= ~F.col(f"w.{name}").eqNullSafe(F.col(f"g.{name}"))
    found = joined.agg(
        F.count_if(F.col("g.order_id").isNull()).alias("missing"),
        F.count_if(F.col("w.order_id").isNull()).alias("extra"),
        F.count_if(F.col("g.order_id").isNotNull() & F.col("w.order_id").isNotNull() & differs).alias("wrong"),
    )
    return found.collect()[0].asDict()


if __name__ == "__main__":
    sys.exit(main())
