"""The bytes that a changed row writes, by place, beside Delta's MERGE with deletion vectors and Iceberg's with vectors of format 3.

Rows of 100 bytes, as of `local_scale.py`, are there; then come steps of changes to random keys, a tenth of them to new ones. Files are counted that a
step leaves, without joins of files: ours joins between steps, the peers by commands. Ours keeps state, and a change feed, which the peers do not.
Iceberg runs in an environment of its own, with the Spark that its package is for.

    python benchmarks/bytes_written.py [--rows 1000000] [--changes 100000] [--steps 3] [--sides images,net,delta,iceberg]

The aim: at most 50 bytes a changed row, with state and change feed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

SIDES = ("images", "net", "delta", "iceberg")
COLUMNS = "id BIGINT, at BIGINT, name STRING, amount INT, text STRING"
MOST_BYTES = 50
Step = Callable[[list[dict[str, object]]], None]


def main() -> int:
    """Run the sides in turn; return 1 if ours writes more than the aim."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--changes", type=int, default=100_000)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--sides", default=",".join(SIDES))
    options.add_argument("--side", choices=SIDES)
    asked = options.parse_args()
    sizes = ["--rows", str(asked.rows), "--changes", str(asked.changes), "--steps", str(asked.steps)]
    if asked.side:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(asked.side, Path(folder), asked.rows, asked.changes, asked.steps)))
        return 0
    worst = 0.0
    for side in asked.sides.split(","):
        command = [*python_of(side), __file__, "--side", side, *sizes]
        found = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        )
        print(f"{side:>8}: {json.dumps(found)}", flush=True)
        worst = max(worst, found["bytes_a_row"] if side == "images" else 0)
    return int(worst > MOST_BYTES)


def python_of(side: str) -> list[str]:
    """Return the command that runs Python for a side."""
    if side != "iceberg":
        return [sys.executable]
    uv = shutil.which("uv") or str(Path(__file__).resolve().parent.parent / ".tools" / "bin" / "uv")
    needs = ["pyspark==4.1.1", "pyarrow", "pandas"]
    return [uv, "run", "--no-project", *(part for need in needs for part in ("--with", need)), "python"]


def measured(side: str, work: Path, rows: int, changes: int, steps: int) -> dict[str, object]:
    """Return the bytes a changed row, the median of the steps, and those of the last one by place."""
    apply, table = {"images": ours, "net": ours, "delta": delta, "iceberg": iceberg}[side](side, work, rows)
    costs: list[float] = []
    by_place: Counter[str] = Counter()
    for number in range(steps):
        before = {path for path, _, _ in files_in(table)}
        changed = changes_of(rows, changes, number)
        apply(changed)
        by_place = Counter()
        for path, place, n_bytes in files_in(table):
            if path not in before:
                by_place[place] += n_bytes
        costs.append(by_place.total() / len(changed))
    places = {place: round(n_bytes / len(changed), 2) for place, n_bytes in sorted(by_place.items())}
    return {"bytes_a_row": round(statistics.median(costs), 1), "by_place": places}


def files_in(table: Path) -> list[tuple[str, str, int]]:
    """Return the files below a folder: path, place and bytes."""
    found = []
    for path in table.rglob("*"):
        if path.is_file() and not path.name.endswith(".crc"):
            folder, *inner = path.relative_to(table).parts
            kind = next((name for name in inner if name in ("_delta_log", "_change_data", "metadata")), "data")
            place = "vectors" if path.suffix in (".bin", ".puffin") else kind
            found.append((str(path), f"{folder} {place}", path.stat().st_size))
    return found


def changes_of(rows: int, changes: int, number: int) -> list[dict[str, object]]:
    """Return the changes of a step, as `local_scale.py` makes them."""
    import random

    chance = random.Random(number)
    n_new = changes // 10
    first_new = 10**9 + number * n_new
    keys = [chance.randrange(rows) for _ in range(changes - n_new)] + list(range(first_new, first_new + n_new))
    chance.shuffle(keys)
    return [row(key, number + 1) for key in dict.fromkeys(keys)]


def row(key: int, at: int) -> dict[str, object]:
    """Make a row of about 100 bytes, as `scale.py` does."""
    name = f"name-{key * 7919 % 1_000_003}"
    return {"id": key, "at": at, "name": name, "amount": key % 9973, "text": f"{key:x}/{at}" * 4}


def ours(side: str, work: Path, rows: int) -> tuple[Step, Path]:
    """Load the rows through a pipeline."""
    from harness import write_changes
    from local_scale import pipeline, write_rows

    from ebbtide import InProcess, UpsertPipeline, run

    spec = UpsertPipeline(
        **{**pipeline(work).model_dump(exclude_unset=True, by_alias=True), "sink": {"change_feed": side}}
    )
    n_files = 0

    def read() -> None:
        nonlocal n_files
        n_files += 1
        run(InProcess(), spec, str(work))

    def apply(changed: list[dict[str, object]]) -> None:
        write_changes(work / "in" / f"{n_files:06d}.jsonl", changed)
        read()

    for first in range(0, rows, 250_000):
        write_rows(work / "in" / f"{n_files:06d}.jsonl", first, min(250_000, rows - first))
        read()
    return apply, work / "t"


def delta(_: str, work: Path, rows: int) -> tuple[Step, Path]:
    """Write the rows to a Delta table with deletion vectors, which Spark merges into."""
    from ebbtide.sessions import build_session

    spark = build_session("bench-bytes")
    path = str(work / "tables" / "t")
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({COLUMNS}) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    return merging(spark, f"delta.`{path}`", work, rows), work / "tables"


def iceberg(_: str, work: Path, rows: int) -> tuple[Step, Path]:
    """Write the rows to an Iceberg table of format 3, which Spark merges into."""
    from lake_merges import ICEBERG, session

    spark = session(ICEBERG, work)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    spark.sql(f"""
        CREATE TABLE lake.shop.t ({COLUMNS}) USING iceberg TBLPROPERTIES (
            'format-version' = '3', 'write.merge.mode' = 'merge-on-read', 'write.distribution-mode' = 'none'
        )""")
    return merging(spark, "lake.shop.t", work, rows), work / "lake"


def merging(spark: object, table: str, work: Path, rows: int) -> Step:
    """Load a table by Spark; return what merges changes into it."""

    def view(changed: list[dict[str, object]]) -> None:
        path = work / "changes.jsonl"
        path.write_text("\n".join(json.dumps(each) for each in changed))
        spark.read.schema(COLUMNS).json(str(path)).createOrReplaceTempView("changes")  # type: ignore[attr-defined]

    def apply(changed: list[dict[str, object]]) -> None:
        view(changed)
        spark.sql(  # type: ignore[attr-defined]
            f"MERGE INTO {table} t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    view([row(key, 0) for key in range(rows)])
    spark.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(2) */ * FROM changes")  # type: ignore[attr-defined] # noqa: S608
    return apply


if __name__ == "__main__":
    sys.exit(main())
