"""The code location of `maintained.py`: one pipeline that is maintained by its schedules, and the same one that is not."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import dagster as dg

from ebbtide import StepProgress, UpsertPipeline
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions, stream

HOME = Path(os.environ["EBBTIDE_SOAK_DIR"])
EVERY_MINUTE = "* * * * *"
MAINTAINED: dict[str, Any] = {
    "stream": None,
    "cleanup": "*/5 * * * *",
    "early_cleanup": {"look": EVERY_MINUTE, "min_share": 0.1, "min_bytes": 0},
    "compaction": "1-59/3 * * * *",
    "vacuum": "2-59/4 * * * *",
}
UNMAINTAINED = {"stream": None, "cleanup": None, "compaction": None, "vacuum": None}


def spec(name: str, schedules: dict[str, Any]) -> UpsertPipeline:
    """Return a pipeline by arrival whose rows live for three minutes, in its sink, too."""
    return UpsertPipeline(
        name=name,
        schema="id BIGINT NOT NULL, at BIGINT, text STRING",
        key=["id"],
        source={"path": str(HOME / "in"), "records": "value", "max_files_per_step": 1},
        format={"type": "plain"},
        order="arrival",
        ttl="3m",
        materializer={"on_expire": "delete"},
        engine="local",
        schedules=schedules,
    )


SPECS = {name: spec(name, asked) for name, asked in (("maintained", MAINTAINED), ("unmaintained", UNMAINTAINED))}


class Measured(stream.Observer):
    """Notes the CPU time of the run's process after each step, too."""

    def step(self, step: StepProgress) -> None:
        """Note and report a step."""
        noted = {"process": os.getpid(), "at_s": time.time(), "cpu_s": time.process_time()}
        said = {"step": step.step, "kind": step.kind, "records": step.records, "wall_s": step.seconds}
        with (HOME / f"{step.pipeline}.jsonl").open("a", encoding="utf-8") as steps:
            steps.write(json.dumps(noted | said) + "\n")
        super().step(step)


stream.Observer = Measured  # type: ignore[misc]


@dg.definitions
def defs() -> dg.Definitions:
    """Return the location."""
    resources = {
        "spark": SparkResource(settings={"spark.driver.memory": "1g"}),
        "storage": StorageResource(root=str(HOME / "root"), data_docs=str(HOME / "docs")),
        "clock": ClockResource(),
    }
    return dg.Definitions.merge(
        pipeline_definitions(*SPECS.values()),
        dg.Definitions(resources=resources, executor=dg.in_process_executor),
    )
