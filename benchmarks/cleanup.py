"""Cleanup of a large state of which a tenth has expired, beside a rewrite of all its files in the same run.

Entries of about 100 bytes as a fold of the whole state leaves them, in files of a million rows; no local copies. The expired ones are

- `spread`: over all files;
- `added`: the same, and a twentieth of the entries has a second version in files that were added since the fold;
- `clustered`: in the first tenth of the files, as where keys come and go with time.

Each job runs in a process of its own, on the same files (linked). CPU is the process's, bytes are those of the data files and vectors that
it wrote, the peak is that of its resident memory.
    python benchmarks/cleanup.py [--entries 1000000] [--layouts spread,added,clustered]

The aim: with a tenth expired and spread, a fifth of the rewrite's CPU and bytes; clustered, what is expired.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ebbtide
from ebbtide import InProcess, UpsertPipeline
from ebbtide.columns import entry_table, key_hashes
from ebbtide.delta import DataFile, Snapshot
from ebbtide.ledger import Cause
from ebbtide.operations import Context
from ebbtide.operations._maintenance import deletion
from ebbtide.operations._maintenance.jobs import Cleanup, Compact
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan
from ebbtide.tables._state.layout import BASE

HOUR_MS = 3_600_000
START_MS = 500_000 * HOUR_MS
ROWS_PER_FILE = 1_000_000
EXPIRED = 0.1
SPARK: Any = InProcess(lambda batch_id: START_MS + batch_id)
JOBS = ("rewrite", "cleanup", "compaction")


class Context(Context):
    """Has every part of a job done in this process, one after the other."""

    @property
    def spark(self) -> Any:
        """Stands for a session."""
        return SPARK


def main() -> int:
    """Make the states, run the jobs in turn, print what each took."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--entries", type=int, default=1_000_000)
    options.add_argument("--layouts", default="spread,added,clustered")
    options.add_argument("--jobs", default="rewrite,cleanup")
    options.add_argument("--job", choices=JOBS)
    options.add_argument("--work", type=Path)
    options.add_argument("--folder", type=Path, help="where the tables are made; default: that of temporary files")
    asked = options.parse_args()
    if asked.job:
        print(json.dumps(one_job(asked.job, asked.work)))
        return 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {asked.entries:,} entries", flush=True)
    for layout in asked.layouts.split(","):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            made = Path(folder, "made")
            size = make_state(made, layout, asked.entries)
            print(f"{layout}: {size:,} bytes", flush=True)
            for job in asked.jobs.split(","):
                work = Path(folder, job)
                shutil.copytree(made, work, copy_function=os.link)
                print(f"  {job}: {in_a_process(job, work)}", flush=True)
                shutil.rmtree(work)
    return 0


def in_a_process(job: str, work: Path) -> dict[str, Any]:
    """Run one job in a process of its own, without local copies at first."""
    command = [sys.executable, __file__, "--job", job, "--work", str(work)]
    environment = {**os.environ, "EBBTIDE_CACHE": str(work / "cache")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def pipeline(work: Path) -> UpsertPipeline:
    """Rows by sequence that expire."""
    return UpsertPipeline(
        name="t",
        source={"path": str(work / "in"), "records": "value", "max_files_per_step": 1},
        format={"type": "plain"},
        schema="id BIGINT NOT NULL, v STRING, n BIGINT",
        key=["id"],
        order={"sequence": ["n"]},
        ttl={"ttl": "1h", "expire_live": True},
    )


def put(work: Path, ids: list[int]) -> None:
    """Add a file of changes to the source."""
    folder = work / "in"
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.iterdir()))
    lines = [json.dumps({"kind": "+U", "row": {"id": id_, "v": "w" * 60, "n": 10**9 + number}}) for id_ in ids]
    (folder / f"{number:04d}.jsonl").write_text("".join(line + "\n" for line in lines))


