"""What syncing to disk costs: a run of small steps and one of large steps of the local engine, each with syncs and with `EBBTIDE_FSYNC=off`, in turns.

    python benchmarks/durability.py FOLDER [--rounds 3] [--steps 20] [--large 100000]

FOLDER is on the disk that is asked about. Each line is the median of the steps of all rounds; the first two steps, which make tables and local copies, are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import ebbtide
from ebbtide import UpsertPipeline
from ebbtide.environment import CACHE, FSYNC
from ebbtide.runtime import StepProgress

WARM_UP = 2
KEYS = 200_000


@dataclass
class Costs:
    """Costs of steps.

    Args:
        wall_ms: Milliseconds of each step.
        cpu_ms: Of the process's.
        syncs: Its calls of fsync.
    """

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)

    def medians(self) -> dict[str, float]:
        """Return the median of each."""
        return {name: round(statistics.median(values), 1) for name, values in vars(self).items()}


def main() -> int:
    """Run, and print a line for each size and switch."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--large", type=int, default=100_000)
    asked = options.parse_args()
    os.environ[CACHE.name] = str(asked.folder / "copies")
    for n_changes, n_steps in ((20, asked.steps), (asked.large, 4)):
        costs = {switch: Costs() for switch in ("on", "off")}
        for _ in range(asked.rounds):
            for switch, cost in costs.items():
                os.environ[FSYNC.name] = switch
                measure(asked.folder / "run", n_changes, WARM_UP + n_steps, cost)
        for switch, cost in costs.items():
            print(json.dumps({"changes": n_changes, "fsync": switch, **cost.medians()}), flush=True)
    return 0


def measure(folder: Path, n_changes: int, n_steps: int, costs: Costs) -> None:
    """Make a run of one file a step, and add what its steps cost."""
    shutil.rmtree(folder, ignore_errors=True)
    source = folder / "in"
    source.mkdir(parents=True)
    for step in range(n_steps):
        lines = [json.dumps(_change(step * n_changes + number)) for number in range(n_changes)]
        (source / f"{step:04d}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = UpsertPipeline(
        name="shop",
        source={"path": str(source), "records": "value", "max_files_per_step": 1},
        format={"type": "plain"},
        schema="id BIGINT, v STRING, n BIGINT",
        key=["id"],
        order={"sequence": ["n"]},
    )
    n_syncs = 0
    fsync = os.fsync

    def counted(handle: int) -> None:
        nonlocal n_syncs
        n_syncs += 1
        fsync(handle)

    seen: list[tuple[float, float, int]] = []

    def note(_: StepProgress) -> None:
        seen.append((time.perf_counter(), time.process_time(), n_syncs))

    os.fsync = counted
    try:
        ebbtide.run(ebbtide.InProcess(), spec, str(folder / "root"), on_progress=note)
    finally:
        os.fsync = fsync
    for before, after in zip(seen[WARM_UP - 1 :], seen[WARM_UP:n_steps], strict=False):
        costs.wall_ms.append((after[0] - before[0]) * 1000)
        costs.cpu_ms.append((after[1] - before[1]) * 1000)
        costs.syncs.append(after[2] - before[2])
    shutil.rmtree(folder)


def _change(number: int) -> dict[str, object]:
    row = {"id": number * 7919 % KEYS, "v": f"value {number}", "n": number}
    return {"kind": "+U", "row": row}


if __name__ == "__main__":
    raise SystemExit(main())
