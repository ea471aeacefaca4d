"""`engine: spark` means Spark: the phases of the smallest step are tasks of its jobs, which its UI names."""

from collections import Counter

import pytest
from clusters.spark_support import change, plain_spec, write
from frame.limits import set_limits

from ebbtide import run
from ebbtide.operations import Context, operations
from ebbtide.sessions import executor_of

HOUR = 3_600_000


@pytest.fixture(autouse=True)
def thresholds():
    """Have the thresholds that users have: other tests in here lower them."""
    set_limits(rows_in_driver=20_000, file_source_bytes_in_driver=4 * 2**20)


def tasks_of_jobs(spark):
    """Count tasks in Spark's own store of jobs, by what it says of the job."""
    found = Counter()
    for job in spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    ):
        description = job.description()
        text = description.get() if description.isDefined() else ""
        found[text] += job.numCompletedTasks()
    return found


def read_and_expire(spark, folder, engine):
    """Read a file, and let its entries expire; return the tasks of the pipeline's jobs, by their description."""
    write(folder / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)])
    spec = plain_spec(folder / "in", name=f"on_{engine}", engine=engine, ttl="1h")
    before = tasks_of_jobs(spark)
    run(spark, spec, str(folder), clock=lambda: HOUR)
    run(spark, spec, str(folder), clock=lambda: 3 * HOUR)
    compact = next(each for each in operations() if each.name == "compact")
    compact.act("apply", Context(spec, str(folder), executor_of(spark)), compact.asked({}))
    made = tasks_of_jobs(spark) - before
    return {text: n for text, n in made.items() if text.startswith(spec.name)}


def test_phases_of_the_smallest_step_are_tasks_where_the_spec_says_spark(spark, tmp_path):
    made = read_and_expire(spark, tmp_path, "spark")
    assert made.keys() == {
        "on_spark: step 1: reading",
        "on_spark: step 1: deciding",
        "on_spark: step 1: merging",
        "on_spark: step 2: expiring",
        "on_spark: compact",
    }
    assert all(made.values())


def test_the_same_step_is_made_in_the_driver_by_auto(spark, tmp_path):
    assert read_and_expire(spark, tmp_path, "auto") == {}
