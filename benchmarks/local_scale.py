"""A step of 100,000 changes over many rows without a JVM: what it costs beside delta-rs and DuckDB, and what memory the driver holds.

Rows of 100 bytes are read in through the pipeline, 250,000 a step; then come steps of changes, a tenth of them to new keys. Each size,
and each side, is a process of its own. Ours reads JSON lines, and keeps state and a change feed; `decided` is without reading and
decoding, `merged` the sink's commit alone, of decided rows and without the feed: old rows found, new ones written. That is what the
peers do, which get the same changes as decoded Arrow rows, and keep neither. CPU is that of the process: two steps to warm up, the
median of three. Then come single steps in processes of their own: `process` has the local copies, `host` none, and `over` a third of the space
that they need (the second step of such a process). Memory is the process's own (`RssAnon`) and all that is resident, mapped copies among it: the
peak of loading, the peak of the steps, and what is left after them.

With `--keep` the tables stay in the folder: `--load` reads rows in and ends, a later run goes on where an earlier one stopped.

    python benchmarks/local_scale.py [--rows 1000000,3000000] [--changes 100000] [--peers] [--folder /a/large/disk [--keep [--load]]]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
from harness import write_changes
from multiplied import multiply
from scale import ROWS_PER_FILE, row, rows_of

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.delta import Snapshot
from ebbtide.runtime import _reading as reading
from ebbtide.tables._pieces import TableFiles
from ebbtide.tables._upsert import Upserter

SCHEMA = pa.schema(
    [("id", pa.int64()), ("at", pa.int64()), ("name", pa.string()), ("amount", pa.int32()), ("text", pa.string())]
)
MEASURED = 3
NEW_KEYS = 10**9
"""The first of the new keys that steps change: above all stored ones."""
PRINTED_EACH = 1_000_000
"""Loaded rows of a line of progress."""
WARM_UP = 2
"""Steps that do not count: in the second one the compiled loops are loaded."""


LINES = """
    SELECT to_json({kind: '+U', 'row': {
        id: key, 'at': 0, name: 'name-' || key * 7919 % 1000003, amount: key % 9973, text: repeat(format('{:x}/0', key), 4)
    }})::VARCHAR AS line FROM range(?, ?) AS keys(key)
"""


def main() -> None:
    """Run each size and side in a process of its own."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", default="1000000,3000000")
    options.add_argument("--changes", type=int, default=100_000)
    options.add_argument("--peers", action="store_true")
    options.add_argument("--folder", help="folder for the tables; default: the system's temporary one")
    options.add_argument(
        "--keep",
        action="store_true",
        help="the folder is that of the tables, which stay: more rows go to those that are there",
    )
    options.add_argument("--load", action="store_true", help="read the rows in, and no more")
    options.add_argument(
        "--read", type=int, help="with --load: rows to read in; the rest is stored without; default: all"
    )
    options.add_argument("--side", choices=SIDES)
    options.add_argument("--at", help="folder of the tables of a further process")
    options.add_argument("--numbers", default="")
    asked = options.parse_args()
    if asked.at:
        numbers = [int(number) for number in asked.numbers.split(",")]
        print(json.dumps([step(Path(asked.at), int(asked.rows), asked.changes, number) for number in numbers]))
        return
    if asked.side:
        with folder_of(asked) as work:
            os.environ["EBBTIDE_CACHE"] = f"{work}/cache"
            if asked.load:
                rows = int(asked.rows)
                load(work, min(asked.read or rows, rows))
                multiply_to(work, rows)
                print(json.dumps(memory_mib()))
                return
            print(json.dumps(SIDES[asked.side](work, int(asked.rows), asked.changes)))
        return
    for rows in asked.rows.split(","):
        for side in SIDES if asked.peers else ["ebbtide"]:
            command = [sys.executable, __file__, "--side", side, "--rows", rows, "--changes", str(asked.changes)]
            command += ["--folder", asked.folder] if asked.folder else []
            command += ["--keep"] if asked.keep else []
            command += ["--load"] if asked.load else []
            command += ["--read", str(asked.read)] if asked.read else []
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            print(
                f"{int(rows):>12,} rows, {side}: {printed.splitlines()[-1]}, load {os.getloadavg()[0]:.1f}", flush=True
            )


@contextlib.contextmanager
def folder_of(asked: argparse.Namespace) -> Iterator[Path]:
    """Yield the folder of the tables, deleted afterwards unless it is to be kept."""
    if asked.keep:
        yield Path(asked.folder)
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as work:
        yield Path(work)


