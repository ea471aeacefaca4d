"""FLIP-544's benchmark: one key, 250-byte payload; ours beside the real Flink where its harness is given.

Record r inserts row r; from record number `delay` on the row that is (delay + 1) / 2 older is retracted, in `pct` of 100 cases, so that
a history stays about `delay` rows long (with 75 % it grows). All records count, insertions and retractions; CPU is that of the
whole process. Ours by record: Python over the heap and RocksDB. The kernel: Arrow columns in, numbered, one pass, Arrow columns
of what is emitted (`every`) or shown at the end (`net`) out. Each cell runs in a process of its own, warmed up, for at most
`--budget` seconds.

    python benchmarks/flip544.py [--records 10000,1000000] [--delays 2,100,1000,5000] [--flink PATH/run]   # writes benchmarks/flip544.md, .svg

The aims: the kernel 10 times Flink's heap ADAPTIVE at delay 1000, 1.5 times at delay 2, 100 times its RocksDB ADAPTIVE, and flat within
1.5 times over all delays.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.changelog import RowKind
from ebbtide.columns import equality_key, row_codes
from ebbtide.materializer import OrderedMultiset, SinkUpsertMaterializer, Strategy
from ebbtide.operators._arrival import kernel
from ebbtide.stores import HeapStore

HERE = Path(__file__).resolve().parent
PAYLOAD = "".join(map(chr, np.random.default_rng(7).integers(33, 123, 250)))
OURS = [("kernel", "every"), ("kernel", "net")] + [
    (store, strategy) for store in ("heap", "rocksdb") for strategy in ("LEGACY", "VALUE", "MAP", "ADAPTIVE")
]
FLINK = [(f"Flink {store}", strategy) for store in ("heap", "rocksdb") for strategy in ("LEGACY", "ADAPTIVE")]
Cell = dict[str, Any]


def main() -> int:
    """Measure all cells, print them, write the table and the plot."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--records", default="10000,1000000")
    options.add_argument("--delays", default="2,100,1000,5000")
    options.add_argument(
        "--keys", default="1,1000,1000000", help="more than the first: only with the first delay and pct"
    )
    options.add_argument("--pct", default="100,75")
    options.add_argument("--flink", type=Path)
    options.add_argument("--budget", type=float, default=5)
    options.add_argument("--cell", type=json.loads)
    asked = options.parse_args()
    if asked.cell:
        print(json.dumps(measure(**asked.cell)))
        return 0
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    cells = []
    numbers = [[int(each) for each in text.split(",")] for text in (asked.records, asked.keys, asked.pct, asked.delays)]
    first = [each[0] for each in numbers]
    for (records, keys, pct, delay), by_key in product(product(*numbers), (False, True)):
        if keys != first[1] and ([pct, delay] != first[2:] or records != max(numbers[0])):
            continue
        for engine, strategy in OURS + (FLINK if asked.flink else []):
            cell = {"engine": engine, "strategy": strategy, "records": records, "keys": keys, "pct": pct}
            cell |= {"delay": delay, "by_key": by_key, "budget_s": asked.budget}
            too_long = any(each["rate"] is None and alike(each, cell) for each in cells)  # with a shorter delay
            rate = None if too_long else flink(asked.flink, cell) if engine.startswith("Flink") else ours(cell)
            cells.append(cell | {"rate": rate})
            print(json.dumps(cells[-1]), flush=True)
    write(cells)
    return 0


def alike(one: Cell, other: Cell) -> bool:
    """Tell whether two cells differ in the delay alone."""
    return {**one, "delay": 0, "rate": 0} == {**other, "delay": 0, "rate": 0}


def ours(cell: Cell) -> float | None:
    """Measure one of ours in a process of its own; return records per CPU second."""
    command = [sys.executable, __file__, "--cell", json.dumps(cell)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def flink(run: Path, cell: Cell) -> float | None:
    """Measure Flink with its harness; return records per CPU second, None if it could not."""
    fields = {
        "backend": cell["engine"].split()[1],
        "strategy": cell["strategy"],
        "upsert-key": "col" if cell["by_key"] else "none",
        "iterations": 3,
        "warm-s": 2,
        "budget-s": int(cell["budget_s"] * 2),
    }
    fields |= {name: cell[name] for name in ("delay", "pct", "keys", "records")}
    command = [str(run), "bench", *(str(part) for name, value in fields.items() for part in (f"--{name}", value))]
    try:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=45
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, IndexError):
        return None
    return float(found["ops_per_process_cpu_ms"] * 1000 * (found["records"] + found["deletes"]) / found["records"])


