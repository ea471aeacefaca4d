"""Runs the five shop pipelines in Dagster over the shipped capture, and a large one over movements that it makes; compares every sink with the truth.

Exit code 0 if all six equal the truth and all checks passed, 1 if not.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import dagster as dg
import movements
import pyarrow as pa
from dagster_process import dagster_process
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide import UpsertPipeline
from ebbtide.checks import checks_of
from ebbtide.cli.errors import as_typed
from ebbtide.cli.quiet import new_log
from ebbtide.inspect import status
from ebbtide.inspect._status import Status
from ebbtide.sessions import build_session
from ebbtide.sessions._settings import settings_of_file

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
SHOP = "pipelines/defs/shop"
GROUPS = (SHOP, "pipelines/defs/warehouse")
ROOT = PROJECT / ".ebbtide"
HOME = PROJECT / ".dagster"
JOB = ["-m", "pipelines.definitions", "-a", "defs", "-d", ".", "-j", "demo"]
EVENTS = HOME / "demo-spark"
"""Where Spark logs the events of the run."""
TAG = "ebbtide/demo"
"""Tag of the demo's runs."""
UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
SILENT_S = 900
"""How long a run may report nothing, in seconds: the first one downloads Delta, and a busy machine is slow."""


class DemoError(Exception):
    """The demo cannot go on; its message is for the user."""


def specs() -> list[UpsertPipeline]:
    """Return the pipelines of the shop and of its warehouses."""
    folders = [path for group in GROUPS for path in sorted((PROJECT / group).iterdir())]
    return [UpsertPipeline.load(path) for path in folders]


def main() -> int:
    """Launch, compare, sum up."""
    started = time.monotonic()
    print("Running the job 'demo' in Dagster; the first time, Spark downloads Delta.", flush=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        run_id = launch()
    except DemoError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; the run is canceled. 'make demo' starts again from the beginning.", file=sys.stderr)
        return 130
    if run_id is None:
        return 1
    return summary(run_id, started)


def summary(run_id: str, started: float) -> int:
    """Compare the sinks with the truth, and print what came of the run; return the exit code."""
    tasks = spark_tasks(EVENTS)  # of the run alone: the comparison is a session of its own
    spark = build_session("ebbtide-demo", log_file=new_log(str(ROOT)))
    reports = [(spec, difference(spec, truth(spec), sink_rows(spark, spec))) for spec in specs()]
    statuses = {spec.name: status(spec, str(ROOT)) for spec in specs()}
    spark.stop()
    with dg.DagsterInstance.get() as instance:
        checks = evaluations(instance, run_id)
        print("\n" + "\n".join(table(reports, statuses, checks, unmatched(instance, specs()), tasks)))
    right = all(not any(differs.values()) for _, differs in reports)
    print(f"\n{len(reports)} sinks compared with the truth in {time.monotonic() - started:.0f} s: ", end="")
    print("all equal, all checks passed." if right else "NOT all right.")
    n_records = sum(status.read.records for status in statuses.values())
    print(
        f"Spark ran {sum(tasks[spec.name] for spec in specs()):,} tasks, in which {n_records:,} records were read, decided on and folded."
    )
    print(
        f"The tables are in {ROOT.relative_to(PROJECT)}/NAME/sink; each has its change feed, and its state beside it."
    )
    print(as_typed("Next: 'make ui' shows this run in Dagster; 'ebbtide status' tells where it stands.", SHOP))
    return 0 if right else 1


def launch() -> str | None:
    """Run the job in Dagster's instance, and print what it reports; return the run's id, None if it failed."""
    HOME.mkdir(exist_ok=True)
    if not (HOME / "dagster.yaml").exists():
        (HOME / "dagster.yaml").symlink_to("../dagster.yaml")
    os.environ |= {"DAGSTER_HOME": str(HOME), "EBBTIDE_ROOT": str(ROOT)}
    with alone(HOME / "demo.lock") as lock, dg.DagsterInstance.get() as instance:
        cancel_left_runs(instance)
        for spec in specs():
            shutil.rmtree(ROOT / spec.name, ignore_errors=True)
        movements.make()
        log_events()
        return execute(instance, JOB, PROJECT, HOME / "demo.log", lock)


@contextmanager
def alone(path: Path) -> Iterator[TextIO]:
    """Hold the lock of a demo, which its run inherits: the tables are deleted first, so one at a time may work.

    Raises:
        DemoError: Another demo, or its run, holds it.
    """
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"Another demo is at work on the same tables. It ends by itself; to end it now: kill {path.read_text()}"
            ) from None
        note(file, os.getpid())
        yield file


def note(lock: TextIO, process: int) -> None:
    """Write down which process to end, should another demo wait for the lock."""
    lock.truncate(0)
    lock.write(str(process))
    lock.flush()


def log_events() -> None:
    """Have Spark log its events where `spark_tasks` reads them; what else its file of defaults sets stays."""
    shutil.rmtree(EVENTS, ignore_errors=True)
    conf = EVENTS / "conf"
    conf.mkdir(parents=True)
    settings = settings_of_file() | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": EVENTS.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines))
    os.environ["SPARK_CONF_DIR"] = str(conf)