def changes_of(stored: int, n_changes: int, number: int) -> list[dict[str, Any]]:
    """Return the rows of a step, different keys in random order."""
    chance = random.Random(number)
    n_new = n_changes // 10
    first_new = NEW_KEYS + number * n_new
    keys = [chance.randrange(stored) for _ in range(n_changes - n_new)] + list(range(first_new, first_new + n_new))
    chance.shuffle(keys)
    return [row(key, at=number + 1) for key in dict.fromkeys(keys)]


def pipeline(work: Path) -> UpsertPipeline:
    """Return the pipeline."""
    source = {"path": str(work / "in"), "records": "value", "max_files_per_step": 1}
    columns = "id BIGINT NOT NULL, at BIGINT, name STRING, amount INT, text STRING"
    order = {"sequence": ["at"]}
    return UpsertPipeline(
        name="t", schema=columns, key=["id"], source=source, format={"type": "plain"}, order=order, ttl=None
    )


def step(work: Path, stored: int, n_changes: int, number: int) -> float:
    """Make a step of changes; return its CPU seconds."""
    write_changes(work / "in" / f"9{number:05d}.jsonl", changes_of(stored, n_changes, number))
    start = time.process_time()
    run(InProcess(), pipeline(work), str(work))
    return round(time.process_time() - start, 2)


def elsewhere(work: Path, stored: int, n_changes: int, *numbers: int, cache_bytes: int | None = None) -> list[float]:
    """Make steps in a process of its own; return the CPU seconds of each."""
    command = [sys.executable, __file__, "--at", str(work), "--rows", str(stored), "--changes", str(n_changes)]
    command += ["--numbers", ",".join(map(str, numbers))]
    allowed = {} if cache_bytes is None else {"EBBTIDE_CACHE_BYTES": str(cache_bytes)}
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **allowed}
    ).stdout
    costs: list[float] = json.loads(printed.splitlines()[-1])
    return costs


