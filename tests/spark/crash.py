"""Runs a pipeline in a process of its own and kills it with SIGKILL at a named place: `crash.py SPEC.json ROOT PLACE`."""

import json
import os
import signal
import sys
from typing import Any

from ebbtide import UpsertPipeline
from ebbtide.runtime.driver import run
from ebbtide.runtime.session import build_session
from ebbtide.sinks.changelog import ChangelogTable
from ebbtide.sinks.delta import SinkTable
from ebbtide.sinks.quarantine import QuarantineTable
from ebbtide.state_table.table import StateTable

PLACES = {
    "before the decision": (StateTable, "commit_files", "before"),
    "after the decision": (StateTable, "commit_files", "after"),
    "after the sink": (SinkTable, "apply", "after"),
    "after the changelog": (ChangelogTable, "append", "after"),
    "before the quarantine": (QuarantineTable, "append", "before"),
    "after the quarantine": (QuarantineTable, "append", "after"),
}
STEP = 2


def arm(owner: type, name: str, when: str) -> None:
    """Make the call of the second step the last thing that this process does."""
    call, count = getattr(owner, name), [0]

    def fatal(*args: Any, **options: Any) -> Any:
        count[0] += 1
        if count[0] == STEP and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **options)
        if count[0] == STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, fatal)


if __name__ == "__main__":
    spec, root, place = sys.argv[1:]
    arm(*PLACES[place])
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
    }
    run(build_session(settings=settings), UpsertPipeline(**json.loads(spec)), root)