def events(records: int, keys: int, pct: int, delay: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (ids, whether inserted) of all records, in order."""
    numbers = np.arange(records)
    ids, adds = np.repeat(numbers, 2), np.tile([True, False], records)
    ids[1::2] -= (1 + delay) // 2 * keys
    there = adds.copy()
    there[1::2] = (numbers // keys >= delay) & (numbers // keys % 100 < pct)
    return ids[there], adds[there]


def measure(
    engine: str, strategy: str, records: int, keys: int, pct: int, delay: int, budget_s: float, *, by_key: bool
) -> float:
    """Return records per CPU second."""
    ids, adds = events(records, keys, pct, delay)
    if engine == "kernel":
        table = pa.table(
            {
                "id": ids,
                "key": (ids % keys).astype(np.int32),
                "payload": pa.DictionaryArray.from_arrays(np.zeros(len(ids), np.int32), [PAYLOAD]).cast(pa.string()),
            }
        )
        in_columns(pa.concat_tables([table] * (1 + 200_000 // len(table))), np.resize(adds, 400_000), by_key, strategy)
        rounds = [in_columns(table, adds, by_key, strategy) for _ in range(5)]
        return len(ids) / sorted(rounds[2:])[1]
    with tempfile.TemporaryDirectory() as folder:
        rows = [(number, number % keys, PAYLOAD) for number in ids.tolist()]
        done, spent_s = by_record(engine, folder, strategy, rows, adds.tolist(), by_key, budget_s)
    return done / spent_s


def in_columns(table: pa.Table, adds: np.ndarray, by_key: bool, emission: str) -> float:  # noqa: FBT001
    """Materialize a batch; return CPU seconds."""
    started = time.process_time()
    key = row_codes(table, ["key"])
    like = row_codes(table, ["key", "id"] if by_key else table.column_names)
    found = kernel.materialize(key, like, adds, replaces=by_key)
    if emission == "every":
        said = np.flatnonzero((found.outcome >= kernel.INSERT) & (found.outcome <= kernel.DELETE))
        table.take(pa.array(found.source[said]))
    else:
        shown = found.shown[found.shown >= 0]
        table.take(pa.array(found.content[shown]))
    return time.process_time() - started


def by_record(
    engine: str,
    folder: str,
    strategy: str,
    rows: list[Any],
    adds: list[bool],
    by_key: bool,  # noqa: FBT001
    budget_s: float,
) -> tuple[int, float]:
    """Materialize record by record; return how many were done within the budget, and the CPU seconds."""
    if engine == "heap":
        store: Any = HeapStore()
    else:
        from ebbtide.stores import RocksDbStore

        store = RocksDbStore(folder)
    histories = OrderedMultiset(
        store, Strategy(strategy), identify=(lambda row: row[0]) if by_key else equality_key, replaces=by_key
    )
    process = SinkUpsertMaterializer(histories).process
    started = time.process_time()
    done, emitted = 0, 0
    for row, add in zip(rows, adds, strict=True):
        emitted += process(RowKind.INSERT if add else RowKind.DELETE, row[1], row) is not None
        done += 1
        if done % 256 == 0 and time.process_time() - started > budget_s:
            break
    return done, time.process_time() - started


def write(cells: list[Cell]) -> None:
    """Write benchmarks/flip544.md and benchmarks/flip544.svg."""
    (HERE / "flip544.md").write_text("\n".join(page(cells)) + "\n", encoding="utf-8")
    plot(cells)


def groups(cells: list[Cell]) -> dict[tuple[Any, ...], list[Cell]]:
    """Group cells that differ in engine, strategy and delay alone."""
    found: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell["records"], cell["keys"], cell["pct"], cell["by_key"]), []).append(cell)
    return found


def title(records: int, keys: int, pct: int, by_key: bool) -> str:  # noqa: FBT001
    """Name a group."""
    key = "with" if by_key else "without"
    return f"{records:,} insertions over {keys:,} key{'s' if keys > 1 else ''}, {pct} % retracted, {key} an upsert key"


def page(cells: list[Cell]) -> Iterator[str]:
    """Lay out the tables."""
    yield "# FLIP-544's benchmark"
    yield ""
    yield "Records per CPU second, in thousands; written by `benchmarks/flip544.py`, which says what is measured. "
    yield f"{os.cpu_count()} cores. -: not within its time."
    yield ""
    yield "![records per CPU second by retraction delay](flip544.svg)"
    for group, members in groups(cells).items():
        delays = sorted({cell["delay"] for cell in members})
        yield from ("", f"## {title(*group)}", "")
        yield f"| retracted after | {' | '.join(f'{delay:,}' for delay in delays)} |"
        yield f"|---|{'---|' * len(delays)}"
        for side in dict.fromkeys((cell["engine"], cell["strategy"]) for cell in members):
            rates = {c["delay"]: c["rate"] for c in members if (c["engine"], c["strategy"]) == side}
            shown = ["-" if rates[d] is None else f"{rates[d] / 1000:,.0f}" for d in delays]
            yield f"| {' '.join(side)} | {' | '.join(shown)} |"


def plot(cells: list[Cell]) -> None:
    """Draw the groups of the most records that have several delays."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "ebbtide"
    from matplotlib import pyplot as plt

    most = max(cell["records"] for cell in cells)
    found = {group: members for group, members in groups(cells).items() if group[0] == most}
    found = {group: members for group, members in found.items() if len({cell["delay"] for cell in members}) > 1}
    if not found:
        return
    figure, axes = plt.subplots(
        -(-len(found) // 2), 2, figsize=(12, 4.5 * -(-len(found) // 2) + 1), squeeze=False, layout="constrained"
    )
    for axis, (group, members) in zip(axes.flat, found.items(), strict=False):
        for side in dict.fromkeys((cell["engine"], cell["strategy"]) for cell in members):
            points = [(c["delay"], c["rate"]) for c in members if (c["engine"], c["strategy"]) == side and c["rate"]]
            style = {"kernel": "-", "Flink": "--"}.get(side[0].split()[0], ":")
            axis.plot(*zip(*sorted(points), strict=True), style, marker=".", label=" ".join(side))
        axis.set(xscale="log", yscale="log", xlabel="retracted after records", ylabel="records per CPU second")
        axis.set_title(title(*group), fontsize=9)
        axis.grid(alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=7, handlelength=4)
    figure.savefig(HERE / "flip544.svg", metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
