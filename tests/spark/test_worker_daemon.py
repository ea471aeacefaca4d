"""What a Python worker of Spark on one machine has loaded as it begins."""


def test_workers_share_what_was_loaded_before_they_were_forked(spark):
    def found(_: object) -> tuple[list[str], int]:
        """Look at the worker. A function within a function goes there by its code, so that nothing is imported for it."""
        import gc
        import os
        from pathlib import Path

        daemon = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\0")
        return daemon[1:3], gc.get_freeze_count()

    [(command, n_frozen)] = spark.sparkContext.parallelize([0], 1).map(found).collect()
    assert command == ["-m", "ebbtide.runtime.worker_daemon"]
    assert n_frozen > 0


def test_modules_and_compiled_loops_are_loaded_without_a_thread():
    import subprocess
    import sys

    code = (
        "import sys, threading\n"
        "from ebbtide.runtime import worker_daemon\n"
        "from ebbtide.model import compiled\n"
        "worker_daemon.load()\n"
        "print(threading.active_count(), compiled.worth_compiling(1), set(worker_daemon.LOADED) <= sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "True", "True"], done.stderr
