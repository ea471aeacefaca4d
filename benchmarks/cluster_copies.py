"""Scale out: steps on clusters of one to eight hosts of one core, each host with disks of its own.

Rows are stored first, by as many tasks as the largest cluster has, and folded. Then steps of changes to random keys, a tenth of them new, are
decided and published by tasks: the first finds no local copies (cold), later ones those of earlier steps (warm); in the end one host is
replaced by one with empty disks. The critical path is the CPU of the host that has used the most: where hosts have cores of their own, a step
takes no longer than that and the driver. Processes of hosts are started before. The same steps are made in one process first, without Spark.

    python benchmarks/cluster_copies.py [--rows 1000000] [--changes 200000] [--hosts 1,2,4,8]

With several numbers of changes, `--changes 100000,1000000`, warm steps are made of each; the cold ones have the first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import write_changes
from local_scale import NEW_KEYS, write_rows
from scale import ROWS_PER_FILE, pipeline, row

from ebbtide import InProcess, run
from ebbtide.executors import Executor
from ebbtide.operations import maintain

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from clusters.spark_cluster import Cluster, Driver, cluster, written_spec

WARM = 3
FILES_OF_STEP = 4
NEW = "one host new"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run on each number of hosts; print a line for each step."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--changes", default="200000")
    options.add_argument("--hosts", default="1,2,4,8")
    asked = options.parse_args()
    sizes = [int(size) for size in asked.hosts.split(",")]
    changes = [int(number) for number in asked.changes.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "stored"
        store(stored, asked.rows, max(sizes))
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {bytes_of(stored)} bytes of tables", flush=True)
        os.environ["EBBTIDE_CACHE"] = str(Path(folder) / "cache")
        work = Path(folder) / "local"
        shutil.copytree(stored, work, copy_function=linked)
        locally(work, asked.rows, changes)
        shutil.rmtree(work)
        shutil.rmtree(Path(folder) / "cache")
        for n_hosts in sizes:
            work = Path(folder) / f"{n_hosts} hosts"
            shutil.copytree(stored, work, copy_function=linked)
            measured(work, asked.rows, changes, n_hosts)
            shutil.rmtree(work)
    return 0


def linked(source: str, target: str) -> None:
    """Copy a file; one of a table's rows, which is never written to, as a further name."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def store(work: Path, rows: int, n_tasks: int) -> None:
    """Store rows and fold them, as a compaction leaves them."""
    spec = pipeline(work)
    executor: Any = InProcess(threads=n_tasks)
    little_bytes, Executor.LITTLE_BYTES = Executor.LITTLE_BYTES, sys.maxsize
    for number, first in enumerate(range(0, rows, ROWS_PER_FILE)):
        read = work / "in" / f"0{number:03d}.jsonl"
        write_rows(read, first, min(ROWS_PER_FILE, rows - first))
        if (number + 1) % FILES_OF_STEP == 0 or first + ROWS_PER_FILE >= rows:
            run(executor, spec, str(work))
            for each in (work / "in").iterdir():
                each.unlink()
    maintain(executor, spec, str(work), "compaction")
    Executor.LITTLE_BYTES = little_bytes


def locally(work: Path, stored: int, changes: list[int]) -> None:
    """Make the steps in this process, in threads; print what each costs."""
    spec = pipeline(work.parent / "stored")
    source = Path(spec.source.path)
    chance = random.Random(5)
    for number, (name, n_changes) in enumerate(steps_of(changes)):
        n_written = write_step(source, f"0{number:03d}", chance, stored, n_changes, number)
        begin = time.monotonic(), time.process_time()
        run(InProcess(), spec, str(work))
        cpu_s, wall_s = time.process_time() - begin[1], time.monotonic() - begin[0]
        found = {"local": name, "changes": n_written, "cpu_s": round(cpu_s, 2)}
        print(json.dumps(found | {"wall_s": round(wall_s, 1)}), flush=True)
    for change in source.glob("00*-?.jsonl"):
        change.unlink()


def steps_of(changes: list[int]) -> list[tuple[str, int]]:
    """Return the name of each step, and the number of its changes."""
    return [("cold", changes[0]), *(("warm", n_changes) for n_changes in changes for _ in range(WARM))]


