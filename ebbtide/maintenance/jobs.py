"""The maintenance jobs of a pipeline: the one place that knows all. Importing this loads no Spark.

A new job is a module of its own with a `Step`, and an entry in `JOBS`; Dagster and the command line take it from there.
A schedule for it is a field of `ebbtide.spec.parts.Schedules` with its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.runtime.step import Stepper


class Step(Protocol):
    """What a job does, the lease held and the last step finished."""

    def __call__(self, spark: SparkSession, stepper: Stepper) -> bool:
        """Make one step (`Stepper.maintenance_step`, then `Stepper.commit`) at most; return whether one was made."""


@dataclass(frozen=True)
class MaintenanceJob:
    """One job.

    Args:
        name: Its name in Dagster, after the pipeline's.
        command: Its name on the command line.
        description: What it does, in a sentence.
        step: `module:function` of its `Step`, loaded when the job runs.
    """

    name: str
    command: str
    description: str
    step: str

    def load(self) -> Step:
        """Load what it does."""
        step: Step = resolve_name(self.step)
        return step


JOBS = (
    MaintenanceJob(
        name="cleanup",
        command="cleanup",
        description="Full snapshot: delete what has expired from the state, and what the quarantine's limits no longer keep.",
        step="ebbtide.maintenance.cleanup:cleanup",
    ),
    MaintenanceJob(
        name="compaction",
        command="compact",
        description="Fold the state to the newest version of each entry; join the sink's small files.",
        step="ebbtide.maintenance.compaction:compaction",
    ),
    MaintenanceJob(
        name="vacuum",
        command="vacuum",
        description="Delete files that no table needs any more, and commits past the log's retention.",
        step="ebbtide.maintenance.vacuum:vacuum",
    ),
)


def job_named(name: str) -> MaintenanceJob:
    """Return a job by its name.

    Raises:
        ConfigError: there is none of this name.
    """
    for job in JOBS:
        if job.name == name:
            return job
    allowed = ", ".join(job.name for job in JOBS)
    raise ConfigError.of(
        "There is no maintenance job of this name.",
        got=name,
        allowed=allowed,
    )
