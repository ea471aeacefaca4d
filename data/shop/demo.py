"""Launches the five shop pipelines from Dagster over the shipped capture; compares every sink with the source database.

Exit code 0 if all five equal the truth and all checks passed, 1 if not.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow as pa
from dagster_process import dagster_process
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline
from ebbtide.checks.great_expectations.checks import checks_of
from ebbtide.cli.quiet import new_log
from ebbtide.cli.typed import as_typed
from ebbtide.inspect.status import Status, status
from ebbtide.runtime.session import build_session

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
SHOP = "pipelines/defs/shop"
ROOT = PROJECT / ".ebbtide"
HOME = PROJECT / ".dagster"
WORKSPACE = ["-w", "workspace.yaml"]


def main() -> int:
    """Launch, compare, sum up."""
    started = time.monotonic()
    specs = [UpsertPipeline.load(path) for path in sorted((PROJECT / SHOP).iterdir())]
    for spec in specs:
        shutil.rmtree(ROOT / spec.name, ignore_errors=True)
    print("Launching the job 'shop' in Dagster; the first time, Spark downloads Delta.", flush=True)
    run_id = launch()
    if run_id is None:
        return 1
    spark = build_session("ebbtide-demo", log_file=new_log(str(ROOT)))
    reports = [(spec, difference(spec, truth(spec), sink_rows(spark, spec))) for spec in specs]
    statuses = {spec.name: status(spec, str(ROOT)) for spec in specs}
    spark.stop()
    with dg.DagsterInstance.get() as instance:
        checks = evaluations(instance, run_id)
        print("\n" + "\n".join(table(reports, statuses, checks, unmatched(instance, specs))))
    right = all(not any(differs.values()) for _, differs in reports)
    print(f"\n{len(reports)} sinks compared with the source database in {time.monotonic() - started:.0f} s: ", end="")
    print("all equal, all checks passed." if right else "NOT all right.")
    print(
        f"The tables are in {ROOT.relative_to(PROJECT)}/NAME/sink; each has its change feed, and its state beside it."
    )
    print(as_typed("Next: 'make ui' shows this run in Dagster; 'ebbtide status' tells where it stands.", SHOP))
    return 0 if right else 1


def launch() -> str | None:
    """Launch the job 'shop' as its page in Dagster does, and print what it reports; return the run's id, None if it failed."""
    HOME.mkdir(exist_ok=True)
    if not (HOME / "dagster.yaml").exists():
        (HOME / "dagster.yaml").symlink_to("../dagster.yaml")
    os.environ |= {"DAGSTER_HOME": str(HOME), "EBBTIDE_ROOT": str(ROOT)}
    run_id = str(uuid4())
    with dg.DagsterInstance.get() as instance, daemon():
        put_in_queue = ["job", "launch", *WORKSPACE, "-l", "ebbtide", "-j", "shop", "--run-id", run_id]
        queued = subprocess.run(
            [command("dagster"), *put_in_queue], cwd=PROJECT, capture_output=True, text=True, check=False
        )
        if queued.returncode:
            print(queued.stdout, queued.stderr, file=sys.stderr)
            return None
        return run_id if follow(instance, run_id) else None


@contextmanager
def daemon() -> Iterator[None]:
    """Have Dagster's daemon, which launches what is queued: the one of 'make ui', if that is there."""
    is_there = subprocess.run(
        [command("dagster-daemon"), "liveness-check"], cwd=PROJECT, capture_output=True, check=False
    )
    if is_there.returncode == 0:
        yield
        return
    started = [command("dagster-daemon"), "run", *WORKSPACE]
    with dagster_process(started, HOME / "demo-daemon.log", PROJECT, os.environ):
        yield


def follow(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Print the steps that a run logs, until it ends; return whether it succeeded, and print its errors if not."""
    cursor: str | None = None
    while True:
        run = instance.get_run_by_id(run_id)
        has_ended = run is None or run.is_finished
        found = instance.get_records_for_run(run_id, cursor=cursor)
        for record in found.records:
            entry = record.event_log_entry
            if entry.dagster_event is None and " step " in entry.user_message:
                print(entry.user_message, flush=True)
            elif entry.is_dagster_event and entry.get_dagster_event().is_failure:
                print(entry.get_dagster_event().message, file=sys.stderr)
        cursor = found.cursor
        if has_ended and not found.has_more:
            return run is not None and run.is_success
        if not found.has_more:
            time.sleep(0.5)


def command(name: str) -> str:
    """Return a command of this environment."""
    return str(Path(sys.executable).with_name(name))


def evaluations(instance: dg.DagsterInstance, run_id: str) -> Counter[str]:
    """Count the checks that passed in a run, by sink."""
    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = [e.dagster_event.asset_check_evaluation_data for e in events if e.dagster_event]
    return Counter(each.asset_key.to_user_string() for each in found if each.passed)


def unmatched(instance: dg.DagsterInstance, specs: list[UpsertPipeline]) -> dict[str, int]:
    """Return the retractions without a row to retract, by sink."""
    counts = {}
    for spec in specs:
        event = instance.get_latest_materialization_event(dg.AssetKey(spec.name))
        metadata = event.asset_materialization.metadata if event and event.asset_materialization else {}
        counts[spec.name] = int(metadata["unmatched"].value) if "unmatched" in metadata else 0
    return counts


def table(
    reports: list[tuple[UpsertPipeline, dict[str, int]]],
    statuses: dict[str, Status],
    checks: Counter[str],
    unmatched: dict[str, int],
) -> list[str]:
    """Lay the summary out."""
    columns = ("rows", "steps", "records", "quarantined", "unmatched", "missing", "extra", "wrong", "checks")
    lines = [f"{'sink':<16}" + "".join(f"{name:>12}" for name in columns)]
    for spec, differs in reports:
        status = statuses[spec.name]
        counts = [status.last.step, status.read.records, status.read.quarantined, unmatched[spec.name]]
        cells = [len(truth(spec)), *counts, *(differs[n] for n in ("missing", "extra", "wrong"))]
        lines.append(
            f"{spec.name:<16}"
            + "".join(f"{n:>12}" for n in cells)
            + f"{f'{checks[spec.name]} of {len(checks_of(spec))}':>12}"
        )
    return lines


def truth(spec: UpsertPipeline) -> dict[str, dict[str, Any]]:
    """Return the source database's rows by key, values typed."""
    with gzip.open(HERE / "truth" / f"{spec.name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    types = {f.name: f.type for f in spec.table.columns}
    return _by_key(spec, [{name: from_text(row[name], type_) for name, type_ in types.items()} for row in rows])


def sink_rows(spark: SparkSession, spec: UpsertPipeline) -> dict[str, dict[str, Any]]:
    """Return a sink's rows by key; times as UTC."""
    sink = (
        spark.read.format("delta")
        .load(str(ROOT / spec.name / "sink"))
        .select(*[F.col(f.name) for f in spec.table.columns])
    )
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