def write_step(source: Path, name: str, chance: random.Random, stored: int, n_changes: int, number: int) -> int:
    """Write the changes of a step, a tenth of them to new keys; return their number."""
    keys = list(dict.fromkeys(chance.randrange(stored) for _ in range(n_changes * 9 // 10)))
    first_new = NEW_KEYS + number * n_changes
    keys += range(first_new, first_new + n_changes // 10)
    changes = [row(key, at=number + 1) for key in keys]
    for part in range(4):  # as many as a step of this pipeline reads
        write_changes(source / f"{name}-{part}.jsonl", changes[part::4])
    return len(keys)


def measured(work: Path, stored: int, changes: list[int], n_hosts: int) -> None:
    """Make steps, and print what each costs the hosts and the driver."""
    # The same location in each process: a source that has moved is refused.
    spec = pipeline(work.parent / "stored")
    source = Path(spec.source.path)
    chance = random.Random(5)
    with cluster(work, n_hosts) as running:
        driver = Driver(work, running.address, "nobody")
        folder = written_spec(work / "spec", spec)
        start_all(running, driver, folder)
        steps = steps_of(changes)
        if n_hosts > 1:
            steps.append((NEW, changes[0]))
        for number, (name, n_changes) in enumerate(steps):
            if name == NEW:
                running.workers[0].kill()
                running.replace_dead()
                start_all(running, driver, folder)
            n_written = write_step(source, f"{n_hosts}{number:03d}", chance, stored, n_changes, number)
            before, driver_before, begin = used(running), cpu_s_of_tree(driver.pid), time.monotonic()
            driver.do("run", folder, work)
            wall_s = time.monotonic() - begin
            after = used(running)
            cpu_of_hosts = [after[host][0] - before[host][0] for host in after]
            found = {
                "hosts": n_hosts,
                "step": name,
                "changes": n_written,
                "cpu_s": round(sum(cpu_of_hosts), 2),
                "critical_path_s": round(max(cpu_of_hosts), 2),
                "driver_cpu_s": round(cpu_s_of_tree(driver.pid) - driver_before, 2),
                "wall_s": round(wall_s, 1),
                "copies_mb_of_hosts": [round(n_bytes / 1e6) for _, n_bytes in after.values()],
            }
            print(json.dumps(found), flush=True)
        driver.close()
    for change in source.glob(f"{n_hosts}*.jsonl"):  # the other roots are not to read them
        change.unlink()


def start_all(running: Cluster, driver: Driver, spec: Path) -> None:
    """Wait until each host has its processes: their start is no part of a step."""
    hosts = sorted(worker.host for worker in running.workers)
    while driver.do("load_workers", spec, spec)["done"] != hosts:
        pass


def used(running: Cluster) -> dict[str, tuple[float, int]]:
    """Return for each host the CPU seconds of its processes so far, and the bytes of its copies."""
    return {
        worker.host: (cpu_s(worker.process.pid), sum(copy.stat().st_size for copy in worker.copies()))
        for worker in running.workers
    }


def cpu_s(session: int) -> float:
    """Return the CPU seconds of the processes of a session, with those of their children that have ended."""
    return sum(ticks for _, of, ticks in processes() if of == session) / TICKS


def cpu_s_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and of all that it has started."""
    tree = {root}
    found = {pid: (parent, ticks) for pid, parent, ticks in processes(by="parent")}
    while more := {pid for pid, (parent, _) in found.items() if parent in tree} - tree:
        tree |= more
    return sum(ticks for pid, (_, ticks) in found.items() if pid in tree) / TICKS


def processes(by: str = "session") -> list[tuple[int, int, int]]:
    """Return each process: its id, its session or parent, and its ticks of CPU with those of its children that have ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = process.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        of = int(fields[3 if by == "session" else 1])
        found.append((int(process.parent.name), of, sum(map(int, fields[11:15]))))
    return found


def bytes_of(folder: Path) -> int:
    """Return the bytes of the data files of tables."""
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


if __name__ == "__main__":
    sys.exit(main())
