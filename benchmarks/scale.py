"""What a step costs as more is stored: 100,000 changes to random keys of tables of one, ten, a hundred million rows.

Up to a million rows are read in first, as a pipeline reads them; where more are to be stored, Spark copies what state and sink
then hold under other keys. Then steps of changes, a tenth of them to new keys, are measured:
one to warm up, three that count. CPU is that of the whole process tree. The peer, asked for with `--peer`, is Delta's MERGE of the same
changes into a copy of the same sink.

    python benchmarks/scale.py [--rows 1000000,10000000] [--changes 100000] [--peer]

The aim: flat within 1.5 from the smallest table to the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delta import DeltaTable
from harness import files_of, tree_cpu_s, write_changes
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline, run
from ebbtide.sessions import build_session

ROWS_PER_FILE = 250_000
READ = 1_000_000
"""Rows that the pipeline itself reads in."""
MEASURED = 3


def main() -> int:
    """Run each size in a process of its own; print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", default="1000000,10000000")
    options.add_argument("--changes", type=int, default=100_000)
    options.add_argument("--peer", action="store_true")
    options.add_argument("--one", type=int)
    asked = options.parse_args()
    if asked.one:
        with tempfile.TemporaryDirectory() as work:
            print(json.dumps(step_cost(Path(work), asked.one, asked.changes, peer=asked.peer)))
        return 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    first: dict[str, Any] = {}
    for rows in asked.rows.split(","):
        command = [sys.executable, __file__, "--one", rows, "--changes", str(asked.changes)]
        command += ["--peer"] if asked.peer else []
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found
        ratio = found["cpu_s"] / first["cpu_s"]
        print(f"{int(rows):>12,} rows: {json.dumps(found)}, {ratio:.2f} times the first's CPU", flush=True)
    return 0


def rows_of(first: int, n: int) -> Iterator[dict[str, Any]]:
    """Yield the rows that are stored first."""
    for key in range(first, first + n):
        yield row(key, at=0)


def row(key: int, at: int) -> dict[str, Any]:
    """Make a row of about 100 bytes."""
    return {
        "id": key,
        "at": at,
        "name": f"name-{key * 7919 % 1_000_003}",
        "amount": key % 9973,
        "text": f"{key:x}/{at}" * 4,
    }


def pipeline(work: Path) -> UpsertPipeline:
    """Return the pipeline."""
    return UpsertPipeline(
        name="scale",
        schema="id BIGINT NOT NULL, at BIGINT, name STRING, amount INT, text STRING",
        key=["id"],
        source={"path": str(work / "in"), "records": "value", "max_files_per_step": 4},
        format={"type": "plain"},
        order={"sequence": ["at"]},
    )


def step_cost(work: Path, stored: int, n_changes: int, *, peer: bool) -> dict[str, Any]:
    """Store rows; return what a step of changes costs then."""
    spark = build_session("bench-scale")
    spec = pipeline(work)
    begin = time.monotonic()
    load(spark, work, min(stored, READ))
    if stored > READ:
        multiply(spark, work, stored // READ)
    loaded_s = round(time.monotonic() - begin, 1)
    if peer:
        shutil.copytree(work / "scale" / "sink", work / "peer")
    chance = random.Random(5)
    own, theirs, next_key = [], [], stored
    known = sizes(work / "scale")
    n_changed = 0
    for number in range(1 + MEASURED):
        n_new = n_changes // 10
        keys = [chance.randrange(stored) for _ in range(n_changes - n_new)] + list(range(next_key, next_key + n_new))
        next_key += n_new
        chance.shuffle(keys)
        changes = [row(key, at=number + 1) for key in dict.fromkeys(keys)]
        n_changed += len(changes)
        for part in range(4):
            write_changes(work / "in" / f"9{number:03d}-{part}.jsonl", changes[part::4])
        costs: list[tuple[float, float]] = []
        started = time.monotonic(), tree_cpu_s()
        run(spark, spec, str(work), on_progress=lambda step: costs.append((time.monotonic(), tree_cpu_s())))  # noqa: B023
        own.append([costs[0][at] - started[at] for at in range(2)])
        if peer:
            theirs.append(merge_cost(spark, work, number))
    written = sum(size for path, size in sizes(work / "scale").items() if path not in known)
    found = {
        "loaded_s": loaded_s,
        "wall_s": round(statistics.median(wall for wall, _ in own[1:]), 2),
        "cpu_s": round(statistics.median(cpu for _, cpu in own[1:]), 2),
        "first_step_cpu_s": round(own[0][1], 2),
        "bytes_written_per_change": round(written / n_changed),
        **{f"{name}_files": files_of(work / "scale" / name)["files"] for name in ("state", "sink")},
    }
    if peer:
        found["merge_cpu_s"] = round(statistics.median(cpu for _, cpu in theirs[1:]), 2)
        found["merge_wall_s"] = round(statistics.median(wall for wall, _ in theirs[1:]), 2)
        found["differs"] = differs(spark, work)
    return found


def load(spark: SparkSession, work: Path, n_rows: int) -> None:
    """Read rows in through the pipeline."""
    for number, start in enumerate(range(0, n_rows, ROWS_PER_FILE)):
        write_changes(work / "in" / f"{number:06d}.jsonl", rows_of(start, min(ROWS_PER_FILE, n_rows - start)))
    run(spark, pipeline(work), str(work))
    for file in (work / "in").iterdir():
        file.unlink()


def multiply(spark: SparkSession, work: Path, times: int) -> None:
    """Store what is stored so many times over, under other keys: no step, so that nothing but the size changes."""
    for name in ("state", "sink"):
        path = str(work / "scale" / name)
        rows = spark.read.format("delta").load(path)
        if name == "state":
            rows = rows.where("_entry = 'row'")
        copies = spark.range(1, times, 1, times - 1).withColumnRenamed("id", "_copy")
        more = copies.crossJoin(F.broadcast(rows)).withColumn("id", F.col("id") + F.col("_copy") * READ).drop("_copy")
        more.write.format("delta").mode("append").option("dataChange", "false").save(path)


def sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of all files of state and sink: data, vectors, change feed, log."""
    found = {}
    for table in ("state", "sink"):
        for path in (folder / table).rglob("*"):
            if path.is_file() and not path.name.endswith(".crc"):
                found[str(path)] = path.stat().st_size
    return found


def merge_cost(spark: SparkSession, work: Path, number: int) -> tuple[float, float]:
    """MERGE a step's changes into the peer's table; return wall and CPU seconds."""
    begin = time.monotonic(), tree_cpu_s()
    changes = spark.read.schema("kind STRING, row STRUCT<id BIGINT, at BIGINT, name STRING, amount INT, text STRING>")
    rows = changes.json(str(work / "in" / f"9{number:03d}-*.jsonl")).select("row.*")
    values = {name: F.col(f"s.{name}") for name in rows.columns}
    target = DeltaTable.forPath(spark, str(work / "peer")).alias("t")
    merge = target.merge(rows.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values).execute()
    return time.monotonic() - begin[0], tree_cpu_s() - begin[1]


def differs(spark: SparkSession, work: Path) -> int:
    """Count the rows in which the two sinks differ."""
    names = ("id", "at", "name", "amount", "text")
    ours, theirs = (spark.read.format("delta").load(str(work / name)).select(*names) for name in ("scale/sink", "peer"))
    return ours.exceptAll(theirs).count() + theirs.exceptAll(ours).count()


if __name__ == "__main__":
    sys.exit(main())
