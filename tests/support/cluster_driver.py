"""The driver of a cluster: `python cluster_driver.py MASTER SETTINGS`; does what each line of its input says, all of it by tasks.

A line is `[what, spec, root, ...]` as JSON. Prints, as JSON: after each step `step`, its `kind`, and `deaths`, whether a host died under its tasks;
`begins` where a test has to kill one; in the end `done` with the result, or `failed`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clusters.ivy import LEAST
from frame.limits import set_limits
from pyspark.sql import SparkSession

from ebbtide import load, run
from ebbtide.checks import Engines, VersionRange, checks_of
from ebbtide.checks._judged import Judged
from ebbtide.checks.great_expectations.validate import validate
from ebbtide.operations import Context, operations
from ebbtide.runtime import Plan, StepProgress, system_clock
from ebbtide.sessions import build_session, executor_of
from ebbtide.spec import Pipeline

SMALL = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.decommission.enabled": "true",
    "spark.driver.extraJavaOptions": " ".join(LEAST),
    "spark.executor.extraJavaOptions": " ".join(LEAST),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Spark prints is no event


def say(**event: Any) -> None:
    OUT.write(json.dumps(event) + "\n")
    OUT.flush()


def leave_all_to_tasks() -> None:
    """Leave nothing to the driver, however small it is."""
    set_limits(
        rows_in_driver=1,
        file_source_bytes_in_driver=0,
        records_in_driver=0,
        judging_rows_in_driver=0,
        view_table_bytes=-1,
        little_bytes=0,
    )


class Deaths:
    """Orders that one task of each step kill its host: at one step before its work, at the next after it, see `fatal_daemon`.

    Args:
        folder: Takes the orders.
        whom: `host`, `executor` or `nobody`.
    """

    def __init__(self, folder: Path, whom: str) -> None:
        self._folder, self._whom = folder, whom
        self._places = itertools.cycle(("before", "after"))

    def order(self) -> None:
        if self._whom == "nobody":
            return
        place = next(self._places)
        order = self._folder / f"{place}.new"
        order.write_text(self._whom)
        order.rename(self._folder / place)

    def done(self) -> int:
        """Return whether the last order was carried out, as a count, and take it back."""
        left = [self._folder / place for place in ("before", "after")]
        orders = [order for order in left if order.exists()]
        for order in orders:
            order.unlink()
        return 1 - len(orders)


def run_all(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths) -> dict[str, int]:
    """Run a pipeline; a host dies in each batch."""

    def seen(step: StepProgress) -> None:
        say(step=step.step, kind=step.kind, deaths=deaths.done())
        deaths.order()

    deaths.order()
    summary = run(spark, spec, root, on_progress=seen)
    deaths.done()
    return dict(summary.totals)


def check(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths) -> dict[str, bool]:
    """Judge all checks, on Spark where rules run there."""
    tables = Plan.under(root, spec)
    judged = Judged(Engines(lambda: spark, most_rows=0), tables, VersionRange.after(tables, None), system_clock())
    say(begins="check", deaths=0)  # its tasks are Spark's alone, which kill no host
    return {each.name: validate(each.name, each.load()(judged), None, 2).passed for each in checks_of(spec)}


def operate(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths, name: str, given: str) -> dict[str, Any]:
    """Apply an operation; a host dies as it begins, and one under its tasks, if it has some."""
    # Several tasks, however small the state is.
    set_limits(rewriting_rows_in_part=1_000, doomed_rows_in_part=50, rows_per_step=300)
    [operation] = [each for each in operations(name.partition(".")[0]) if each.name == name]
    say(begins=name, deaths=0)
    with dying(deaths):
        return operation.apply(Context(spec, root, executor_of(spark)), operation.asked(json.loads(given))).as_dict()


def sql(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths, statement: str) -> None:
    """Do what another client does."""
    spark.sql(statement)


@contextmanager
def dying(deaths: Deaths) -> Iterator[None]:
    """Have a host die in an operation."""
    deaths.order()
    yield
    say(deaths=deaths.done())


def load_workers(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths) -> list[str]:
    """Start the Python processes of executors, and load what tasks load; return the hosts that have done so."""

    def loaded(_: object) -> str:
        import time

        import ebbtide.runtime._workers.deciding  # noqa: F401

        time.sleep(1)  # or one executor does the tasks of all
        return os.environ["SPARK_LOCAL_IP"]

    n_tasks = max(6, 2 * spark.sparkContext.defaultParallelism)
    return sorted(set(spark.sparkContext.parallelize(range(n_tasks), n_tasks).map(loaded).collect()))


def place(spark: SparkSession, spec: Pipeline, root: str, deaths: Deaths) -> list[str]:
    """Return the folder of the executor that had each of eight parts of the keys, by their hashes."""
    executor = executor_of(spark)
    return executor.map(lambda _: str(Path.cwd()), range(8), at=lambda part: part * 2**61)


DOES = {"load_workers": load_workers, "run": run_all, "check": check, "operate": operate, "place": place, "sql": sql}


def main() -> None:
    master, folder, whom, given = sys.argv[1:]
    leave_all_to_tasks()
    fatal = {"spark.python.daemon.module": "fatal_daemon", "spark.executorEnv.EBBTIDE_TEST_DEATHS": folder}
    spark = build_session("cluster", {"spark.master": master, **SMALL, **fatal, **json.loads(given)})
    deaths = Deaths(Path(folder), whom)
    for line in sys.stdin:
        what, location, root, *more = json.loads(line)
        try:
            done = DOES[what](spark, load(location), root, deaths, *more)
        except Exception:  # noqa: BLE001 - the test says what failed
            say(failed=traceback.format_exc()[-4000:])
        else:
            say(done=done)
    os._exit(0)  # the JVM ends when its input does


if __name__ == "__main__":
    main()
