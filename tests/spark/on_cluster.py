"""Runs the shop's orders on a cluster: `python on_cluster.py MASTER SOURCE ROOT`. Prints `step N` after each step."""

import sys

from spark_support import shop_spec

from ebbtide.runtime import decide
from ebbtide.runtime.driver import run
from ebbtide.runtime.session import build_session
from ebbtide.sources import file_source


def say(what):
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def main():
    master, source, root = sys.argv[1:]
    decide.ROWS_IN_DRIVER = 1  # so that the workers do all
    file_source.BYTES_IN_DRIVER = 0
    spark = build_session(
        "cluster", {"spark.master": master, "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "4"}
    )
    run(
        spark,
        shop_spec("orders", source, files=2),
        root,
        on_progress=lambda step: say(f"step {step.step}"),
    )
    say("done")


if __name__ == "__main__":
    main()
