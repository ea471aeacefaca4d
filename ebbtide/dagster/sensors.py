"""The sensor on backlogs: each half minute they are reported and plotted, and bounded runs are launched to read them."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from dagster import BetaWarning

from ebbtide import Pipeline, UpsertPipelines
from ebbtide.amounts import amount
from ebbtide.dagster.ended import MOST_FAILED, ended_of, reason_to_wait
from ebbtide.dagster.lost import end_lost
from ebbtide.dagster.metadata import follows_its_source, run_name
from ebbtide.dagster.resources import ClockResource, StorageResource
from ebbtide.errors import EbbtideError, PausedError, Transient

if TYPE_CHECKING:
    from ebbtide.inspect import Lag
    from ebbtide.runtime import AtRest

# Dagster copies the sensors of components with all their parameters, and warns of each that was not given.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", BetaWarning)

EVERY_S = 30
"""Least time between two looks, seconds."""
LOOK_S = 30
"""Seconds after which a tick skips further pipelines."""
MOST_LINES = 10
"""Pipelines that the text of a tick names."""
TOPICS_EVERY_S = 300
"""The same, for topics that no pipeline reads."""
MOST_PARTITIONS = 32
"""Maximum partitions that are plotted separately; above it only the sum is."""
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass
class _Cursor:
    """State that the sensor keeps from its last tick.

    Args:
        seen: Name of a pipeline to the fingerprint of its backlog.
        next: Pipeline to look at first; empty: any.
    """

    seen: dict[str, str] = field(default_factory=dict)
    next: str = ""

    @classmethod
    def read(cls, text: str | None, names: Iterable[str]) -> Self:
        """Read a cursor; pipelines that are gone are forgotten."""
        if not text:
            return cls()
        found = cls(**json.loads(text))
        known = set(names)
        for gone in set(found.seen) - known:
            del found.seen[gone]
        return found

    def text(self) -> str:
        """Return the cursor as Dagster stores it."""
        return json.dumps(asdict(self))

    def in_turn(self, specs: Sequence[Pipeline]) -> list[Pipeline]:
        """Return the pipelines in the order of evaluation: those that the last tick did not reach come first."""
        first = 0
        for number, spec in enumerate(specs):
            if spec.name == self.next:
                first = number
        left_over = specs[first:]
        looked_at = specs[:first]
        return [*left_over, *looked_at]


def backlog_sensor(specs: Sequence[Pipeline], runs: Mapping[str, Any]) -> dg.SensorDefinition:
    """Make the sensor that plots backlogs, and launches a bounded run where there is one; switched off at first.

    Args:
        specs: All pipelines of a project.
        runs: Name of a pipeline to the job of its runs.
    """

    @dg.sensor(
        name="ebbtide_backlog",
        jobs=list(runs.values()),
        minimum_interval_seconds=EVERY_S,
        description="Plots what waits in the source of each pipeline, and launches the job of each bounded pipeline where anything does.",
    )
    def look(
        context: dg.SensorEvaluationContext,
        storage: StorageResource,
        clock: ClockResource,
    ) -> dg.SensorResult:
        cursor = _Cursor.read(context.cursor, runs)
        end_lost(context.instance, runs, {spec.group for spec in specs})
        tick = _Tick(context.instance, storage.root, clock.now_ms(), cursor.seen)
        in_turn = cursor.in_turn(specs)
        cursor.next = ""
        end = time.monotonic() + LOOK_S
        for n_looked, spec in enumerate(in_turn):
            # Dagster ends a tick after 60 s and loses what it has found: the rest is left to the next tick.
            if n_looked and time.monotonic() > end:
                cursor.next = spec.name
                break
            tick.look(spec)
        for error in tick.errors:
            context.log.error(error)
        return dg.SensorResult(
            run_requests=tick.requests,
            skip_reason=None if tick.requests else tick.text(),
            asset_events=tick.observations,
            cursor=cursor.text(),
        )

    return look


class _Tick:
    """One look at the backlogs of pipelines.

    Args:
        instance: Has the runs.
        root: Folder of all pipelines' tables.
        now_ms: The time, epoch ms.
        seen: Name of a pipeline to the fingerprint of the backlog seen last; is kept up to date.
    """

    def __init__(self, instance: dg.DagsterInstance, root: str, now_ms: int, seen: dict[str, str]) -> None:
        self._instance = instance
        self._root = root
        self._now_ms = now_ms
        self._seen = seen
        filters = dg.RunsFilter(statuses=UNDER_WAY)
        under_way = instance.get_runs(filters)
        self._under_way = {run.job_name for run in under_way}
        self.requests: list[dg.RunRequest] = []
        self.observations: list[dg.AssetObservation] = []
        self.errors: list[str] = []
        self._waiting: list[str] = []
        self._n_looked = 0

    def look(self, spec: Pipeline) -> None:
        """Look at a pipeline. A source that cannot be read is noted, and keeps no other pipeline from its run."""
        from ebbtide.inspect import Lag
        from ebbtide.runtime import AtRest

        self._n_looked += 1
        found = refusal = None
        obstacle = ""
        try:
            at_rest = AtRest.of(spec, self._root)
            refusal = at_rest.refusal
            obstacle = why_not(spec, self._root)
            found = Lag.at_rest(at_rest, self._now_ms)
        except Transient as error:
            self.errors.append(f"{spec.name}: {error}")
        except EbbtideError as error:
            refusal = refusal or error
        if refusal is not None:
            self.errors.append(f"{spec.name}: the next run is refused: {refusal}")
        if found is None:
            if refusal is not None:
                self._launch_refused(spec, refusal, obstacle)
            return
        is_news = found.fingerprint != self._seen.get(spec.name)
        goes_on = spec.run == "continuous"
        # Records that wait get older although none arrives: their age is plotted again.
        waits_on = bool(found.backlog.held) or (goes_on and not found.backlog.is_empty)
        if is_news or waits_on:
            self.observations.append(_observation(spec, found))
        held_by = self._launch_reading(spec, found, obstacle, is_news=is_news)
        if found.backlog.is_empty and follows_its_source(spec) and not self._obstacle(spec, obstacle):
            self._launch_expiry(spec, at_rest)
        if not found.backlog.is_empty or found.backlog.held:
            because = f"; {held_by}" if held_by else ""
            self._waiting.append(f"{spec.name}: {found.text()}{because}")

    def _launch_again(self, spec: Pipeline, found: Lag) -> str:
        """Launch a run for a backlog whose last run failed by what may pass, or lost its process; return the reason to launch none.

        A backlog counts as read only once a run has succeeded. An error that stays until a user acts is not tried again.
        """
        failed, reason = self._failed(spec)
        if failed and not reason:
            self._request(spec, f"{found.fingerprint} after {failed}")
        return reason

    def _failed(self, spec: Pipeline) -> tuple[str, str]:
        """Return the id of a pipeline's last run if it failed, else an empty text; and the reason to launch no further one yet."""
        of_pipeline = dg.RunsFilter(job_name=run_name(spec))
        records = self._instance.get_run_records(of_pipeline, limit=MOST_FAILED)
        ended = [ended_of(self._instance, record) for record in records]
        if not ended or not ended[0].has_failed:
            return "", ""
        return ended[0].run_id, reason_to_wait(ended, self._now_ms / 1000) or ""

    def _launch_refused(self, spec: Pipeline, refusal: EbbtideError, obstacle: str) -> None:
        """Launch a run that will be refused, once for a refusal: its failure is what pages, though what waits is unknown."""
        if not follows_its_source(spec) or self._obstacle(spec, obstacle):
            return
        digest = sha256(str(refusal).encode()).hexdigest()[:16]
        refused = f"refused {digest}"
        if self._seen.get(spec.name) == refused:
            return
        self._seen[spec.name] = refused
        self._request(spec, f"{refused} after {_last_run(self._instance, run_name(spec))}")

    def _request(self, spec: Pipeline, reason: str) -> None:
        """Have a run launched; for one reason Dagster launches no second one."""
        self.requests.append(dg.RunRequest(run_key=f"{spec.name} {reason}", job_name=run_name(spec)))

    def _obstacle(self, spec: Pipeline, obstacle: str) -> str:
        """Return the reason to launch no run now; empty if there is none."""
        return obstacle or ("a run is under way" if run_name(spec) in self._under_way else "")

    def _launch_reading(self, spec: Pipeline, found: Lag, obstacle: str, *, is_news: bool) -> str:
        """Launch a run for a backlog: if it is news, or again if the last run for it failed; return the reason to launch none yet."""
        if not follows_its_source(spec):
            self._seen[spec.name] = found.fingerprint
            return ""
        if not is_news:
            return "" if found.backlog.is_empty else self._obstacle(spec, obstacle) or self._launch_again(spec, found)
        if not self._launch(spec, found, obstacle):
            return self._obstacle(spec, obstacle)
        self._seen[spec.name] = found.fingerprint
        return ""

    def _launch(self, spec: Pipeline, found: Lag, obstacle: str) -> bool:
        """Launch a run for what waits; return False if it has to be looked at again, since none may be launched now."""
        if self._obstacle(spec, obstacle):
            return False
        # One run for a backlog; `_launch_again` launches the next one if that fails.
        if not found.backlog.is_empty:
            # Named after the last run too: after a rewind the same records wait again, and Dagster launches no key twice.
            self._request(spec, f"{found.fingerprint} after {_last_run(self._instance, run_name(spec))}")
        return True

    def _launch_expiry(self, spec: Pipeline, at_rest: AtRest) -> None:
        """Launch a run where nothing waits but entries have expired, or timers are due: once for a version of the state, and after each failure that may pass."""
        try:
            is_due = at_rest.is_due(self._now_ms)
        except EbbtideError as error:  # of a file of the state: no other pipeline loses its look
            self.errors.append(f"{spec.name}: {error}")
            return
        if not is_due:
            return
        failed, reason = self._failed(spec)
        again = f" after {failed}" if failed and not reason else ""
        self._request(spec, f"expires after step {at_rest.head.facts.step}{again}")

    def text(self) -> str:
        """Describe the backlog and unreadable sources."""
        lines = [*self.errors, *self._waiting]
        if not lines:
            return f"nothing waits in the sources of {amount(self._n_looked, 'pipeline')}"
        first = lines[:MOST_LINES]
        n_more = len(lines) - len(first)
        if n_more:
            first.append(f"{n_more} more")
        return "\n".join(first)


