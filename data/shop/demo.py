"""Runs the five shop pipelines over the shipped capture and compares every sink with the source database.

Exit code 0 if all five equal the truth, 1 if not.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide import RunSummary, UpsertPipeline
from ebbtide.streaming.runner import run
from ebbtide.streaming.session import build_session

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
ROOT = PROJECT / ".ebbtide" / "demo"


def main() -> int:
    """Run, compare, sum up."""
    started = time.monotonic()
    shutil.rmtree(ROOT, ignore_errors=True)
    print("Starting Spark; the first time it downloads Delta.", flush=True)
    spark = build_session("ebbtide-demo")
    reports = []
    for path in sorted((PROJECT / "pipelines" / "defs" / "shop").iterdir()):
        spec = UpsertPipeline.load(path)
        summary = run(spark, spec, str(ROOT), on_progress=lambda step: print(step.line(), flush=True))
        reports.append((spec, summary, difference(spec, truth(spec), sink_rows(spark, spec, summary))))
    spark.stop()
    print("\n" + "\n".join(table(reports)))
    right = all(not any(differs.values()) for _, _, differs in reports)
    print(f"\n{len(reports)} sinks compared with the source database in {time.monotonic() - started:.0f} s: ", end="")
    print("all equal." if right else "NOT equal.")
    print(
        f"The tables are in {ROOT.relative_to(PROJECT)}/NAME/sink; each has its change feed, and its state beside it."
    )
    print("Next: 'uv run ebbtide status pipelines/defs/shop --root .ebbtide/demo', or copy a defs.yaml and change it.")
    return 0 if right else 1


def table(reports: list[tuple[UpsertPipeline, RunSummary, dict[str, int]]]) -> list[str]:
    """Lay the summary out."""
    columns = ("sink", "rows", "steps", "records", "quarantined", "unmatched", "missing", "extra", "wrong")
    lines = [f"{columns[0]:<16}" + "".join(f"{name:>12}" for name in columns[1:])]
    for spec, summary, differs in reports:
        totals = summary.totals
        counts = [totals[name] for name in ("steps", "records", "quarantined", "unmatched")]
        rows = [len(truth(spec)), *counts, *(differs[name] for name in ("missing", "extra", "wrong"))]
        lines.append(f"{spec.name:<16}" + "".join(f"{n:>12}" for n in rows))
    return lines


def truth(spec: UpsertPipeline) -> dict[str, dict[str, Any]]:
    """Return the source database's rows by key, values typed."""
    with gzip.open(HERE / "truth" / f"{spec.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    types = {f.name: f.type for f in spec.table.columns}
    return _by_key(spec, [{name: from_text(row[name], type_) for name, type_ in types.items()} for row in rows])


def sink_rows(spark: SparkSession, spec: UpsertPipeline, summary: RunSummary) -> dict[str, dict[str, Any]]:
    """Return a sink's rows by key; times as UTC."""
    sink = spark.read.format("delta").load(f"{summary.root}/sink").select(*[F.col(f.name) for f in spec.table.columns])
    return _by_key(spec, sink.toArrow().to_pylist())


def difference(spec: UpsertPipeline, want: dict[str, Any], got: dict[str, Any]) -> dict[str, int]:
    """Count rows missing, extra and wrong."""
    wrong = sum(1 for key in want.keys() & got.keys() if want[key] != got[key])
    return {"missing": len(want.keys() - got.keys()), "extra": len(got.keys() - want.keys()), "wrong": wrong}


def from_text(text: Any, type_: pa.DataType) -> Any:
    """Read a value of the truth, which is Postgres' text, as what Spark gives for it."""
    if text is None:
        return None
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_floating(type_):
        return pa.scalar(float(text), type_).as_py()
    if pa.types.is_boolean(type_):
        return text in (True, "t", "true")
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(text).astimezone(UTC) if type_.tz else datetime.fromisoformat(text)
    return json.loads(text) if pa.types.is_list(type_) else text


def _by_key(spec: UpsertPipeline, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {json.dumps([row[k] for k in spec.key]): row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
