"""What a Python worker of Spark on one machine has loaded as it begins."""

import subprocess
import sys


def test_workers_share_what_was_loaded_before_they_were_forked(spark):
    def found(_: object) -> tuple[list[str], int]:
        """Look at the worker. A function within a function goes there by its code, so that nothing is imported for it."""
        import gc
        import os
        from pathlib import Path

        daemon = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        return daemon[1:3], gc.get_freeze_count()

    [(command, n_frozen)] = spark.sparkContext.parallelize([0], 1).map(found).collect()
    assert command == ["-m", "ebbtide.sessions._worker_daemon"]
    assert n_frozen > 0


LOADED = """
import sys, threading
from ebbtide.columns import CompiledLoop
from ebbtide.sessions import _worker_daemon as worker_daemon
worker_daemon.load()
print(threading.active_count(), CompiledLoop.pays(1), set(worker_daemon.LOADED) <= sys.modules.keys())
"""
DRAWN = """
import os, sys
import numpy as np
from ebbtide.sessions import _worker_daemon as worker_daemon
worker_daemon.load()
for _ in range(2):
    if os.fork() == 0:
        os.write(1, f"{np.random.random()} ".encode())
        os._exit(0)
    os.wait()
"""


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_modules_and_compiled_loops_are_loaded_without_a_thread():
    assert printed(LOADED) == ["1", "True", "True"]


def test_workers_draw_different_numbers():
    first, second = printed(DRAWN)
    assert first != second
