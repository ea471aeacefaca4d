"""The ends of a job's runs, and the time until the next one is launched: a failure that may pass is tried again, after a wait that doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from ebbtide.dagster.supervise import IS_TRANSIENT

FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 1_800.0
"""Wait before the next run after a failure: the first one, and the longest after many in a row."""
MOST_FAILED = 10
"""Last runs that the sensor looks at."""


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Args:
        run_id: Its id.
        status: The status that it ended with.
        end_s: Time of its end, seconds since 1970.
        is_wanted: A user has terminated it.
        is_lasting: It failed with an error that stays until a user acts.
    """

    run_id: str
    status: dg.DagsterRunStatus
    end_s: float
    is_wanted: bool = False
    is_lasting: bool = False

    @property
    def has_failed(self) -> bool:
        """Return whether it failed and may be tried again."""
        return self.status is not dg.DagsterRunStatus.SUCCESS


def reason_to_wait(ended: Sequence[Ended], now_s: float) -> str | None:
    """Return the reason to launch no run now; None if one is launched.

    Args:
        ended: The last runs, the newest first.
        now_s: The time, seconds since 1970.

    Example:
        >>> reason_to_wait([], 0.0) is None
        True
    """
    if not ended:
        return None
    newest = ended[0]
    if newest.is_wanted:
        return "the last run was terminated; launch the next one by hand"
    if newest.is_lasting:
        return "the last run failed with an error that does not pass by itself; correct the cause, and launch the next run by hand"
    n_failed = 0
    for run in ended:
        if not run.has_failed:
            break
        n_failed += 1
    if not n_failed:
        return None
    # The wait doubles with each failure in a row, up to the longest.
    wait_s = min(FIRST_WAIT_S * 2 ** (n_failed - 1), LONGEST_WAIT_S)
    left_s = newest.end_s + wait_s - now_s
    if left_s <= 0:
        return None
    return f"{n_failed} runs have failed in a row; the next one in {left_s:.0f} s"


def ended_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> Ended:
    """Return the end of a run, by its events.

    Args:
        instance: Has its events.
        record: The run.
    """
    run_id = record.dagster_run.run_id

    def events(kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        found = instance.get_records_for_run(run_id, of_type=kind).records
        return [each.event_log_entry.get_dagster_event() for each in found]

    is_lasting = False
    for event in events(dg.DagsterEventType.STEP_FAILURE):
        said = event.step_failure_data.user_failure_data
        is_transient = said.metadata.get(IS_TRANSIENT) if said else None
        is_lasting = is_lasting or (is_transient is not None and not is_transient.value)
    return Ended(
        run_id,
        record.dagster_run.status,
        record.end_time or record.update_timestamp.timestamp(),
        is_wanted=bool(events(dg.DagsterEventType.RUN_CANCELING)),
        is_lasting=is_lasting,
    )
