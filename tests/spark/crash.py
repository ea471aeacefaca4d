"""Runs a pipeline in a process of its own and kills it with SIGKILL at a named place: `crash.py SPEC.json ROOT PLACE [once|follow]`."""

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from killing import arm

from ebbtide import MaterializedView, UpsertPipeline, run
from ebbtide.runtime._following import Following
from ebbtide.sessions import build_session

PLACES = {
    "before the decision": ("ebbtide.tables:StateTable", "perform", "before"),
    "after the decision": ("ebbtide.tables:StateTable", "perform", "after"),
    "after the sink": ("ebbtide.tables:SinkTable", "apply", "after"),
}
STEP = 2


if __name__ == "__main__":
    text, root, place, *job = sys.argv[1:]
    arm((*PLACES[place], 1 if job == ["once"] else STEP), signal.SIGKILL)
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    spark = build_session(settings=settings)
    given = json.loads(text)
    kind = MaterializedView if "query" in given else UpsertPipeline
    run(spark, kind(**given), root, follow=Following(interval_ms=100) if job == ["follow"] else None)
