"""A sensor to copy: it posts the failures of runs that need a hand, and leaves those to the next run that pass by themselves."""

import json
import os
from urllib.request import Request, urlopen

import dagster as dg

WEBHOOK = "FAILED_RUNS_WEBHOOK"
"""Variable of the environment: an address that takes `{"text": ...}`, as chats do."""
ANSWERS_WITHIN_S = 10


def may_pass(context: dg.RunFailureSensorContext) -> bool:
    """Return whether Ebbtide launches the run again by itself: a failed step says so, and so does a lost process."""
    for event in context.get_step_failure_events():
        failure = event.step_failure_data.user_failure_data
        is_transient = failure.metadata.get("is_transient") if failure else None
        if is_transient is not None and not is_transient.value:
            return False
    return True


def text_of(context: dg.RunFailureSensorContext) -> str:
    """Return what to post: the run, its pipeline, and the errors of its steps, which name what to do."""
    run = context.dagster_run
    partition = run.tags.get("ebbtide/pipeline") or run.tags.get("dagster/partition") or run.job_name
    lines = [f"{run.job_name} of {partition} has failed, run {run.run_id}: {context.failure_event.message}"]
    for event in context.get_step_failure_events():
        failure = event.step_failure_data.user_failure_data
        lines.append(str(failure.description if failure else event.message))
    return "\n".join(lines)


@dg.run_failure_sensor(
    name="failed_runs",
    description=f"Posts failures that need a hand to the address in {WEBHOOK}.",
)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Post a failure; an error here is shown by the sensor's tick."""
    text = text_of(context)
    address = os.environ.get(WEBHOOK)
    if may_pass(context) or not address:
        context.log.info(text)
        return
    body = json.dumps({"text": text}).encode()
    request = Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 - the operator's own address
    with urlopen(request, timeout=ANSWERS_WITHIN_S):  # noqa: S310 - likewise
        pass
