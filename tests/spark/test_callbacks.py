"""What stays of a query in the process that began it."""

import threading
import time

from spark_support import change, plain_spec, write

from ebbtide.runtime.callbacks import CallbackConnection
from ebbtide.runtime.driver import run

WITHIN_S = 10


def listening():
    """Threads that wait for calls of the JVM."""
    return {thread for thread in threading.enumerate() if thread.name.endswith("(run)")}


def test_queries_that_have_ended_leave_neither_thread_nor_connection(spark, tmp_path):
    source = write(tmp_path / "in", [change("+I", 0, "a", 0)])
    spec = plain_spec(source)
    run(spark, spec, str(tmp_path))
    threads, connections = listening(), len(CallbackConnection(spark).kept_by_java())
    for turn in range(1, 3):
        write(source, [change("+I", turn, "b", turn)], first=turn)
        assert run(spark, spec, str(tmp_path)).totals["steps"] == 1
    end = time.monotonic() + WITHIN_S
    while listening() - threads and time.monotonic() < end:
        time.sleep(0.05)
    assert not listening() - threads
    assert len(CallbackConnection(spark).kept_by_java()) == connections
