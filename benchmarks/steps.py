"""Thousands of small steps: what a step costs, and how many files the tables have, as steps go on.

Each step is one file of 1 to 2,000 changes (log-uniform; another limit with `--largest`) to 100,000 keys, most of them updates. Measured for each step: CPU of the
whole process tree (Structured Streaming's own included), wall time, data files and log of state and sink. At the end the sink
is compared with the truth, and read by Spark as it is and after a compaction.

    python benchmarks/steps.py [--steps 2000] [--largest 2000] [--plot benchmarks/steps.svg]
    python benchmarks/steps.py --runs 200 [--behind 5000]

The aims: CPU a step, files and log flat; reads within 1.5 of those of the compacted table. With `--runs` each file is read by a run of its own
in this process, with 20 changes, behind as many steps as `--behind` says, which one run makes: the aim is 0.12 CPU s a run, however many
there were; above it the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import figure, files_of, save, tree_cpu_s, write_changes
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.operations import maintain
from ebbtide.sessions import build_session

KEYS = 100_000
LARGEST = 2_000
PARTS = 10
READS = 10
MOST_DOTS = 2_000
TINY = 20
MOST_CPU_S_OF_A_RUN = 0.12


def main() -> int:
    """Make the input, run, print a line for each tenth of the steps."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=2000)
    options.add_argument("--largest", type=int, default=LARGEST)
    options.add_argument("--plot", type=Path)
    options.add_argument("--runs", type=int)
    options.add_argument("--behind", type=int, default=0)
    asked = options.parse_args()
    if asked.runs:
        return tiny_runs(asked.runs, asked.behind)
    print(f"{asked.steps} steps, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        truth, sizes = make_input(work / "in", asked.steps, asked.largest)
        spark = build_session("bench-steps")
        marks = measured(spark, work)
        for part in parted(marks):
            print(json.dumps(part), flush=True)
        print(json.dumps(reads(spark, work, truth) | {"changes": sum(sizes)}), flush=True)
    if asked.plot:
        plot(marks, asked.plot)
    return 0


def tiny_runs(n_runs: int, behind: int) -> int:
    """Make runs of one small file each, behind steps; print the median CPU of each tenth of them, and return 1 if one is above the aim."""
    chance = random.Random(7)
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def write(number: int) -> None:
            rows = [{"id": chance.randrange(KEYS), "at": number * TINY + i, "text": f"{i:x}" * 20} for i in range(TINY)]
            write_changes(work / "in" / f"{number:06d}.jsonl", rows)

        for number in range(behind):
            write(number)
        if behind:
            run(InProcess(), pipeline(work), str(work))
        for number in range(behind, behind + n_runs):
            write(number)
            before = time.process_time()
            run(InProcess(), pipeline(work), str(work))
            costs.append(time.process_time() - before)
    size = max(1, n_runs // PARTS)
    medians = [round(statistics.median(costs[at : at + size]), 3) for at in range(0, n_runs, size)]
    print(
        json.dumps(
            {"runs": n_runs, "behind": behind, "cpu_s_median_by_tenth": medians, "at_most": MOST_CPU_S_OF_A_RUN}
        ),
        flush=True,
    )
    return int(max(medians[1:], default=0.0) > MOST_CPU_S_OF_A_RUN)


def make_input(folder: Path, steps: int, largest: int) -> tuple[dict[int, int], list[int]]:
    """Write the steps' files; return the rows that must be there in the end, and the files' changes."""
    chance = random.Random(7)
    truth: dict[int, int] = {}
    sizes = []
    at = 0
    for step in range(steps):
        rows = []
        for _ in range(int(largest ** chance.random())):
            at += 1
            key = chance.randrange(KEYS)
            truth[key] = at
            rows.append({"id": key, "at": at, "text": f"{at:x}" * 20})
        sizes.append(write_changes(folder / f"{step:06d}.jsonl", rows))
    return truth, sizes


def pipeline(work: Path) -> UpsertPipeline:
    """Return the pipeline."""
    return UpsertPipeline(
        name="steps",
        schema="id BIGINT NOT NULL, at BIGINT, text STRING",
        key=["id"],
        source={"path": str(work / "in"), "records": "value", "max_files_per_step": 1},
        format={"type": "plain"},
        order={"sequence": ["at"]},
    )


def measured(spark: SparkSession, work: Path) -> list[dict[str, Any]]:
    """Run all steps; return what each one cost, and what the tables were after it."""
    marks: list[dict[str, Any]] = []
    last = [time.monotonic(), tree_cpu_s()]

    def mark(step: Any) -> None:
        wall, cpu = time.monotonic(), tree_cpu_s()
        found = {name: files_of(work / "steps" / name) for name in ("state", "sink")} if step.step % 10 == 0 else {}
        marks.append(
            {"step": step.step, "records": step.records, "cpu_s": cpu - last[1], "wall_s": wall - last[0], **found}
        )
        last[:] = time.monotonic(), tree_cpu_s()

    run(spark, pipeline(work), str(work), on_progress=mark)
    return marks


def parted(marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum up each tenth of the steps."""
    size = max(1, len(marks) // PARTS)
    parts = []
    for start in range(0, len(marks) - size + 1, size):
        part = marks[start : start + size]
        looked = [each for each in part if "sink" in each]
        parts.append(
            {
                "steps": f"{part[0]['step']}-{part[-1]['step']}",
                "cpu_s_median": round(statistics.median(each["cpu_s"] for each in part), 3),
                "cpu_s_mean": round(statistics.mean(each["cpu_s"] for each in part), 3),
                "wall_s_median": round(statistics.median(each["wall_s"] for each in part), 3),
                **{
                    f"{table}_{name}_most": max(each[table][name] for each in looked)
                    for table in ("state", "sink")
                    for name in ("files", "vectors", "bytes", "log_files", "log_bytes")
                },
            }
        )
    return parts


def reads(spark: SparkSession, work: Path, truth: dict[int, int]) -> dict[str, Any]:
    """Compare the sink with the truth, and time reading it before and after a compaction."""
    as_left, compacted = work / "as-left", work / "steps" / "sink"
    shutil.copytree(compacted, as_left)
    maintain(spark, pipeline(work), str(work), "compaction")
    # In turn, so that both are read by a JVM that is as warm.
    times = [(read_s(spark, as_left), read_s(spark, compacted)) for _ in range(READS)][1:]
    before, after = (statistics.median(each) for each in zip(*times, strict=True))
    rows = {row["id"]: row["at"] for row in spark.read.format("delta").load(str(as_left)).select("id", "at").collect()}
    wrong = sum(truth.get(key) != at for key, at in rows.items()) + len(truth.keys() - rows.keys())
    return {
        "rows": len(rows),
        "wrong": wrong,
        "read_s": round(before, 3),
        "read_compacted_s": round(after, 3),
        "ratio": round(before / after, 2),
    }


def read_s(spark: SparkSession, table: Path) -> float:
    """Return how long Spark takes to read all columns of all rows, s."""
    start = time.monotonic()
    spark.read.format("delta").load(str(table)).agg(F.bit_xor(F.xxhash64("*"))).collect()
    return time.monotonic() - start


def plot(marks: list[dict[str, Any]], path: Path) -> None:
    """Draw CPU a step, files and log over the steps."""
    drawn, axes = figure(3, 8)
    cost, files, log = axes
    steps = [each["step"] for each in marks]
    # Ten thousand dots would make a file of 1.5 MB.
    shown = marks[:: max(1, len(marks) // MOST_DOTS)]
    cost.plot([each["step"] for each in shown], [each["cpu_s"] for each in shown], ".", markersize=2, alpha=0.4)
    window = 50
    smooth = [
        statistics.median(each["cpu_s"] for each in marks[max(0, i - window) : i + window]) for i in range(len(marks))
    ]
    cost.plot(steps, smooth, label=f"median of {2 * window} steps")
    cost.set(ylabel="CPU s a step", ylim=(0, 4 * max(smooth[len(smooth) // 10 :])))
    cost.legend()
    looked = [each for each in marks if "sink" in each]
    for table in ("state", "sink"):
        files.plot([each["step"] for each in looked], [each[table]["files"] for each in looked], label=table)
        log.plot([each["step"] for each in looked], [each[table]["log_bytes"] / 1e6 for each in looked], label=table)
    files.set(ylabel="data files")
    files.legend()
    log.set(ylabel="MB of log", xlabel="step")
    log.legend()
    save(drawn, path)


if __name__ == "__main__":
    sys.exit(main())
