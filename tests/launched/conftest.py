"""`dagster dev`, really started, and driven over GraphQL."""

import importlib.util
import json
import os
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clusters.spark_support import change, write
from dagster_process import dagster_process
from frame.waiting import PATIENCE_S

from ebbtide import Pipeline

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
LOCATION = "tests"
collect_ignore = ["project.py"]  # what Dagster loads, not a test
TERMINAL = {"SUCCESS", "FAILURE", "CANCELED"}


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.launched)
    item.add_marker(pytest.mark.group("launched"))  # they share one instance


class Dagster:
    """One running instance."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.home = url, home

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
            found = json.load(answer)
        assert "errors" not in found, found
        return found["data"]

    def launch(
        self,
        job: str,
        assets: list[str] | None = None,
        checks: list[tuple[str, str]] | None = None,
        config: dict[str, Any] | None = None,
        partition: str | None = None,
    ) -> str:
        selector = self.selector(job)
        if assets is not None:
            selector["assetSelection"] = [{"path": [name]} for name in assets]
        if checks is not None:
            selector["assetCheckSelection"] = [{"assetKey": {"path": [a]}, "name": n} for a, n in checks]
        launched = self.ask(
            "mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename "
            "... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }",
            p={
                "selector": selector,
                "mode": "default",
                "runConfigData": config or {},
                "executionMetadata": {"tags": self.tags_of(job, partition) if partition else []},
            },
        )["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def tags_of(self, job: str, partition: str) -> list[dict[str, str]]:
        """Return the tags that the launchpad gives a run of a partition."""
        query = """query($s: PipelineSelector!, $p: String!) { pipelineOrError(params: $s) { ... on Pipeline {
            partition(partitionName: $p) { tagsOrError { ... on PartitionTags { results { key value } } } } } } }"""
        selector = {**self.selector(job), "pipelineName": job}
        del selector["jobName"]
        found = self.ask(query, s=selector, p=partition)["pipelineOrError"]
        return found["partition"]["tagsOrError"]["results"]

    def selector(self, job: str) -> dict[str, Any]:
        return {"repositoryLocationName": LOCATION, "repositoryName": "__repository__", "jobName": job}

    def reload(self) -> None:
        """Load the location anew, as the button does after a spec was edited."""
        query = """mutation($n: String!) { reloadRepositoryLocation(repositoryLocationName: $n) {
            ... on WorkspaceLocationEntry { loadStatus locationOrLoadError { __typename } } } }"""
        found = self.ask(query, n=LOCATION)["reloadRepositoryLocation"]
        assert found == {"loadStatus": "LOADED", "locationOrLoadError": {"__typename": "RepositoryLocation"}}, found

    def status(self, run: str) -> str:
        query = "query($r: ID!) { runOrError(runId: $r) { ... on Run { status } } }"
        return self.ask(query, r=run)["runOrError"]["status"]

    def end_of(self, run: str) -> str:
        return self.until(lambda: (status := self.status(run)) in TERMINAL and status, f"run {run} ends")

    def succeeded(self, run: str) -> str:
        """Wait for the end of a run, which must be a good one; return it."""
        assert self.end_of(run) == "SUCCESS", self.events(run)
        return run

    def until(self, is_true: Callable[[], Any], what: str, seconds: float = 300) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := is_true():
                return found
            time.sleep(1)  # each look costs CPU in the webserver and here
        raise AssertionError(f"waited {seconds} s for this: {what}")

    def events(self, run: str) -> list[dict[str, Any]]:
        query = """query($r: ID!) { logsForRun(runId: $r, limit: 1000) { ... on EventConnection { events {
            __typename ... on MessageEvent { message stepKey }
            ... on ObservationEvent { assetKey { path } metadataEntries { label ... on IntMetadataEntry { intValue }
                ... on TextMetadataEntry { text } ... on MarkdownMetadataEntry { mdStr } } }
            ... on ExecutionStepFailureEvent { error { message causes { message } } }
            ... on AssetCheckEvaluationEvent { evaluation { checkName success severity
                metadataEntries { label ... on TableMetadataEntry { table { records } } } } } } } } }"""
        return self.ask(query, r=run)["logsForRun"]["events"]

    def observed(self, run: str) -> list[tuple[str, dict[str, Any]]]:
        """What a run has observed: the asset, and its numbers and texts by label."""
        return [
            (
                event["assetKey"]["path"][-1],
                {entry.pop("label"): next(iter(entry.values()), None) for entry in event["metadataEntries"]},
            )
            for event in self.events(run)
            if event["__typename"] == "ObservationEvent"
        ]

    def checks(self, run: str) -> dict[str, dict[str, Any]]:
        found = [e["evaluation"] for e in self.events(run) if e["__typename"] == "AssetCheckEvaluationEvent"]
        return {each["checkName"]: each for each in found}

    def verdicts(self, run: str) -> dict[str, bool]:
        return {name: check["success"] for name, check in self.checks(run).items()}

    def jvms(self) -> list[int]:
        """The Java processes of this instance."""
        found = []
        ours = f"DAGSTER_HOME={self.home}".encode()  # each has a session of its own, and may outlive its parent
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_java = (process / "comm").read_text().strip() == "java"
                environment = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if is_java and ours in environment:
                found.append(int(process.name))
        return found

    def runs(self, job: str) -> list[tuple[str, str]]:
        """The runs of a job and their statuses, the oldest first."""
        query = """query($j: String!) { runsOrError(filter: {pipelineName: $j}) { ... on Runs {
            results { runId status } } } }"""
        found = self.ask(query, j=job)["runsOrError"]["results"]
        return [(run["runId"], run["status"]) for run in reversed(found)]

    def terminate(self, run: str) -> None:
        """Ask a run to end."""
        self.ask("mutation($r: String!) { terminateRun(runId: $r) { __typename } }", r=run)

    @contextmanager
    def sensor(self, name: str) -> Iterator[None]:
        """Have a sensor switched on."""
        selector = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__", "sensorName": name}
        start = """mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename
            ... on Sensor { sensorState { id } } } }"""
        started = self.ask(start, s=selector)["startSensor"]
        assert started["__typename"] == "Sensor", started
        yield
        self.ask("mutation($i: String) { stopSensor(id: $i) { __typename } }", i=started["sensorState"]["id"])


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the test location has its input and its tables."""
    return tmp_path_factory.mktemp("launched")