def make_state(work: Path, layout: str, n_entries: int) -> int:
    """Make a pipeline with so many entries; return the bytes of its state."""
    put(work, [-1])
    spec = pipeline(work)
    ebbtide.run(SPARK, spec, str(work), clock=lambda: START_MS)
    ids = np.arange(n_entries)
    if layout != "clustered":
        ids = ids[np.argsort(key_hashes(pa.table({"id": ids}), ["id"]))]
    rng = np.random.default_rng(7)
    with stepping(SPARK, Plan.under(str(work), spec)) as stepper:
        state = stepper.plan.state
        facts = stepper.facts(Cause(what="tick"), stepper.next_clock(START_MS))
        adds = []
        for first in range(0, n_entries, ROWS_PER_FILE):
            own = ids[first : first + ROWS_PER_FILE]
            order = own if layout == "clustered" else rng.permutation(len(own))
            # Stamps of the last hour and of the time before: a tenth of them.
            is_old = own < n_entries * EXPIRED if layout == "clustered" else order < len(own) * EXPIRED
            adds.append(add_rows(state, own, is_old, rng, facts.step, tags=BASE))
        if layout == "added":
            changed = np.array_split(rng.choice(n_entries, n_entries // 20, replace=False), 5)
            none = np.zeros(n_entries, dtype=bool)
            adds += [add_rows(state, part, none[: len(part)], rng, facts.step + 1, tags={}) for part in changed]
        stepper.commit(facts, adds)
        if layout == "added":
            stepper.commit(stepper.facts(Cause(what="tick")), [])
    snapshot = Snapshot.read(state.path)
    return sum(file.size for file in snapshot.files.values()) if snapshot else 0


def add_rows(state: Any, ids: Any, is_old: Any, rng: Any, step: int, tags: Any) -> Any:
    """Write a data file of entries."""
    n_rows = len(ids)
    noise = rng.bytes(n_rows * 30).hex()
    texts = [noise[start : start + 60] for start in range(0, n_rows * 60, 60)]
    stamps_ms = START_MS - rng.integers(0, HOUR_MS - 1, n_rows) - is_old * HOUR_MS
    values = {
        "_entry": pa.array(["row"] * n_rows),
        "id": pa.array(ids),
        "v": pa.array(texts),
        "n": pa.array(ids),
        "_step": pa.array(np.full(n_rows, step)),
        "_removed": pa.array(np.zeros(n_rows, dtype=bool)),
        "_stamp_ms": pa.array(stamps_ms),
    }
    table = entry_table(state.schema, values, n_rows)
    action = DataFile.write(state.path, f"made-{rng.bytes(8).hex()}.parquet", table, bounded=state.bounded)
    action["add"]["tags"] |= tags
    return action


def one_job(job: str, work: Path) -> dict[str, Any]:
    """Run a job; return what it took and came to."""
    spec = pipeline(work)
    if job == "rewrite":
        deletion.REWRITTEN_SHARE = 0.0  # each file that loses a row is rewritten
    table = work / "t" / "state"
    before = {path: path.stat().st_size for path in table.iterdir()}
    start_s, start = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    first_mib = peak_mib()
    operation = Compact() if job == "compaction" else Cleanup()
    report = operation.apply(Context(spec, str(work), SPARK), operation.Params())
    end = resource.getrusage(resource.RUSAGE_SELF)
    written = sum(path.stat().st_size for path in table.iterdir() if path.is_file() and path not in before)
    return {
        "cpu_s": round(end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime, 2),
        "wall_s": round(time.monotonic() - start_s, 2),
        "written_bytes": written,
        "peak_mib": round(peak_mib()),
        "peak_before_mib": round(first_mib),
        "rows_removed": report["rows_removed"],
        "entries": report["entries"],
    }


def peak_mib() -> float:
    """Return the most resident memory of this process so far, MiB."""
    # Not by getrusage, whose figure a process has from the one that started it.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