def why_not(spec: Pipeline, root: str) -> str:
    """Return the reason to launch no run, a pause; empty if there is none.

    Args:
        root: Folder of all pipelines' tables.
    """
    from ebbtide.runtime import Plan

    try:
        Plan.under(root, spec).ledger.refuse_paused()
    except PausedError as error:
        return str(error)
    return ""


def topics_sensor(several: UpsertPipelines) -> dg.SensorDefinition:
    """Make the sensor that reports topics which no pipeline of a file reads; switched off at first.

    Args:
        several: The pipelines, with a pattern of topics.
    """

    @dg.sensor(
        name=f"{several.name}_{several.listed}",
        minimum_interval_seconds=TOPICS_EVERY_S,
        description=f"Looks for {several.listed} like '{several.pattern}' that no pipeline of '{several.name}' reads, and reports them.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from ebbtide.inspect import UnreadTopics

        try:
            found = UnreadTopics.of(several)
        except Transient as error:
            return dg.SkipReason(str(error))
        if found is None:
            return dg.SkipReason("no pattern")
        text = found.text()
        if found.topics and context.cursor != text:
            context.log.warning(text)
        context.update_cursor(text)
        return dg.SkipReason(text)

    return look


def _last_run(instance: dg.DagsterInstance, job_name: str) -> str:
    runs = instance.get_runs(dg.RunsFilter(job_name=job_name), limit=1)
    return runs[0].run_id if runs else "none"


def _observation(spec: Pipeline, found: Lag) -> dg.AssetObservation:
    """Return the numbers of a backlog for plots in the UI; 0 s for a topic where nothing waits, as the plot would have gaps."""
    numbers: dict[str, Any] = {}
    counts = found.as_dict()
    for name in ("files", "bytes", "records"):
        if counts[name] is not None:
            numbers[f"waiting_{name}"] = counts[name]
    partitions = found.backlog.records
    held = found.backlog.held
    if partitions:
        numbers["held_records"] = sum(held.values())
    # A topic without waiting records counts as 0 s behind; an unknown age of a waiting one is left out.
    if found.behind_ms is not None or (partitions and found.backlog.is_empty and not held):
        numbers["waiting_seconds"] = (found.behind_ms or 0) / 1000
    if len(partitions) <= MOST_PARTITIONS:
        for partition, n in partitions.items():
            numbers[f"waiting_records_{partition}"] = n
        for partition, behind_ms in found.behind_ms_of.items():
            numbers[f"waiting_seconds_{partition}"] = behind_ms / 1000
    return dg.AssetObservation(spec.name, metadata=numbers)
