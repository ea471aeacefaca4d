"""The command line as far as it goes without Spark."""

import json

import pytest
from click.testing import CliRunner

from ebbtide.cli import main

SPEC = """
type: pipelines.components.UpsertPipelineComponent
attributes:
  name: {name}
  source: {{path: in, records: value}}
  format: {{type: plain}}
  schema: id BIGINT
  key: [{key}]
  order: arrival
"""


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def spec_at(folder, name="t", key="id"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "defs.yaml").write_text(SPEC.format(name=name, key=key))
    return folder


@pytest.mark.parametrize("command", [[], ["run"], ["status"], ["refresh"]])
def test_command_with_help_says_what_it_does(command):
    shown = call(*command, "--help")
    assert shown.exit_code == 0
    assert "SPEC" in shown.output


@pytest.mark.parametrize("command", ["run", "status", "refresh"])
def test_command_with_unusable_spec_exits_with_2_and_names_file_and_field(tmp_path, command):
    shown = call(command, spec_at(tmp_path / "a", key="nothing"))
    assert shown.exit_code == 2
    for said in ("defs.yaml", "key: got nothing", "allowed: columns of the schema: id"):
        assert said in shown.output


def test_command_without_spec_exits_with_2():
    assert call("run").exit_code == 2


def test_refresh_that_is_not_confirmed_does_nothing(tmp_path):
    shown = CliRunner().invoke(main, ["refresh", str(spec_at(tmp_path / "a")), "--root", str(tmp_path)], input="n\n")
    assert shown.exit_code == 1
    assert "Rebuild t under" in shown.output
    assert not (tmp_path / "t").exists()


def test_status_of_a_folder_of_specs_tells_of_each(tmp_path):
    for name in ("one", "two"):
        spec_at(tmp_path / "specs" / name, name=name)
    shown = call("status", tmp_path / "specs", "--root", tmp_path)
    assert shown.output.splitlines() == [
        f"{name}: no step yet. Run 'ebbtide run' with its spec." for name in ("one", "two")
    ]


def test_status_as_json_is_one_object_a_line(tmp_path):
    shown = call("status", spec_at(tmp_path / "a"), "--root", tmp_path, "--json")
    assert json.loads(shown.output)["step"] == 0
