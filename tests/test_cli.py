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


@pytest.mark.parametrize(
    "command", [[], ["run"], ["status"], ["refresh"], ["cleanup"], ["compact"], ["migrate"], ["state"]]
)
def test_command_with_help_says_what_it_does(command):
    shown = call(*command, "--help")
    assert shown.exit_code == 0
    assert "SPEC" in shown.output


@pytest.mark.parametrize("command", ["run", "status", "refresh", "cleanup", "compact", "migrate", "state"])
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


CASE = {
    "name": "one",
    "config": {"ttl": 10, "update": "OnCreateAndWrite", "visibility": "NeverReturnExpired"},
    "script": [{"state": "value", "op": "update", "v": 1}, {"time": 10}, {"state": "value", "op": "get"}],
    "expected": [{"i": 0, "ok": True}, {"i": 2, "result": None}],
}


@pytest.mark.parametrize("store", ["heap", "rocksdb", "delta"])
def test_replay_prints_each_case_with_its_output(store):
    shown = CliRunner().invoke(main, ["replay", "ttl", "--store", store], input=json.dumps(CASE) + "\n")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["output"] == CASE["expected"]


def test_replay_of_a_case_that_differs_exits_with_1():
    wrong = CASE | {"expected": [{"i": 0, "ok": True}, {"i": 2, "result": 1}]}
    shown = CliRunner().invoke(main, ["replay", "ttl"], input=json.dumps(wrong) + "\n")
    assert shown.exit_code == 1
    assert "1 of 1 cases differ." in shown.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "cannot be read"),
        ('{"name": "n"}', "The case 'n' cannot be played: KeyError: 'config'"),
        (json.dumps(CASE | {"script": [{"state": "value", "op": "fly"}]}), "KeyError: 'fly'"),
    ],
)
def test_replay_of_what_is_no_case_exits_with_2(line, said):
    shown = CliRunner().invoke(main, ["replay", "ttl"], input=line + "\n")
    assert shown.exit_code == 2
    assert said in shown.stderr


def test_spec_of_no_known_type_exits_with_2(tmp_path):
    (spec_at(tmp_path / "a") / "defs.yaml").write_text("type: other.Component\nattributes: {}\n")
    shown = call("run", tmp_path / "a")
    assert shown.exit_code == 2
    assert "Got: other.Component. Allowed: pipelines.components.UpsertPipelineComponent" in shown.output