def ours(work: Path, stored: int, n_changes: int) -> dict[str, Any]:
    """Measure Ebbtide's local engine."""
    load(work, stored)
    found: dict[str, Any] = {"loading": memory_mib()}
    decoding = timed(reading, "stage")
    merging, feeding = timed(Upserter, "apply_pieces"), timed(TableFiles, "write_images")
    forget_peak()
    costs, decided, merged = [], [], []
    expected = {}
    for number in range(WARM_UP + MEASURED):
        for seconds in (decoding, merging, feeding):
            seconds.clear()
        costs.append(step(work, stored, n_changes, number))
        decided.append(costs[-1] - sum(decoding))
        merged.append(sum(merging) - sum(feeding))
    found["steps"] = memory_mib()
    gc.collect()
    pa.default_memory_pool().release_unused()
    found["left"] = memory_mib()
    last = WARM_UP + MEASURED
    [process] = elsewhere(work, stored, n_changes, last)
    need = sum(path.stat().st_size for path in (work / "cache").iterdir())
    shutil.rmtree(work / "cache")
    [host] = elsewhere(work, stored, n_changes, last + 1)
    over = elsewhere(work, stored, n_changes, last + 2, last + 3, last + 4, cache_bytes=need // 3)
    found |= {"process": process, "host": host, "over": over, "copies_mib": need >> 20}
    for number in range(last + 5):
        expected |= {each["id"]: each["at"] for each in changes_of(stored, n_changes, number)}
    snapshot = Snapshot.read(str(work / "t" / "sink"))
    sink = snapshot.rows(SCHEMA).select(["id", "at"]) if snapshot else SCHEMA.empty_table()
    shown = dict(zip(sink["id"].to_pylist(), sink["at"].to_pylist(), strict=True))
    n_wrong = sum(shown.get(key) != at for key, at in expected.items())
    cpu_s = {"cpu_s": median(costs), "decided_cpu_s": median(decided), "merged_cpu_s": median(merged)}
    return {**cpu_s, "steps_cpu_s": costs, "wrong": n_wrong, **found}


def load(work: Path, stored: int) -> None:
    """Read rows in through the pipeline, from where an earlier process stopped; print what each million of them costs."""
    spec = pipeline(work)
    loaded = work / "loaded"
    begin = int(loaded.read_text()) if loaded.exists() else 0
    spent = 0.0
    for first in range(begin, stored, ROWS_PER_FILE):
        number = first // ROWS_PER_FILE
        read = work / "in" / f"{number:06d}.jsonl"
        n_rows = min(ROWS_PER_FILE, stored - first)
        write_rows(read, first, n_rows)
        start = time.process_time()
        run(InProcess(), spec, str(work))
        spent += time.process_time() - start
        read.unlink()
        end = first + n_rows
        loaded.write_text(str(end))
        if end % PRINTED_EACH == 0:
            print(f"{end:>12,} rows loaded, CPU s {spent:.1f}, MiB {memory_mib()}", file=sys.stderr, flush=True)
            spent = 0.0


def multiply_to(work: Path, stored: int) -> None:
    """Store the rows that are left, if any, without reading them in."""
    loaded = work / "loaded"
    begin = int(loaded.read_text())
    if begin >= stored:
        return
    start = time.process_time()
    multiply(work, pipeline(work), begin, stored)
    loaded.write_text(str(stored))
    spent = round(time.process_time() - start, 1)
    print(f"{stored:>12,} rows stored, CPU s {spent}, MiB {memory_mib()}", file=sys.stderr, flush=True)


def write_rows(path: Path, first: int, n_rows: int) -> None:
    """Write the rows that `rows_of` has as JSON lines, faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = duckdb.sql(LINES, params=[first, first + n_rows]).to_arrow_table()["line"].to_pylist()
    unfinished = path.parent.parent / f"{path.name}.tmp"
    unfinished.write_text("\n".join(lines) + "\n")
    unfinished.rename(path)


def by_delta_rs(work: Path, stored: int, n_changes: int) -> dict[str, Any]:
    """Measure the merge of delta-rs."""
    table = str(work / "table")
    deltalake.write_deltalake(table, pa.Table.from_pylist(list(rows_of(0, stored)), SCHEMA))

    def merge(changes: pa.Table) -> None:
        merging = deltalake.DeltaTable(table).merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    return cost_of(merge, stored, n_changes)


def by_duckdb(work: Path, stored: int, n_changes: int) -> dict[str, Any]:
    """Measure the upsert of DuckDB by a primary key, into a file of its own."""
    connection = duckdb.connect(str(work / "t.db"), config={"threads": 2})
    rows = pa.Table.from_pylist(list(rows_of(0, stored)), SCHEMA)
    connection.register("rows", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM rows")
    connection.execute("ALTER TABLE t ADD PRIMARY KEY (id)")

    def upsert(changes: pa.Table) -> None:
        connection.register("changes", changes)
        connection.execute("INSERT OR REPLACE INTO t SELECT * FROM changes")
        connection.execute("CHECKPOINT")

    return cost_of(upsert, stored, n_changes)


def cost_of(apply: Callable[[pa.Table], None], stored: int, n_changes: int) -> dict[str, Any]:
    """Return the CPU seconds that a peer takes for the changes of a step."""
    costs = []
    for number in range(WARM_UP + MEASURED):
        changes = pa.Table.from_pylist(changes_of(stored, n_changes, number), SCHEMA)
        start = time.process_time()
        apply(changes)
        costs.append(time.process_time() - start)
    return {"cpu_s": median(costs)}


def median(costs: list[float]) -> float:
    """Return the median of the steps that count."""
    return round(statistics.median(costs[WARM_UP:]), 2)


def timed(module: Any, name: str) -> list[float]:
    """Wrap a function; return the list that its CPU seconds are added to."""
    function = getattr(module, name)
    seconds: list[float] = []

    def wrapped(*given: Any, **options: Any) -> Any:
        start = time.process_time()
        try:
            return function(*given, **options)
        finally:
            seconds.append(time.process_time() - start)

    setattr(module, name, wrapped)
    return seconds


def memory_mib() -> dict[str, int]:
    """Return what this process holds, MiB: its own, all that is resident, and the most of that since it was forgotten."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    names = {"own": "RssAnon", "resident": "VmRSS", "peak": "VmHWM"}
    return {name: int(fields[field].split()[0]) // 1024 for name, field in names.items()}


def forget_peak() -> None:
    """Let the peak begin again at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


SIDES: dict[str, Callable[[Path, int, int], dict[str, Any]]] = {
    "ebbtide": ours,
    "delta-rs": by_delta_rs,
    "duckdb": by_duckdb,
}

if __name__ == "__main__":
    main()
