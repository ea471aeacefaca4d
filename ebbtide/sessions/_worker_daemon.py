"""Starts Spark's Python workers on one machine: `spark.python.daemon.module`.

Spark's own daemon forks a worker that has nothing loaded, and each collects cycles among all its objects after each task. This one loads
the modules of a step before it forks: once instead of in each worker. Their objects are left out of the collections that follow.
"""

from __future__ import annotations

import gc
import importlib
import os

import numpy as np

from ebbtide.formats import Decoding

LOADED = (
    "pyspark.worker",
    "ebbtide.operators._sequence.operator",
    "ebbtide.sources._files",
    "ebbtide.runtime._workers.deciding",
    "ebbtide.tables._state.rewriting",
    "ebbtide.runtime._workers.staging",
)
"""Modules that the tasks of a step import. None of them starts a thread of Python's: a fork has only the thread that made it."""


def load() -> None:
    """Load the modules, and leave what they hold out of each later collection of cycles."""
    for name in LOADED:
        importlib.import_module(name)
    Decoding.load_loops()
    # Else functions of the user's draw the same numbers in each worker.
    os.register_at_fork(after_in_child=np.random.seed)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    import pyspark.daemon

    load()
    pyspark.daemon.manager()
