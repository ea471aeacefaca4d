"""Runs a pipeline in a process of its own and kills it with SIGKILL at a named place: `crash.py SPEC.json ROOT PLACE [replay|once|follow]`."""

import json
import os
import signal
import sys
from typing import Any

from ebbtide import MaterializedView, UpsertPipeline, run
from ebbtide.operations._quarantine import replay as quarantine_replay
from ebbtide.runtime import system_clock
from ebbtide.runtime._following import Following
from ebbtide.sessions import build_session
from ebbtide.tables import ChangelogTable, QuarantineTable, Selection, SinkTable, StateTable

PLACES = {
    "before the decision": (StateTable, "perform", "before"),
    "after the decision": (StateTable, "perform", "after"),
    "after the sink": (SinkTable, "apply", "after"),
    "after the changelog": (ChangelogTable, "append", "after"),
    "before the quarantine": (QuarantineTable, "append", "before"),
    "after the quarantine": (QuarantineTable, "append", "after"),
}
STEP = 2


def arm(owner: type, name: str, when: str, number: int) -> None:
    """Make one of the calls the last thing that this process does."""
    call, count = getattr(owner, name), [0]

    def fatal(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **options)
        if count[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


if __name__ == "__main__":
    text, root, place, *job = sys.argv[1:]
    arm(*PLACES[place], STEP if job in ([], ["follow"]) else 1)
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    spark = build_session(settings=settings)
    given = json.loads(text)
    kind = MaterializedView if "query" in given else UpsertPipeline
    spec = kind(**given)
    if job == ["replay"]:
        quarantine_replay.apply(spark, spec, root, system_clock(), Selection())
    else:
        run(spark, spec, root, follow=Following(interval_ms=100) if job == ["follow"] else None)
