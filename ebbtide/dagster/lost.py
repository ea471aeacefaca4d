"""Runs whose process was lost without a word: after a power cut, or with its code server, Dagster's default launcher never learns of it."""

from __future__ import annotations

from collections.abc import Container

import dagster as dg

from ebbtide.dagster.group import GROUP_TAG
from ebbtide.dagster.metadata import PIPELINE_TAG
from ebbtide.processes import Process


def end_lost(instance: dg.DagsterInstance, pipelines: Container[str], groups: Container[str]) -> None:
    """Report runs as failed whose process has ended: they would hold their turn, and keep the next one from it, until someone acts.

    That launcher starts runs on the host of the code server, where sensors are evaluated: there a process's number shows.

    Args:
        instance: Has the runs.
        pipelines: Names of the pipelines of this location.
        groups: Names of its groups.
    """
    if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        return
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        is_ours = run.tags.get(PIPELINE_TAG) in pipelines or run.tags.get(GROUP_TAG) in groups
        if is_ours and _is_lost(instance, run.run_id):
            instance.report_run_failed(run, "The process of the run has ended without a word, as by a power cut.")


def _is_lost(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether the process of a run is known to have ended."""
    found = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    for record in found.records:
        entry = record.event_log_entry
        pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
        if pid is not None:  # the first one is that of the run, later ones may be those of its steps
            return Process.has_ended(int(str(pid.value)), entry.timestamp)
    return False
