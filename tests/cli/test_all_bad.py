"""Runs whose records are all bad, and reasons that do not exist."""

import json

import pytest
from click.testing import CliRunner

from ebbtide.cli import main

SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: t
  source: {path: in, records: value}
  format: {type: plain}
  schema: id BIGINT
  key: [id]
  order: upsert
"""
GOOD = {"kind": "+I", "row": {"id": 1}}


@pytest.fixture
def project(tmp_path, shell):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "defs.yaml").write_text(SPEC)
    (tmp_path / "in").mkdir()
    shell.cd(tmp_path)
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(main, [*arguments])


def write(project, name, *records):
    (project / "in" / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def test_run_fails_with_the_first_reason_while_all_records_are_bad(project):
    write(project, "1.jsonl", {"id": 1}, {"id": 2})

    for _ in range(2):  # the second one reads nothing new
        result = call("run", ".")
        assert result.exit_code == 1
        assert "All records that 't' has read were bad: 2 records in quarantine" in result.stderr
        assert "Got: unknown_kind: kind: got None" in result.stderr
        assert "quarantine show ." in result.stderr

    write(project, "2.jsonl", GOOD)
    assert call("run", ".").exit_code == 0
    write(project, "3.jsonl", {"kind": "-D", "row": {"id": 1}})
    assert call("run", ".").exit_code == 0, "the sink has had a row"
    assert call("run", ".").exit_code == 0


@pytest.mark.parametrize("command", [["show"], ["replay"], ["drop"]])
def test_reason_that_no_record_can_have_is_refused_with_those_that_there_are(project, command):
    write(project, "1.jsonl", {"id": 1}, GOOD)
    call("run", ".")

    result = call("quarantine", *command, ".", "--reason", "unknown_knid")

    assert result.exit_code == 2
    assert "Got: unknown_knid. Allowed: reasons of present records: unknown_kind" in result.stderr
    assert call("quarantine", *command, ".", "--reason", "bad_json").exit_code == 0, (
        "it is known, though no record has it"
    )
