"""Events of runs for a lineage catalog, by OpenLineage. Needs `pip install 'ebbtide[lineage]'`.

START as a run begins, COMPLETE, FAIL or ABORT at its end; in a continuous run RUNNING once a minute while it makes steps. The
variables `OPENLINEAGE_*` configure the client and its target. A thread sends, so the run does not wait for a catalog.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from ebbtide.environment import variable
from ebbtide.errors import MissingExtraError
from ebbtide.inspect._lineage_datasets import PRODUCER, Datasets
from ebbtide.redaction import shown
from ebbtide.runtime import Observer, Plan, RunBegun, RunEnded, StepProgress

try:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        documentation_job,
        error_message_run,
        job_type_job,
        processing_engine_run,
        sql_job,
    )
    from openlineage.client.uuid import generate_new_uuid
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("lineage", "OpenLineage's client") from missing

RUNNING_EVERY_S = 60.0
"""Minimum time between two events of a continuous run."""
MOST_WAITING = 100
"""Maximum queued events; further RUNNING events are dropped."""
SENT_WITHIN_S = 5.0
"""Seconds to wait at the end of a run for its events to be sent."""
_log = logging.getLogger(__name__)


class Lineage(Observer):
    """Sends the events of one run.

    Args:
        client: Sends them. Default: one by the variables `OPENLINEAGE_*`.
        now_s: A monotonic clock.
    """

    def __init__(self, client: OpenLineageClient | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._now_s = now_s
        self._last_s = 0.0
        self._counts: Counter[str] = Counter()
        self._run_id = str(generate_new_uuid())

    def begun(self, run: RunBegun) -> None:
        """Send START."""
        self._begun = run
        self._sender = _Sender(self._client or OpenLineageClient())
        self._send(RunState.START)

    def step(self, progress: StepProgress) -> None:
        """Add the counts of a step; in a continuous run send RUNNING periodically."""
        self._counts.update(progress.counts)
        if not self._begun.goes_on:
            return
        silent_s = self._now_s() - self._last_s
        if silent_s >= RUNNING_EVERY_S:
            self._send(RunState.RUNNING)

    def ended(self, end: RunEnded) -> None:
        """Send the end of the run, and wait a while for queued events."""
        facets: dict[str, Any] = {}
        state = RunState.ABORT if end.is_cut else RunState.COMPLETE
        if end.error is not None:
            is_error = isinstance(end.error, Exception)
            state = RunState.FAIL if is_error else RunState.ABORT  # an interrupt is not a failure
            message = shown(f"{type(end.error).__name__}: {end.error}")
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "python", producer=PRODUCER)
        self._send(state, facets)
        self._sender.close()

    def _send(self, state: RunState, facets: dict[str, Any] | None = None) -> None:
        """Send an event, with the records read and written so far."""
        self._last_s = self._now_s()
        # Planned again each time: columns may have been added.
        plan = Plan.under(self._begun.root, self._begun.spec)
        datasets = Datasets(plan, self._begun.is_fresh)
        release = version("ebbtide")
        engine = processing_engine_run.ProcessingEngineRunFacet(release, "ebbtide", producer=PRODUCER)
        run_facets = {"processing_engine": engine, **(facets or {})}
        has_ended = state is not RunState.START
        now = datetime.now(UTC)
        event = RunEvent(
            eventTime=now.isoformat(timespec="milliseconds"),
            eventType=state,
            run=Run(self._run_id, run_facets),
            job=self._job(),
            inputs=datasets.inputs(self._counts),
            outputs=datasets.outputs(self._counts, has_ended=has_ended),
            producer=PRODUCER,
        )
        self._sender.send(event)

    def _job(self) -> Job:
        """Return the pipeline, as a job of the namespace that `OPENLINEAGE_NAMESPACE` names."""
        spec = self._begun.spec
        kind = "STREAMING" if self._begun.goes_on else "BATCH"
        job_type = job_type_job.JobTypeJobFacet(kind, "EBBTIDE", "PIPELINE", producer=PRODUCER)
        facets: dict[str, Any] = {"jobType": job_type}
        if spec.description:
            facets["documentation"] = documentation_job.DocumentationJobFacet(spec.description, producer=PRODUCER)
        if spec.sql:
            facets["sql"] = sql_job.SQLJobFacet(spec.sql, "spark", producer=PRODUCER)
        namespace = variable("OPENLINEAGE_NAMESPACE", "ebbtide")
        return Job(namespace, spec.name, facets)


class _Sender:
    """A thread that sends events in order.

    Args:
        client: Sends one.
    """

    def __init__(self, client: OpenLineageClient) -> None:
        self._client = client
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(MOST_WAITING)
        self._has_warned = False
        self._thread = threading.Thread(target=self._work, daemon=True, name="openlineage")
        self._thread.start()

    def send(self, event: RunEvent) -> None:
        """Send an event after earlier ones."""
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._warn("more events wait than are kept")

    def close(self) -> None:
        """Wait until all events are sent, or a timeout."""
        end_s = time.monotonic() + SENT_WITHIN_S
        with suppress(queue.Full):
            self._waiting.put(None, timeout=SENT_WITHIN_S)
            self._thread.join(max(0.0, end_s - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"not all was sent within {SENT_WITHIN_S:g} s")

    def _work(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - of any transport; the run continues
                self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, why: str) -> None:
        """Warn once per run that events are lost."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("Lineage events are lost: %s", shown(why))
