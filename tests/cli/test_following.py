"""`ebbtide run --follow` with many pipelines: one process follows all, and its exit code and metrics name the bad ones."""

import json
import os
import signal

import pytest
from click.testing import CliRunner
from frame.waiting import PATIENCE_S
from local.fleet_support import NAMES, Project
from local.metrics_support import OPENMETRICS, get
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ebbtide.cli import main
from ebbtide.ledger import Ledger


def test_fleet_that_was_killed_goes_on_with_all_its_pipelines(tmp_path):
    project = Project(tmp_path)
    for name in NAMES:
        project.put(name, 3)
    killed = project.follow()
    project.wait(killed, "a")
    for name in NAMES:
        project.put(name, 5)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    again = project.follow()
    project.put("c", 2)
    project.wait(again, *NAMES)
    again.terminate()
    said, _ = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0
    assert sorted(line[0] for line in said.splitlines() if line[1:2] == ":") == list(NAMES)
    turns = [Ledger(f"{project.root}/{name}/ledger", name).turn for name in NAMES]
    assert [turn.is_free for turn in turns] == [True] * 3


def test_bad_pipeline_is_named_and_the_others_go_on(tmp_path):
    project = Project(tmp_path)
    (tmp_path / "data" / "b").rename(tmp_path / "data" / "aside")
    for name in ("a", "c"):
        project.put(name, 1)
    process = project.follow("--metrics-port", "0", "--log-format", "json")
    port = int(json.loads(process.stderr.readline())["message"].rpartition(":")[2].partition("/")[0])
    project.wait(process, "a", "c")
    found = {}
    while found.get("b") != 1:
        families = text_string_to_metric_families(get(port, "/metrics", Accept=OPENMETRICS)[2])
        [failing] = [family for family in families if family.name == "ebbtide_run_failing"]
        found = {sample.labels["pipeline"]: sample.value for sample in failing.samples}
    assert found == {"a": 0, "b": 1, "c": 0}
    status, _, text = get(port, "/healthz")
    health = json.loads(text)
    assert (status, health["is_healthy"]) == (200, True), "a probe that ended it would end the others"
    by_name = {each["pipeline"]: each for each in health["pipelines"]}
    assert [by_name[name]["is_healthy"] for name in NAMES] == [True, False, True]
    assert by_name["b"]["failure"].startswith("SourceReadError: The source folder")
    with process:
        process.terminate()
        logged = process.stderr.read()  # `communicate` would miss what was read ahead with the first line
    assert process.returncode == 5, "that of the bad one"
    errors = [json.loads(line) for line in logged.splitlines() if '"ERROR"' in line]
    assert {(error["pipeline"], error["error"]) for error in errors} == {("b", "SourceReadError")}


def test_fleet_whose_pipelines_have_all_failed_ends_with_their_exit_code(tmp_path):
    project = Project(tmp_path, ("a", "b"))
    for name in ("a", "b"):
        (tmp_path / "data" / name).rmdir()
    ended = CliRunner().invoke(main, project.command("--engine", "local"))
    assert ended.exit_code == 5
    assert ended.stderr.count("Error: SourceReadError") == 2


@pytest.mark.parametrize(
    ("follow", "kinds", "said"),
    [
        ((), ("continuous", "bounded"), "Continuous and bounded runs cannot be started together."),
        (("--metrics-port", "0"), ("bounded", "bounded"), "Only continuous runs serve metrics."),
    ],
)
def test_runs_that_go_on_are_not_begun_with_those_that_end(tmp_path, follow, kinds, said):
    places = []
    for name, kind in zip("ab", kinds, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        Project(folder, (name,), run=kind)
        places.append(str(folder / "defs"))
    refused = CliRunner().invoke(main, ["run", *places, "--root", str(tmp_path / "root"), *follow])
    assert (refused.exit_code, said in refused.stderr) == (2, True)


def test_process_ends_with_the_jvm_that_its_pipelines_share(tmp_path, monkeypatch):
    project = Project(tmp_path, ("a", "b"))
    project.put("a", 1)
    (tmp_path / "data" / "b").rmdir()
    monkeypatch.setattr("ebbtide.cli.quiet.QuietSpark.has_died", True)
    ended = CliRunner().invoke(main, project.command("--engine", "local"))
    assert ended.exit_code == 5, "that of the one which failed by it"
    assert "Spark's JVM has ended." in ended.stderr


def test_pipeline_whose_records_are_all_bad_is_named_once_and_goes_on(tmp_path):
    project = Project(tmp_path, ("a",))
    for number in range(2):
        (tmp_path / "data" / "a" / f"bad{number}.jsonl").write_text("{}\n")
    process = project.follow("--log-format", "json")
    said = [json.loads(process.stderr.readline()) for _ in range(2)]
    project.put("a", 1)
    project.wait(process, "a")
    process.terminate()
    _, logged = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    messages = [line["message"] for line in said] + [json.loads(line)["message"] for line in logged.splitlines()]
    [named] = [message for message in messages if "All records that 'a' has read were bad" in message]
    assert "Got: unknown_kind" in named
