"""State access without Spark: the stores heap and rocksdb beside those of the real Flink.

Both sides play the same case, in the format of docs/reference/replay.md: JSON in, JSON out, one process each. A visit to a random key is one
read and one write: of a value `get` and `update`; of a map `put`, and `get` of what the key's last visit put, 8 user keys in turn;
of a list `add` and `get`, every 8th write an `update` that leaves one element. A visit takes 1 ms, and an entry lives for twice as
many ms as there are keys (at least 1,000), so that of many keys some have expired when they are read. Both must answer the same.

    python benchmarks/state_stores.py [--accesses 200000] [--keys 1,10000] [--flink PATH/run]

`--flink` names the command that starts the peer: it takes `oracle-ttl --backend heap|rocksdb --cases`, cases on standard input.
Without it only our side is run.

CPU is that of the whole process tree, less that of a run with a single visit: starting does not count; JSON does, and so does what
the JVM compiles on the way, which is why the peer's rate grows with `--accesses`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from naive_merge import tree_cpu_s

KINDS = ("value", "list", "map")
STORES = ("heap", "rocksdb")
ELEMENTS = 8
LEAST = 50_000
STARTS = 3
"""So many starts are measured, and the median is taken."""


def main() -> int:
    """Make the cases, run the sides in turn, print accesses per CPU second."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--accesses", type=int, default=200_000)
    options.add_argument("--keys", default="1,10000")
    options.add_argument("--flink", type=Path)
    asked = options.parse_args()
    if asked.accesses < LEAST:
        options.error(f"--accesses is {asked.accesses}; allowed: {LEAST} or more, else starting decides")
    print(f"{asked.accesses} accesses, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    if asked.flink:
        played(peer(asked.flink, "heap"), case("value", 1, 1))  # it may have to build itself first
    for store in STORES:
        sides = {"ebbtide": [str(Path(sys.executable).with_name("ebbtide")), "replay", "ttl", "--store", store]}
        if asked.flink:
            sides["flink"] = peer(asked.flink, store)
        starts = {
            side: statistics.median(played(command, case("value", 1, 1))[0] for _ in range(STARTS))
            for side, command in sides.items()
        }
        print(f"{store}: {', '.join(f'{side} starts in {cpu:.2f} CPU s' for side, cpu in starts.items())}", flush=True)
        for kind in KINDS:
            for keys in map(int, asked.keys.split(",")):
                each = case(kind, asked.accesses // 2, keys)
                results = {side: played(command, each) for side, command in sides.items()}
                rates = {side: asked.accesses / (cpu - starts[side]) for side, (cpu, _) in results.items()}
                print(
                    f"{store}, {kind}, {keys} keys: "
                    + ", ".join(f"{side} {rate:,.0f} accesses per CPU s" for side, rate in rates.items())
                    + (f", {rates['ebbtide'] / rates['flink']:.2f} times" if asked.flink else ""),
                    flush=True,
                )
                if len({json.dumps(answers, sort_keys=True) for _, answers in results.values()}) > 1:
                    print("The answers differ.", file=sys.stderr)
                    return 1
    return 0


def peer(command: Path, store: str) -> list[str]:
    """Return the peer's command line."""
    return [str(command), "oracle-ttl", "--backend", store, "--cases"]


def case(kind: str, visits: int, keys: int) -> dict[str, Any]:
    """Make a case of so many visits to random keys."""
    config = {"ttl": max(1000, 2 * keys), "update": "OnCreateAndWrite", "visibility": "NeverReturnExpired"}
    return {"name": f"{kind} over {keys}", "config": config, "script": list(script(kind, visits, keys))}


def script(kind: str, visits: int, keys: int) -> Iterator[dict[str, Any]]:
    """Make the lines: two a visit."""
    rng, seen = random.Random(7), Counter[int]()
    for n in range(visits):
        key = rng.randrange(keys)
        turn = seen[key] % ELEMENTS
        seen[key] += 1
        at = {"time": n, "key": str(key), "state": kind}
        if kind == "value":
            yield at | {"op": "get"}
            yield at | {"op": "update", "v": n}
        elif kind == "map":
            yield at | {"op": "put", "k": str(turn), "v": n}
            yield at | {"op": "get", "k": str((turn - 1) % ELEMENTS)}
        else:
            yield at | ({"op": "add", "v": n} if turn else {"op": "update", "v": [n]})
            yield at | {"op": "get"}


def played(command: list[str], each: dict[str, Any]) -> tuple[float, list[dict[str, Any]]]:
    """Let one side play a case; return its CPU seconds and its answers."""
    with tempfile.TemporaryDirectory() as work:
        cases, answers = Path(work, "case.jsonl"), Path(work, "answers.jsonl")
        cases.write_text(json.dumps(each) + "\n", encoding="utf-8")
        with cases.open() as given, answers.open("w") as printed:
            before = tree_cpu_s()
            subprocess.run(command, check=True, stdin=given, stdout=printed, stderr=subprocess.DEVNULL)
            cpu = tree_cpu_s() - before
        line = json.loads(answers.read_text(encoding="utf-8"))
        return cpu, line["output"] if "output" in line else line["expected"]


if __name__ == "__main__":
    sys.exit(main())
