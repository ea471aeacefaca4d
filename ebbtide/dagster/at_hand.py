"""The job whose run Dagster loads the definitions for: a worker of one pipeline builds nothing for the other ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

from ebbtide import Pipeline
from ebbtide.dagster.group import follow_name, followed_groups
from ebbtide.dagster.metadata import checks_name, run_name
from ebbtide.dagster.operations import job_name
from ebbtide.dagster.rounds import round_groups, round_name
from ebbtide.operations import operations

LOADS = "get_repository_definition"
"""The method by which Dagster loads the definitions for one job: of `ReconstructableJob`, which names it."""


def job_at_hand() -> str | None:
    """Return the name of the job that the definitions are loaded for; None if all are asked for.

    Dagster hands the name to no function that makes definitions. Each run worker, however it was launched, loads them by one
    method of its job: that is looked for among the callers. A module is loaded once for all jobs of a process, so it gets all.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the callers are not known otherwise
    while frame is not None and frame.f_code.co_name != "<module>":
        if frame.f_code.co_name == LOADS:
            name = getattr(frame.f_locals.get("self"), "job_name", None)
            return name if isinstance(name, str) else None
        frame = frame.f_back
    return None


def at_hand(specs: Sequence[Pipeline], job: str | None) -> Sequence[Pipeline]:
    """Return the pipelines whose tables a job needs: all for a job that a project has made.

    Args:
        specs: All pipelines of the project.
        job: Name of the job; None: all are asked for.

    Example:
        >>> at_hand([], None)
        []
    """
    for spec in specs:
        if job in {run_name(spec), checks_name(spec)}:
            return [spec]
    for group, members in followed_groups(specs).items():
        if job == follow_name(group):
            return members
    without_tables = {job_name(operation) for operation in operations()}
    without_tables |= {round_name(group) for group in round_groups(specs)}
    return [] if job in without_tables else specs
