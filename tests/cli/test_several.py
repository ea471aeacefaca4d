"""Commands over several pipelines: one that fails keeps no other one from its turn."""

import json

import pytest
from click.testing import CliRunner
from frame.exit_codes import FAILED, PAUSED, REFUSED

from ebbtide.cli import main
from ebbtide.ledger import Lease

SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: {name}
  source: {{path: in, records: value}}
  format: {{type: plain}}
  schema: id BIGINT
  key: [id]
  order: upsert
  quarantine: {{max_rows_per_step: 0}}
"""
NAMES = ("first", "second", "third")


@pytest.fixture
def call(tmp_path):
    (tmp_path / "root").mkdir()
    for name in NAMES:
        folder = tmp_path / name
        (folder / "in").mkdir(parents=True)
        (folder / "defs.yaml").write_text(SPEC.format(name=name))
        write(folder, "1.jsonl", {"kind": "+I", "row": {"id": 1}})

    def call(command, *options, names=NAMES):
        specs = [str(tmp_path / name) for name in names]
        return CliRunner().invoke(main, [command, *specs, "--root", str(tmp_path / "root"), *options])

    return call


def write(folder, name, record):
    (folder / "in" / name).write_text(json.dumps(record) + "\n")


def steps(call):
    """The last step of each pipeline."""
    lines = call("status", "--json").stdout.splitlines()
    reports = [json.loads(line) for line in lines]
    return [report["step"] for report in reports]


def test_run_goes_on_behind_a_pipeline_that_is_refused(call, tmp_path):
    assert call("run").exit_code == 0
    for name in NAMES:
        write(tmp_path / name, "2.jsonl", {"kind": "+I", "row": {"id": 2 if name != "second" else "bad"}})

    ended = call("run")

    assert ended.exit_code == REFUSED
    assert "Pipeline 'second' met too many bad records" in ended.stderr
    assert steps(call) == [2, 1, 2]


def test_exit_code_is_the_greatest_or_that_of_what_may_pass(call, tmp_path):
    call("run")
    assert call("pause", "--reason", "move", names=["first"]).exit_code == 0
    write(tmp_path / "second", "2.jsonl", {"kind": "+I", "row": {"id": "bad"}})
    assert call("run").exit_code == REFUSED
    assert call("run", names=["first", "third"]).exit_code == PAUSED
    with Lease(str(tmp_path / "root" / "third" / "ledger"), "third", 3600):
        assert call("run").exit_code == FAILED


@pytest.mark.parametrize("command", ["compact", "cleanup", "check", "status"])
def test_other_commands_go_on_behind_a_pipeline_that_is_refused(call, tmp_path, command):
    call("run")
    log = tmp_path / "root" / "second" / "state" / "_delta_log"
    for commit in log.glob("*.json"):
        commit.write_text("torn")

    ended = call(command)

    assert ended.exit_code == REFUSED
    assert "third" in ended.stdout, ended.output
