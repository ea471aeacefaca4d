"""Jobs that a Dagster webserver launches: each is a run of a pipeline's job `NAME_stream`, to be seen in Dagster's UI."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ebbtide.errors import SqlError
from ebbtide.sql.catalog import Filled
from ebbtide.sql.jobs import JobStatus

TIMEOUT_S = 60
"""How long the webserver may take to answer; it loads a location again meanwhile."""
MOST_RUNS = 100
"""Runs that are listed."""
STREAM = "_stream"
"""What the name of a pipeline's job ends with."""
ORIGIN = "ebbtide/sql"
"""Tag of the runs that SQL launched."""
CLIENT = "ebbtide/sql-client"
"""Tag of those that a gateway's client began: its name."""
_STATUSES = {
    "SUCCESS": JobStatus.FINISHED,
    "FAILURE": JobStatus.FAILED,
    "CANCELED": JobStatus.FINISHED,
    "CANCELING": JobStatus.STOPPING,
}
_REPOSITORIES = """{ repositoriesOrError { ... on RepositoryConnection { nodes {
    name location { name } jobs { name } } } ... on PythonError { message } } }"""
_RELOAD = """mutation($location: String!) { reloadRepositoryLocation(repositoryLocationName: $location) {
    __typename ... on PythonError { message } } }"""
_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
    ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } } }"""
_RUNS = """query($filter: RunsFilter!, $limit: Int!) { runsOrError(filter: $filter, limit: $limit) { ... on Runs { results {
    runId jobName status creationTime tags { key value } } } ... on PythonError { message } } }"""
_TERMINATE = """mutation($run: String!) { terminateRun(runId: $run) { __typename ... on PythonError { message } } }"""


@dataclass(frozen=True)
class DagsterJob:
    """A run of Dagster.

    Args:
        id: Of the run.
        pipelines: Name of the one that it runs.
        started: When it was created, as ISO 8601 in UTC.
        status: Where it stands.
        server: What launched it.
        started_by: Name of the gateway's client that began it; empty: not a gateway's.
    """

    id: str
    pipelines: tuple[str, ...]
    started: str
    status: JobStatus
    server: DagsterJobs
    started_by: str = ""

    @property
    def message(self) -> str:
        """Where it can be seen."""
        return f"{self.server.url}/runs/{self.id}"

    def stop(self) -> None:
        """Terminate it: it ends after its step."""
        self.server.ask(_TERMINATE, run=self.id)


@dataclass(frozen=True)
class DagsterJobs:
    """The runs of a Dagster webserver that SQL launched.

    Args:
        url: Of the webserver.
    """

    url: str

    def all(self) -> list[DagsterJob]:
        """Return the newest of them, the newest first."""
        answered = self.ask(_RUNS, filter=_tagged(), limit=MOST_RUNS)
        runs = answered["runsOrError"]["results"]
        return [self._job(run) for run in runs]

    def start(self, pipelines: Sequence[Filled], *, once: bool = False, by: str = "") -> list[DagsterJob]:
        """Launch a run of each pipeline; a location that lacks one is loaded again first. Further runs are Dagster's to launch.

        Raises:
            SqlError: no location has the pipeline, or Dagster refuses.
        """
        selectors = [self._selector(pipeline.name) for pipeline in pipelines]
        return [self._launched(selector, by) for selector in selectors]

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Ask the webserver.

        Raises:
            SqlError: it does not answer, or refuses.
        """
        asked = {
            "query": query,
            "variables": variables,
        }
        request = urllib.request.Request(  # noqa: S310 - the URL is the environment's
            f"{self.url}/graphql",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                found = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise SqlError.of(
                f"Dagster's webserver at '{self.url}' does not answer.",
                got=str(error),
                next_step="Start it, or take 'dagster' out of the environment's file: jobs are processes then.",
            ) from error
        if "errors" in found:
            raise SqlError.of("Dagster refuses.", got=found["errors"][0].get("message"))
        data: dict[str, Any] = found["data"]
        for part in data.values():
            is_refusal = isinstance(part, dict) and "message" in part
            if is_refusal:
                raise SqlError.of("Dagster refuses.", got=part["message"])
        return data

    def _selector(self, pipeline: str) -> dict[str, str]:
        """Return what Dagster finds the job of a pipeline by."""
        job = pipeline + STREAM
        selector = self._find(job)
        if selector is None:
            for location in self._locations():
                self.ask(_RELOAD, location=location)
            selector = self._find(job)
        if selector is None:
            raise SqlError.of(
                f"Dagster at '{self.url}' has no job '{job}'.",
                allowed=f"definitions in one of its locations: {', '.join(self._locations())}",
                next_step="Give --defs the folder that Dagster loads.",
            )
        return selector

    def _find(self, job: str) -> dict[str, str] | None:
        for repository in self._repositories():
            jobs = [each["name"] for each in repository["jobs"]]
            if job in jobs:
                return {
                    "repositoryLocationName": repository["location"]["name"],
                    "repositoryName": repository["name"],
                    "jobName": job,
                }
        return None

    def _locations(self) -> list[str]:
        return [repository["location"]["name"] for repository in self._repositories()]

    def _repositories(self) -> list[dict[str, Any]]:
        found = self.ask(_REPOSITORIES)["repositoriesOrError"]
        nodes: list[dict[str, Any]] = found.get("nodes", [])
        return nodes

    def _launched(self, selector: dict[str, str], by: str) -> DagsterJob:
        params = {
            "selector": selector,
            "mode": "default",
            "executionMetadata": _tagged({CLIENT: by} if by else {}),
        }
        answered = self.ask(_LAUNCH, params=params)
        launched = answered["launchRun"]
        if "run" not in launched:
            raise SqlError.of("Dagster refuses to launch the run.", got=launched)
        pipeline = selector["jobName"].removesuffix(STREAM)
        return DagsterJob(
            id=launched["run"]["runId"],
            pipelines=(pipeline,),
            started=_text(datetime.now(UTC)),
            status=JobStatus.RUNNING,
            server=self,
            started_by=by,
        )

    def _job(self, run: dict[str, Any]) -> DagsterJob:
        pipeline = run["jobName"].removesuffix(STREAM)
        created = datetime.fromtimestamp(run["creationTime"], UTC)
        tags = {tag["key"]: tag["value"] for tag in run["tags"]}
        return DagsterJob(
            id=run["runId"],
            pipelines=(pipeline,),
            started=_text(created),
            status=_STATUSES.get(run["status"], JobStatus.RUNNING),
            server=self,
            started_by=tags.get(CLIENT, ""),
        )


def _tagged(more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the runs that SQL launched have in common, with more tags."""
    tags = {ORIGIN: "true", **(more or {})}
    return {"tags": [{"key": key, "value": value} for key, value in tags.items()]}


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
