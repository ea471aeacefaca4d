"""A topic read by the tasks themselves, beside the same records from files.

The input is the shop's orders, `--copies` times over with keys shifted, in 8 steps from 3 partitions. Each side runs in a process of its
own, in turn; timed is the stream alone, from a started session to the last commit. CPU is that of the whole process tree (driver, JVM,
Python workers), without the broker's.

    python benchmarks/kafka.py [--copies 64] [--rounds 1]

Prints a line per side and round.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import tree_cpu_s
from naive_merge import FILES_PER_STEP, PROJECT, STEPS, errors, make_input

from ebbtide import Pipeline, UpsertPipeline, run
from ebbtide.sessions import build_session

TOPIC = "orders"
SIDES = ("files", "tasks")


def main() -> int:
    """Make the input, run the sides in turn."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--copies", type=int, default=64)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--side", choices=SIDES)
    options.add_argument("--work")
    options.add_argument("--servers")
    asked = options.parse_args()
    if asked.side:
        return one_side(asked.side, Path(asked.work), asked.copies, asked.servers)
    sys.path.insert(0, str(PROJECT / "tests" / "support"))
    from servers.kafka_broker import Broker

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
                    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                    print(f"{side:<9} {printed.splitlines()[-1]}", flush=True)
        finally:
            broker.stop()
    return 0


def fill(broker: Any, folder: Path) -> None:
    """Put the files' records into a topic."""
    from servers.kafka_support import records_of

    broker.create(TOPIC, 3)
    for path in sorted(folder.iterdir()):
        with path.open("rb") as lines:
            broker.put(TOPIC, records_of(lines))


def one_side(side: str, work: Path, copies: int, servers: str) -> int:
    """Run one side; print its figures and its errors as JSON."""
    spark = build_session(f"bench-{side}")
    target = work / f"{side}-{time.monotonic_ns()}"
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


if __name__ == "__main__":
    raise SystemExit(main())
