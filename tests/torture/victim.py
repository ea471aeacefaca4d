"""One run of a pipeline with Spark, to be killed: `victim.py ORDER.json`. Small steps are dealt out to Python workers too."""

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from frame.limits import set_limits
from killing import arm
from operating import act
from victims import load

from ebbtide.operations import Context
from ebbtide.runtime import _driver as driver
from ebbtide.sessions import build_session, executor_of

SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.master": "local[2]",
}


def small() -> None:
    """Switch on for a few records what only many switch on."""
    set_limits(width=2, rows_in_driver=2, file_source_bytes_in_driver=0)


def work(order: dict) -> None:
    """Do what the order says."""
    small()
    if order.get("place"):
        arm(tuple(order["place"]), getattr(signal, order.get("signal", "SIGKILL")))
    spec, root = load(order["kind"], order["spec"]), order["root"]
    spark = build_session(settings=SETTINGS)
    Path(order["ready"]).touch()
    if order["work"] in ("repair", "acknowledge"):
        asked = {"reason": "meant so"} if order["work"] == "acknowledge" else {}
        act(order["work"], "apply", Context(spec, root, executor_of(spark)), **asked)
    else:
        getattr(driver, order["work"])(spark, spec, root)


if __name__ == "__main__":
    work(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