def spark_tasks(folder: Path) -> Counter[str]:
    """Count the tasks that Spark's own log of events has, by pipeline: the description of a job begins with its name."""
    tasks: Counter[str] = Counter()
    pipeline_of: dict[int, str] = {}
    for log in filter(Path.is_file, folder.iterdir()):
        for line in log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                described = event.get("Properties", {}).get("spark.job.description", "")
                pipeline_of |= dict.fromkeys(event["Stage IDs"], described.partition(":")[0])
            elif event["Event"] == "SparkListenerTaskEnd":
                tasks[pipeline_of.get(event["Stage ID"], "")] += 1
    return tasks


def cancel_left_runs(instance: dg.DagsterInstance) -> None:
    """Cancel runs of earlier demos that were killed: without a process they would stay in progress, and hold their pools."""
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        if TAG in run.tags:
            instance.report_run_canceled(run, message="The demo that started this run was killed.")
            print(f"Canceled run {run.run_id}: the demo that started it was killed.", flush=True)


def execute(instance: dg.DagsterInstance, job: Sequence[str], folder: Path, log: Path, lock: TextIO) -> str | None:
    """Run a job in a process beside; return its run's id, None if it failed.

    No daemon and no queue take part, so nothing depends on whether a daemon is alive: only on the process, which is there or not.

    Args:
        instance: Where the run is recorded.
        job: The options that name it.
        folder: Working folder.
        log: File of its output.
        lock: The lock, which it inherits.
    """
    token = str(uuid4())
    started = [command("dagster"), "job", "execute", *job, "--tags", json.dumps({TAG: token})]
    with dagster_process(started, log, folder, os.environ, inherited=[lock.fileno()]) as process:
        note(lock, process.pid)
        try:
            run = follow(instance, process, token)
        except KeyboardInterrupt:
            cancel(instance, token)
            raise
    if run is not None and run.is_success:
        return run.run_id
    status = "did not begin" if run is None else f"ended as {run.status.value}"
    print(f"The run {status}. Its log: {log}", file=sys.stderr)
    return None


def follow(instance: dg.DagsterInstance, process: subprocess.Popen[bytes], token: str) -> dg.DagsterRun | None:
    """Print the steps that a run logs, until its process ends; return it, None if the process has made none.

    Raises:
        DemoError: It has reported nothing for `SILENT_S`.
    """
    cursor: str | None = None
    reported_at = time.monotonic()
    while True:
        has_ended = process.poll() is not None
        run = run_of(instance, token)
        found = instance.get_records_for_run(run.run_id, cursor=cursor) if run else None
        if found and found.records:
            cursor, reported_at = found.cursor, time.monotonic()
            report([record.event_log_entry for record in found.records])
        elif has_ended:
            return run
        elif time.monotonic() - reported_at > SILENT_S:
            if run is not None and run.is_finished:  # its process does not end
                return run
            raise DemoError(f"The run has reported nothing for {SILENT_S // 60} minutes, and is ended.")
        else:
            time.sleep(0.5)


def run_of(instance: dg.DagsterInstance, token: str) -> dg.DagsterRun | None:
    """Return the run that has a token, None if there is none."""
    return next(iter(instance.get_runs(dg.RunsFilter(tags={TAG: token}), limit=1)), None)


def cancel(instance: dg.DagsterInstance, token: str) -> None:
    """Say of a run that it is to be canceled: interrupted without that, it ends as a failure."""
    run = run_of(instance, token)
    if run is not None:
        instance.report_run_canceling(run)


def report(entries: Sequence[dg.EventLogEntry]) -> None:
    """Print what is said of steps, and what has failed."""
    for entry in entries:
        if entry.dagster_event is None and " step " in entry.user_message:
            print(entry.user_message, flush=True)
        elif entry.is_dagster_event and entry.get_dagster_event().is_failure:
            print(entry.get_dagster_event().message, file=sys.stderr)


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
    tasks: Counter[str],
) -> list[str]:
    """Lay the summary out."""
    columns = (
        "rows",
        "steps",
        "records",
        "Spark tasks",
        "quarantined",
        "unmatched",
        "missing",
        "extra",
        "wrong",
        "checks",
    )
    lines = [f"{'sink':<16}" + "".join(f"{name:>12}" for name in columns)]
    for spec, differs in reports:
        status = statuses[spec.name]
        made = [status.last.step, status.read.records, tasks[spec.name]]
        counts = [*made, status.read.quarantined, unmatched[spec.name]]
        cells = [len(truth(spec)), *counts, *(differs[n] for n in ("missing", "extra", "wrong"))]
        lines.append(
            f"{spec.name:<16}"
            + "".join(f"{n:>12}" for n in cells)
            + f"{f'{checks[spec.name]} of {len(checks_of(spec))}':>12}"
        )
    return lines


def truth(spec: UpsertPipeline) -> dict[str, dict[str, Any]]:
    """Return the rows that a sink must have, by key, values typed."""
    path = HERE / "truth" / f"{spec.name}.jsonl.gz"
    with gzip.open(path if path.exists() else movements.TRUTH, "rt", encoding="utf-8") as lines:
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
