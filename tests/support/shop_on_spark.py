"""Runs the five shop pipelines on the Spark that is installed, then in process, and compares their sinks with the source database: `python shop_on_spark.py FOLDER`.

Exit code 0 if all are equal.
"""

import sys
import time
from pathlib import Path

from clusters.spark_support import cut, shop_lines, shop_spec, write
from oracles.shop_truth import same_as_truth

from ebbtide import InProcess, run
from ebbtide.sessions import build_session, end_session

NAMES = ("customers", "order_balances", "order_items", "orders", "price_list")
N_STEPS = 2


def main(folder: Path) -> int:
    """Run, compare, and print a line for each pipeline."""
    spark = build_session("shop", {"spark.master": "local[2]"})
    print(f"Spark {spark.version}", flush=True)
    n_different = 0
    for engine, executor in (("spark", spark), ("local", InProcess())):
        for name in NAMES:
            began = time.monotonic()
            spec = shop_spec(name, write(folder / "in" / name, *cut(shop_lines(name), N_STEPS)))
            run(executor, spec.model_copy(update={"engine": engine}), str(folder / engine))
            is_same = same_as_truth(spec, folder / engine)
            took_s = time.monotonic() - began
            print(f"{engine}: {name}: {'equal' if is_same else 'DIFFERENT'}, {took_s:.0f} s", flush=True)
            n_different += not is_same
    end_session(spark)
    return n_different


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
