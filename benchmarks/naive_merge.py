"""What a user writes today, beside Ebbtide: the same input, the same settings, one run.

The peers are the usual recipe: decode, the newest change per key, MERGE. `naive` is Spark's foreachBatch with from_json, row_number and Delta's
MERGE. With `--peers` come `duckdb`, which decodes and ranks without Spark and merges by delta-rs, and `iceberg` and `paimon` of
`lake_merges.py`. `ebbtide` runs on Spark, `local` in one process. The input is the shop's orders, `--copies` times over with keys shifted, in 8
steps. Each side runs in a process of its own, in turn; timed is the stream alone, from a started session to the last commit. CPU is that of the whole
process tree (driver, JVM, Python workers); `warm_cpu_s` is that of a step, the mean of the last two. Compiled Python modules are kept, and sessions end
well, so that from the second run on all sides have the archive of Spark's classes.

    python benchmarks/naive_merge.py [--copies 64] [--rounds 1] [--one-compiler] [--floor] [--peers]

Prints a line per side and round, then the ratios of the two sides of Ebbtide to each peer. The aims: `ebbtide` at most 0.28 of `naive`, and 0.50 of the
floor; `local` at most 0.18 of `naive`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from delta import DeltaTable
from deltalake import DeltaTable as TableOfDeltaRs
from deltalake import write_deltalake
from harness import figures_of, tree_cpu_s
from lake_merges import FILES_PER_STEP, RECORD, ROW, parsed
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.delta import Snapshot
from ebbtide.executors import Executor
from ebbtide.sessions import OnSpark, build_session, end_session

PROJECT = Path(__file__).resolve().parent.parent
UV = shutil.which("uv") or str(PROJECT / ".tools" / "bin" / "uv")
SHIFT = 10**9
STEPS = 8
OURS = ("ebbtide", "local")
MEASURES = ("cpu_s", "warm_cpu_s", "wall_s")
ERRORS = ("missing", "extra", "wrong")
LAKES = {"iceberg": "4.1.1", "paimon": "3.5.8"}
"""Sides of `lake_merges.py`, with the Spark that their packages are for."""
Step = Callable[[], None]
"""Notes the end of a step."""


def main() -> int:
    """Make the input, run both sides in turn, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--copies", type=int, default=64)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--one-compiler", action="store_true", help="run the peer as Ebbtide runs, without C2")
    options.add_argument(
        "--floor", action="store_true", help="also measure Spark reading, shuffling and appending, no logic"
    )
    options.add_argument("--peers", action="store_true", help="also run DuckDB with delta-rs, Iceberg and Paimon")
    options.add_argument("--record", metavar="MACHINE", help="add the rounds to naive_merge.json, for figures.py")
    options.add_argument("--side", choices=SIDES)
    options.add_argument("--work")
    asked = options.parse_args()
    if asked.side:
        return one_side(asked.side, Path(asked.work), asked.copies, one_compiler=asked.one_compiler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    peers = ["naive", *(["floor"] if asked.floor else []), *(["duckdb", *LAKES] if asked.peers else [])]
    sides = [*peers, *OURS]
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
    for peer in peers:
        for ours in OURS:
            ratios = {measure: ratio_of(results, ours, peer, measure) for measure in MEASURES}
            print(f"{ours} / {peer}: {', '.join(f'{measure} {ratio:.2f}' for measure, ratio in ratios.items())}")
    if asked.record:
        record(results, asked.record)
    return 0


def ratio_of(results: dict[str, list[dict[str, Any]]], ours: str, peer: str, measure: str) -> float:
    """Return the median of the rounds' ratios."""
    return statistics.median(
        one[measure] / other[measure] for one, other in zip(results[ours], results[peer], strict=True)
    )


def record(results: dict[str, list[dict[str, Any]]], machine: str) -> None:
    """Add the rounds to the file from which pages are written."""
    path = Path(__file__).with_suffix(".json")
    known = json.loads(path.read_text(encoding="utf-8"))
    for number in range(len(results["ebbtide"])):
        values = {measure: {side: rounds[number][measure] for side, rounds in results.items()} for measure in MEASURES}
        known["rounds"].append({"machine": machine, **values})
    for side, rounds in results.items():
        if "wrong" in rounds[-1]:
            known["wrong"][side] = sum(rounds[-1][error] for error in ERRORS)
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
    target = work / f"{side}-{time.monotonic_ns()}"
    if side in LAKES:
        figures = of_lake(side, work / "in", target)
        rows = duckdb.read_parquet(f"{target}/rows/*.parquet")
    else:
        figures, sink = measured(side, work / "in", target, one_compiler=one_compiler)
        rows = duckdb.from_arrow(rows_of(sink))
    figures |= {"rows": len(rows)}
    if side != "floor":
        figures |= errors(rows, copies)
    shutil.rmtree(target)
    print(json.dumps(figures))
    return 0


def measured(side: str, source: Path, target: Path, *, one_compiler: bool) -> tuple[dict[str, float], str]:
    """Run a side; return its figures, and its sink."""
    spark = None
    if side in ON_SPARK:
        # What users write runs as Spark starts by itself; Ebbtide as it is shipped, with one compiler.
        settings = {"spark.driver.extraJavaOptions": ""} if side != "ebbtide" and not one_compiler else {}
        spark = build_session(f"bench-{side}", settings)
    ends: list[float] = []
    wall, cpu = time.monotonic(), tree_cpu_s()

    def step() -> None:
        ends.append(tree_cpu_s())

    sink = ON_SPARK[side](spark, source, target, step) if spark else IN_PROCESS[side](source, target, step)
    figures = figures_of(time.monotonic() - wall, cpu, ends)
    if spark:
        end_session(spark)
    return figures, sink


def of_lake(side: str, source: Path, target: Path) -> dict[str, Any]:
    """Run a side of `lake_merges.py`, in an environment with its Spark."""
    command = [UV, "run", "--no-project", "--quiet", "--with", f"pyspark=={LAKES[side]}", "python"]
    command += [str(Path(__file__).with_name("lake_merges.py")), side, str(source), str(target)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return figures


def ebbtide(spark: SparkSession, source: Path, target: Path, step: Step) -> str:
    """Run the shop's own spec over the input, on Spark."""
    return by_ebbtide(OnSpark(spark), source, target, step)


def local(source: Path, target: Path, step: Step) -> str:
    """Run the shop's own spec over the input, in this process."""
    return by_ebbtide(InProcess(), source, target, step)


def by_ebbtide(executor: Executor, source: Path, target: Path, step: Step) -> str:
    """Run the shop's own spec over the input."""
    spec = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / "orders")
    update = {"path": str(source), "max_files_per_step": FILES_PER_STEP}
    spec = spec.model_copy(update={"source": spec.source.model_copy(update=update)})
    return f"{run(executor, spec, str(target), on_progress=lambda _: step()).root}/sink"


def naive(spark: SparkSession, source: Path, target: Path, step: Step) -> str:
    """Run the usual recipe."""
    sink = str(target / "sink")
    DeltaTable.create(spark).location(sink).addColumns(spark.createDataFrame([], ROW).schema).execute()

    def merge(batch: DataFrame, batch_id: int) -> None:
        newest = F.row_number().over(Window.partitionBy("row.order_id").orderBy(F.desc("lsn")))
        last = parsed(batch).withColumn("n", newest).where("n = 1").select("op", "row.*")
        columns = {name: f"s.{name}" for name in last.columns if name != "op"}
        into = DeltaTable.forPath(batch.sparkSession, sink).alias("t").merge(last.alias("s"), "t.order_id = s.order_id")
        into = into.whenMatchedDelete("s.op = 'd'").whenMatchedUpdate(set=columns)
        into.whenNotMatchedInsert("s.op <> 'd'", values=columns).execute()
        step()

    records = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", FILES_PER_STEP).json(str(source))
    stream = records.writeStream.foreachBatch(merge).option("checkpointLocation", str(target / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    return sink


def floor(spark: SparkSession, source: Path, target: Path, step: Step) -> str:
    """Read, parse, shuffle by key and append, without any logic: what no pipeline of Spark's own operators goes below."""
    sink = str(target / "sink")
    envelope = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<lsn: BIGINT>, op STRING"

    def append(batch: DataFrame, batch_id: int) -> None:
        parsed = batch.where("value IS NOT NULL").select(F.from_json("value", envelope).alias("e")).select("e.*")
        rows = parsed.where("op <> 't'").select(F.coalesce("after", "before").alias("row")).select("row.*")
        by_key = rows.repartition("order_id")
        by_key.write.format("delta").mode("append").save(sink)
        step()

    records = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", FILES_PER_STEP).json(str(source))
    stream = records.writeStream.foreachBatch(append).option("checkpointLocation", str(target / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    return sink


def by_duckdb(source: Path, target: Path, step: Step) -> str:
    """Decode and rank by DuckDB, and merge by delta-rs: the recipe without Spark."""
    sink = str(target / "sink")
    row = ROW.replace("STRING", "VARCHAR")
    envelope = [
        ("before", f"STRUCT({row})"),
        ("after", f"STRUCT({row})"),
        ("source", "STRUCT(lsn BIGINT)"),
        ("op", "VARCHAR"),
    ]
    structure = json.dumps(dict(envelope)).replace("'", "''")
    columns = ", ".join(f"\"{name}\": '{type_}'" for name, type_ in (each.split(" ") for each in RECORD.split(", ")))
    newest = f"""
        WITH parsed AS (
            SELECT from_json(value, ?) AS e FROM read_json(?, format='newline_delimited', columns={{{columns}}}) WHERE value IS NOT NULL
        ), changes AS (
            SELECT e.op AS op, e.source.lsn AS lsn, coalesce(e.after, e.before) AS r FROM parsed WHERE e.op <> 't'
        )
        SELECT op, unnest(r) FROM changes QUALIFY row_number() OVER (PARTITION BY r.order_id ORDER BY lsn DESC) = 1
    """  # noqa: S608 - names of this module
    files = sorted(str(path) for path in source.iterdir())
    for number in range(STEPS):
        some = files[number * FILES_PER_STEP : (number + 1) * FILES_PER_STEP]
        changes = duckdb.sql(newest, params=[structure, some]).to_arrow_table()
        if number == 0:
            write_deltalake(sink, changes.schema.remove(0).empty_table())
        merge = TableOfDeltaRs(sink).merge(changes, "t.order_id = s.order_id", source_alias="s", target_alias="t")
        values = {name: f"s.{name}" for name in changes.column_names if name != "op"}
        merge = merge.when_matched_delete("s.op = 'd'").when_matched_update(values)
        merge.when_not_matched_insert(values, "s.op <> 'd'").execute()
        step()
    return sink


ON_SPARK = {"naive": naive, "floor": floor, "ebbtide": ebbtide}
IN_PROCESS = {"duckdb": by_duckdb, "local": local}
SIDES = [*ON_SPARK, *IN_PROCESS, *LAKES]


def rows_of(sink: str) -> pa.Table:
    """Return the rows of a Delta table, deletion vectors applied."""
    snapshot = Snapshot.read(sink)
    if snapshot is None:
        raise LookupError(f"no Delta table at {sink}")
    columns = pa.schema(TableOfDeltaRs(sink).schema().to_arrow())
    return snapshot.rows(columns)


COMPARED = {
    "order_id": "BIGINT",
    "customer_id": "BIGINT",
    "status": "VARCHAR",
    "total": "DECIMAL(14,2)",
    "currency": "VARCHAR",
    "notes": "VARCHAR",
    "meta": "VARCHAR",
    "discount": "DECIMAL(14,2)",
}


def errors(rows: duckdb.DuckDBPyRelation, copies: int) -> dict[str, int]:
    """Compare rows with the truth, which every copy must equal."""
    values = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in COMPARED.items())
    truth = PROJECT / "data" / "shop" / "truth" / "orders.jsonl.gz"
    got = rows.select(values).set_alias("g")
    one = duckdb.read_json(str(truth), columns=dict.fromkeys(COMPARED, "VARCHAR")).select(values)
    copied = (
        f"SELECT order_id + copy * {SHIFT} AS order_id, * EXCLUDE order_id FROM one, range({copies}) AS copies(copy)"  # noqa: S608
    )
    want = one.query("one", copied)
    differs = " OR ".join(f"w.{name} IS DISTINCT FROM g.{name}" for name in COMPARED)
    counted = f"""
        count_if(g.order_id IS NULL), count_if(w.order_id IS NULL), count_if(w.order_id IS NOT NULL AND g.order_id IS NOT NULL AND ({differs}))
    """
    found = want.set_alias("w").join(got, "w.order_id = g.order_id", "full").aggregate(counted).fetchall()[0]
    return dict(zip(ERRORS, found, strict=True))


if __name__ == "__main__":
    sys.exit(main())
