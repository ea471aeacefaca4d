"""What the log of a large table costs: tables whose logs name up to 20,000 files, as those of 10 billion rows do; the files are empty.

The actions are those of a pipeline's sink after a step, under other names. Each size: a commit that gives each file another vector, as a step of
changes to random keys does; a read of the log by a process that knows no version of it; a
checkpoint, which comes with each hundredth version; and a read that begins with it. CPU seconds and bytes.

    python benchmarks/large_log.py [--files 100,1000,10000,20000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import write_changes
from multiplied import commit, snapshot_of
from scale import pipeline, row

from ebbtide import InProcess, run
from ebbtide.delta import Action, DataFile, Snapshot
from ebbtide.delta._data_file import new_name
from ebbtide.ledger import writer_of

STORED, CHANGED = 20_000, 5_000


def main() -> None:
    """Print a line for each number of files."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--files", default="100,1000,10000,20000")
    options.add_argument("--read", help="read the log of a table, and print the CPU seconds")
    asked = options.parse_args()
    if asked.read:
        print(timed(lambda: Snapshot.read(asked.read)))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for n_files in map(int, asked.files.split(",")):
        with tempfile.TemporaryDirectory() as work:
            print(json.dumps({"files": n_files} | costs(Path(work), n_files)), flush=True)


def costs(work: Path, n_files: int) -> dict[str, float]:
    """Return what a log of so many files costs, and its bytes."""
    table = made(work)
    template = next(file for file in snapshot_of(table).files.values() if file.vector)
    adds = [{"add": {**template.add, "path": new_name({})}} for _ in range(n_files)]
    for each in adds:
        (Path(table) / each["add"]["path"]).touch()
    commit(table, adds)
    changes = of_a_step(snapshot_of(table))
    found = {"commit_cpu_s": timed(lambda: commit(table, changes))}
    log = Path(table) / "_delta_log"
    found["commit_bytes"] = (log / f"{snapshot_of(table).version:020d}.json").stat().st_size
    found["read_cpu_s"] = read_elsewhere(table)
    found["checkpoint_cpu_s"] = timed(lambda: writer_of(table).trim_log(table))
    found["checkpoint_bytes"] = sum(path.stat().st_size for path in log.rglob("*.parquet"))
    found["read_of_checkpoint_cpu_s"] = read_elsewhere(table)
    return found


def made(work: Path) -> str:
    """Make a pipeline's tables in two steps; return the sink, whose file has a vector then."""
    spec = pipeline(work)
    for number, n_rows in enumerate((STORED, CHANGED)):
        write_changes(work / "in" / f"{number}.jsonl", (row(key, at=number) for key in range(n_rows)))
        run(InProcess(), spec, str(work))
    return str(work / spec.name / "sink")


def of_a_step(snapshot: Snapshot) -> list[Action]:
    """Return the actions that give each file another vector."""
    changed = [(file, file.vector) for file in snapshot.files.values() if file.vector]
    adds = [file.with_vector({**vector, "offset": vector["offset"] + 1}, data_change=True) for file, vector in changed]
    return DataFile.replacing([file for file, _ in changed], adds)


def read_elsewhere(table: str) -> float:
    """Return the CPU seconds that a process takes to read the log."""
    read = [sys.executable, __file__, "--read", table]
    return float(subprocess.run(read, check=True, stdout=subprocess.PIPE, text=True).stdout)


def timed(work: Callable[[], object]) -> float:
    """Return the CPU seconds that work takes."""
    begin = time.process_time()
    work()
    return round(time.process_time() - begin, 3)


if __name__ == "__main__":
    main()