@pytest.fixture
def spec(home: Path, dagster_dev: Dagster, shell: pytest.MonkeyPatch) -> Callable[[str], Pipeline]:
    """Give a pipeline of the test location by name."""
    shell.export(EBBTIDE_TEST_DIR=home)
    found = importlib.util.spec_from_file_location("launched_project", HERE / "project.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.SPECS.__getitem__


@pytest.fixture(scope="package")  # it would go on working beside the other tests
def dagster_dev(home: Path) -> Iterator[Dagster]:
    instance = home / "dagster"
    instance.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", instance)
    workspace = home / "workspace.yaml"
    place = {"relative_path": str(HERE / "project.py"), "location_name": LOCATION, "working_directory": str(PROJECT)}
    workspace.write_text(json.dumps({"load_from": [{"python_file": place}]}))  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)]
    environment = os.environ | {"DAGSTER_HOME": str(instance), "EBBTIDE_TEST_DIR": str(home)}
    with dagster_process(command, home / "dagster.log", PROJECT, environment):
        running = Dagster(f"http://127.0.0.1:{port}", instance)
        running.until(lambda: _answers(running), "dagster dev answers", 180)
        yield running


@pytest.fixture(scope="package")
def sales_run(dagster_dev: Dagster, home: Path) -> str:
    """A run of a small pipeline that succeeded."""
    write(home / "in" / "sales", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)], [change("-D", 1, "a", 3)])
    return dagster_dev.succeeded(dagster_dev.launch("sales"))


def _answers(running: Dagster) -> bool:
    try:
        found = running.ask("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
    except (urllib.error.URLError, OSError):
        return False
    return bool(found["repositoriesOrError"].get("nodes"))
