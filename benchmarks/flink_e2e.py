"""A changelog from files into a table, ours beside Flink's own SQL job, in one run.

A retraction changelog in order of arrival: updates whose retraction overtakes the new row, or comes late, rows of 200 bytes, 100,000
text keys. Flink reads it with its filesystem source, materializes it on its heap (ADAPTIVE) and writes an upsert sink, in one warm
JVM; ours is one pipeline by the local engine and on Spark, commits and folds included, each in a warm process. All tables are compared with
a fold in plain Python.

    python benchmarks/flink_e2e.py --flink PATH/run [--engines local,spark] [--records 2000000] [--rounds 1] [--steps 8] [--iterations 2]

`--flink` names the command that starts the peer: it takes `e2e --in FILE --backend heap --strategy ADAPTIVE --sink table --out FILE
--iterations N`, and prints a JSON line for each iteration; the last one counts. With `--steps` each step reads one file; else the
product cuts them. The aim: 1.3 times Flink's records per CPU second by the local engine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness import tree_cpu_s

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.delta import Snapshot
from ebbtide.sessions import build_session

KEYS = 100_000
WARM_RECORDS = 200_000
FILES = 8
"""Files that a step reads at once: what Spark's tasks share."""
Record = dict[str, str]


def main() -> int:
    """Make the changelog, run both sides in turn, print the ratios."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--flink", type=Path)
    options.add_argument("--records", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--steps", type=int)
    options.add_argument("--iterations", type=int, default=2, help="of Flink's job in one JVM")
    options.add_argument("--engines", default="local,spark")
    options.add_argument("--work", type=Path)
    asked = options.parse_args()
    engines = asked.engines.split(",")
    if asked.work:
        print(json.dumps(ours(asked.work, *engines, each_file=bool(asked.steps))))
        return 0
    print(f"{asked.records} records, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        make_input(work, asked.records, asked.steps or FILES)
        steps = ["--steps", str(asked.steps)] if asked.steps else []
        for _ in range(asked.rounds):
            speeds = {}
            for engine in engines:
                own = json.loads(last_line([sys.executable, __file__, "--work", folder, "--engines", engine, *steps]))
                print(f"{engine} {json.dumps(own)}, load {os.getloadavg()[0]:.1f}", flush=True)
                speeds[engine] = own["records_per_cpu_s"]
            if not asked.flink:
                continue
            theirs = flink(asked.flink, work, asked.iterations)
            print(f"flink {json.dumps(theirs)}, load {os.getloadavg()[0]:.1f}", flush=True)
            for engine, speed in speeds.items():
                print(f"{engine} / flink = {speed / theirs['records_per_cpu_s']:.2f}", flush=True)
    return 0


def make_input(work: Path, n_records: int, n_files: int) -> None:
    """Write the changelog: in one file for Flink; in files for ours, those of the warm-up apart."""
    with (work / "all.jsonl").open("w") as whole:
        for record in itertools.islice(changelog(), n_records):
            whole.write(json.dumps(record) + "\n")
    for name, seed, n in (("warm", 2, WARM_RECORDS), ("in", 1, n_records)):
        (work / name).mkdir()
        records = itertools.islice(changelog(seed), n)
        for number in range(n_files):
            with (work / name / f"{number:04d}.jsonl").open("w") as part:
                for record in itertools.islice(records, -(-n // n_files)):
                    part.write(json.dumps(record) + "\n")


def changelog(seed: int = 1) -> Iterator[Record]:
    """Yield records without end: a tenth of the rows is deleted, the others are replaced, early or late."""
    chance = random.Random(seed)
    live: dict[int, list[tuple[str, str]]] = {}
    late: list[tuple[int, Record]] = []
    at = 0
    for serial in itertools.count():
        key = chance.randrange(KEYS)
        rows = live.setdefault(key, [])
        row = (str(serial), f"{serial:010d}" + "x" * 190)
        changes = [("+U" if rows else "+I", row, 0)]
        if rows and chance.random() < 0.9:
            old = rows.pop(chance.randrange(len(rows)))
            is_deleted = chance.random() < 0.1
            changes = [("-D" if is_deleted else "-U", old, chance.choice([0, 0, 3, 20])), *changes]
        rows.append(row)
        for kind, (upsert_key, text), delay in changes:
            record = {"op": kind, "key": f"key-{key}", "uk": upsert_key, "row": text}
            if delay:
                late.append((at + delay, record))
                continue
            at += 1
            yield record
        if len(late) > 30:
            due = [record for when, record in late if when <= at]
            late = [(when, record) for when, record in late if when > at]
            at += len(due)
            yield from due


def pipeline(source: Path, name: str, **limits: int) -> UpsertPipeline:
    """Return our pipeline; the limits are those of its source."""
    return UpsertPipeline(
        name=name,
        schema="key STRING NOT NULL, uk STRING, row STRING",
        key=["key"],
        source={"path": str(source), "records": "value", **limits},
        format={"type": "plain", "row": None, "kind": "op"},
        order="arrival",
        ttl=None,
    )


def ours(work: Path, engine: str, *, each_file: bool) -> dict[str, Any]:
    """Run ours; return what it cost once warm, and how many rows are wrong."""
    spark = InProcess() if engine == "local" else build_session("bench-e2e")
    root = tempfile.mkdtemp(dir=work)
    os.environ["EBBTIDE_CACHE"] = f"{root}/cache"
    run(spark, pipeline(work / "warm", "warm"), root)
    limits = {"max_files_per_step": 1} if each_file else {}
    steps = []
    start = tree_cpu_s()
    run(spark, pipeline(work / "in", "e2e", **limits), root, on_progress=steps.append)
    cpu_s = tree_cpu_s() - start
    n_records = sum(step.records for step in steps)
    sink = Snapshot.read(f"{root}/e2e/sink")
    columns = pa.schema(dict.fromkeys(("key", "uk", "row"), pa.string()))
    rows = sink.rows(columns).to_pylist() if sink else []
    found = {row["key"]: (row["uk"], row["row"]) for row in rows}
    return {
        "records": n_records,
        "steps": len(steps),
        "cpu_s": round(cpu_s, 2),
        "records_per_cpu_s": round(n_records / cpu_s),
        "wrong": differences(found, folded(work)),
    }


def flink(command: Path, work: Path, iterations: int) -> dict[str, Any]:
    """Run the peer several times in one JVM; return the last, warm iteration, and how many rows are wrong."""
    out = work / "final.csv"
    asked = ["e2e", "--in", str(work / "all.jsonl"), "--backend", "heap", "--strategy", "ADAPTIVE"]
    asked += ["--sink", "table", "--out", str(out), "--iterations", str(iterations)]
    return dict(json.loads(last_line([str(command), *asked])))


def last_line(command: list[str]) -> str:
    """Run a command; return the last line that it prints."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.splitlines()[-1]


def folded(work: Path) -> dict[str, tuple[str, str]]:
    """Return the row of each key by a plain fold in order of arrival."""
    live: dict[str, list[tuple[str, str]]] = {}
    with (work / "all.jsonl").open() as lines:
        for record in map(json.loads, lines):
            rows = live.setdefault(record["key"], [])
            row = (record["uk"], record["row"])
            if record["op"] in ("+I", "+U"):
                rows.append(row)
            elif row in rows:
                rows.remove(row)
    return {key: rows[-1] for key, rows in live.items() if rows}


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> int:
    """Count the keys of which two tables differ."""
    return sum(found.get(key) != wanted.get(key) for key in found.keys() | wanted.keys())


if __name__ == "__main__":
    sys.exit(main())
