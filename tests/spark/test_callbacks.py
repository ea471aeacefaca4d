"""What stays of a query in the process that began it."""

import contextlib
import gc
import threading
import time

import pytest
from pyspark.sql.utils import ForeachBatchFunction
from spark_support import change, plain_spec, write

from ebbtide.runtime.callbacks import CallbackConnection
from ebbtide.runtime.driver import run

WITHIN_S = 10


def listening():
    """Threads that wait for calls of the JVM."""
    return {thread for thread in threading.enumerate() if thread.name.endswith("(run)")}


def functions(spark):
    """What Python keeps since the JVM may call it."""
    kept = spark.sparkContext._gateway.gateway_property.pool.dict.values()
    return [function for function in kept if isinstance(function, ForeachBatchFunction)]


def is_soon(is_true, again=lambda: None):
    end = time.monotonic() + WITHIN_S
    while not is_true() and time.monotonic() < end:
        again()
        time.sleep(0.05)
    return is_true()


def test_queries_that_have_ended_leave_neither_thread_nor_connection(spark, tmp_path):
    source = write(tmp_path / "in", [change("+I", 0, "a", 0)])
    spec = plain_spec(source)
    run(spark, spec, str(tmp_path))
    threads, connections = listening(), len(CallbackConnection(spark).kept_by_java())
    for turn in range(1, 3):
        write(source, [change("+I", turn, "b", turn)], first=turn)
        assert run(spark, spec, str(tmp_path)).totals["steps"] == 1
    assert is_soon(lambda: not listening() - threads)
    assert len(CallbackConnection(spark).kept_by_java()) == connections


def test_function_of_a_query_that_failed_is_let_go_of_by_both_sides(spark, tmp_path):
    def fail(step):
        raise ValueError("after the step")

    def collect():
        gc.collect()
        spark._jvm.System.gc()

    assert is_soon(lambda: not functions(spark), collect), "those of other tests"
    spec = plain_spec(write(tmp_path / "in", [change("+I", 0, "a", 0)]))
    with contextlib.suppress(ValueError):
        run(spark, spec, str(tmp_path), on_progress=fail)
        pytest.fail("the failure is raised")
    assert is_soon(lambda: not functions(spark), collect)
