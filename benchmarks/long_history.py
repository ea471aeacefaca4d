"""Ten changes to a key with a long history: what the step costs beside ten changes to a key with a short one.

Arrival mode, rows of 250 bytes, stored as a compaction leaves them; the ten changes retract rows of the middle and the end, and add some.
Each length runs in a process of its own with a driver of 4 GB; two steps to warm up, three measured, CPU of the whole process tree.

    python benchmarks/long_history.py [--rows 1000,1000000]

The aim: a million live rows at most 3 times the CPU of a thousand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import tree_cpu_s
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline, run
from ebbtide.runtime import Plan
from ebbtide.sessions import build_session

WARM, MEASURED = 2, 3


def main() -> int:
    """Run each length in turn; print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", default="1000,1000000")
    options.add_argument("--one", type=int)
    asked = options.parse_args()
    if asked.one:
        with tempfile.TemporaryDirectory() as work:
            print(json.dumps(step_cost(asked.one, Path(work))))
        return 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    first: dict[str, float] = {}
    for rows in asked.rows.split(","):
        command = [sys.executable, __file__, "--one", rows]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        first = first or found
        print(
            f"{int(rows):>10,} live rows: {found}, {found['cpu_s'] / first['cpu_s']:.2f} times the first's CPU",
            flush=True,
        )
    return 0


def row(n: int) -> dict[str, Any]:
    """Make the n-th row; its payload does not compress to nothing."""
    parts = [hashlib.sha256(f"{n}/{part}".encode()).hexdigest() for part in range(4)]
    return {"id": 1, "n": n, "payload": "".join(parts)[:250]}


def step_cost(rows: int, work: Path) -> dict[str, float]:
    """Return what a step of ten changes takes, the mean."""
    (work / "in").mkdir()
    (work / "in" / "0000.jsonl").write_text(
        json.dumps({"kind": "+I", "row": row(0) | {"id": 2}}) + "\n"
    )  # reads no state
    for step in range(1, WARM + MEASURED):
        gone = [rows - 1 - 3 * step, rows - 2 - 3 * step, rows - 3 - 3 * step, 10 + step, rows // 2 + step]
        changes = [("-D", row(n)) for n in gone] + [("+I", row(rows * 2 + 5 * step + n)) for n in range(5)]
        changes += [("-D", change) for _, change in changes[-4:]]  # the newest row goes: the one before is shown
        lines = [json.dumps({"kind": kind, "row": change}) for kind, change in changes[: 10 + 4 * (step % 2)]]
        (work / "in" / f"{step:04d}.jsonl").write_text("\n".join(lines) + "\n")
    spec = UpsertPipeline(
        name="long",
        source={"path": str(work / "in"), "records": "value", "max_files_per_step": 1},
        format={"type": "plain"},
        schema="id BIGINT, n BIGINT, payload STRING",
        key=["id"],
        order="arrival",
    )
    spark = build_session("long-history", {"spark.driver.memory": "4g"})
    tables = Plan.under(str(work), spec)
    tables.state.create(spark)
    payload = [F.sha2(F.concat(F.col("id").cast("string"), F.lit(f"/{part}")), 256) for part in range(4)]
    stored = spark.range(0, rows, 1, max(1, rows // 250_000)).select(
        F.lit("row").alias("_entry"), F.lit(1).cast("bigint").alias("id"), F.col("id").alias("n"),
        F.substring(F.concat(*payload), 1, 250).alias("payload"), F.lit(0).cast("bigint").alias("_step"),
        F.lit(False).alias("_removed"), F.lit(0).cast("bigint").alias("_stamp_ms"), F.col("id").alias("_position"),
        F.lit("live").alias("_role"), (F.col("id") == rows - 1).alias("_shown"),
    )  # fmt: skip
    stored.write.format("delta").mode("append").save(tables.state.path)
    marks: list[tuple[float, float]] = []
    summary = run(spark, spec, str(work), on_progress=lambda _: marks.append((time.monotonic(), tree_cpu_s())))
    spark.stop()
    if summary.totals["unmatched"]:
        raise SystemExit(f"{summary.totals['unmatched']} retractions found no row")
    wall, cpu = ((b - a) / MEASURED for a, b in zip(marks[WARM - 1], marks[WARM + MEASURED - 1], strict=True))
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}


if __name__ == "__main__":
    sys.exit(main())
