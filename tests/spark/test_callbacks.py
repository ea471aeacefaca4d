"""What stays of a query in the process that began it."""

import contextlib
import threading

import pytest
from clusters.spark_support import change, plain_spec, write
from frame.waiting import until
from pyspark.sql.utils import ForeachBatchFunction

from ebbtide import run
from ebbtide.sessions._callbacks import CallbackConnection
from ebbtide.sessions._stream import MicroBatches

N_QUERIES = 3
OF_FINALIZERS = 1
"""A connection of the JVM's thread that runs finalizers: it opens one, once, when it lets go of the first function of a query."""


def listening():
    """Threads that wait for calls of the JVM."""
    return {thread for thread in threading.enumerate() if thread.name.endswith("(run)")}


def connections(spark):
    """The ports of the connections that the JVM keeps."""
    sockets = [connection.getSocket() for connection in CallbackConnection(spark).kept_by_java()]
    return {socket.getLocalPort() for socket in sockets if socket is not None}


def functions(spark):
    """What Python keeps since the JVM may call it: it lets go of it once its own garbage is collected, whenever that is."""
    kept = spark.sparkContext._gateway.gateway_property.pool.dict.values()
    return [function for function in kept if isinstance(function, ForeachBatchFunction)]


def batches_of(function):
    """The batches that a query's function makes."""
    [on_batch] = [cell.cell_contents for cell in function.func.__closure__ if callable(cell.cell_contents)]
    return on_batch.__self__


def test_queries_that_have_ended_leave_neither_thread_nor_connection(spark, tmp_path):
    source = write(tmp_path / "in", [change("+I", 0, "a", 0)])
    spec = plain_spec(source)
    run(spark, spec, str(tmp_path))
    threads, ports = listening(), connections(spark)
    for turn in range(1, N_QUERIES + 1):
        write(source, [change("+I", turn, "b", turn)], first=turn)
        assert run(spark, spec, str(tmp_path)).totals["steps"] == 1
    until(lambda: len(listening() - threads) <= OF_FINALIZERS, "the end of the threads")
    assert len(connections(spark) - ports) <= OF_FINALIZERS


def test_function_of_a_query_that_failed_holds_nothing_of_its_run(spark, tmp_path):
    def fail(step):
        raise ValueError("after the step")

    before = {id(function) for function in functions(spark)}
    spec = plain_spec(write(tmp_path / "in", [change("+I", 0, "a", 0)]))
    with contextlib.suppress(ValueError):
        run(spark, spec, str(tmp_path), on_progress=fail)
        pytest.fail("the failure is raised")
    for function in functions(spark):
        if id(function) in before:
            continue
        batches = batches_of(function)
        assert isinstance(batches, MicroBatches)
        assert (list(batches._made), batches._failure) == ([], None)
