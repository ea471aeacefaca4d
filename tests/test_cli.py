"""The command line as far as it goes without Spark."""

import io
import json
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from local.local_pipeline import up

from ebbtide.cli import live as live_module
from ebbtide.cli import main
from ebbtide.cli.errors import as_typed, program
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.quiet import new_log
from ebbtide.runtime import Phase, StepProgress
from ebbtide.runtime._progress import StepClock

KEPT = 20


ROOT = Path(__file__).resolve().parent.parent
SPEC = """
type: ebbtide.dagster.UpsertPipeline
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


def test_run_with_nothing_new_says_foreign_writes_and_succeeds(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.do("spoil")
    given = pipeline.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = tmp_path / "defs.yaml"
    spec.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))
    shown = call("run", spec, "--root", pipeline.root)
    assert shown.exit_code == 0, shown.output
    first, second = shown.stdout.splitlines()
    assert first.startswith("t: nothing new.")
    assert second.startswith("  1 commit of other clients changed rows: sink version ")
    printed = json.loads(call("run", spec, "--root", pipeline.root, "--json").stdout)
    assert [write["table"] for write in printed["foreign_writes"]] == ["sink"]


def test_lag_of_the_others_is_told_where_one_source_is_refused(tmp_path):
    for name in ("a", "b", "c"):
        spec_at(tmp_path / name, name)
        (tmp_path / name / "in").mkdir()
    (tmp_path / "a" / "in").rmdir()
    shown = call("lag", tmp_path, "--root", tmp_path / "root")
    assert (shown.exit_code, shown.stdout) == (5, "b: nothing waits\nc: nothing waits\n")
    assert "SourceReadError" in shown.stderr


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
        (tmp_path / "specs" / name / "in").mkdir()
    shown = call("status", tmp_path / "specs", "--root", tmp_path)
    assert shown.output.splitlines() == [
        f"{name}: no step yet. Run '{program()} run {tmp_path}/specs/{name} --root {tmp_path}'."
        for name in ("one", "two")
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
    assert "Got: other.Component. Allowed: ebbtide.dagster.UpsertPipeline" in shown.output


MESSAGES = [
    "Restore it, or run 'ebbtide refresh' to rebuild the sink from the source.",
    "Change it back, or run 'ebbtide migrate' to see what it would do to the stored state.",
    "To do it: 'ebbtide migrate --apply'.",
    "t: no step yet. Run 'ebbtide run'.",
    "To do it: 'ebbtide rewind --to-step 12 --apply'.",
    "To accept it: 'ebbtide acknowledge --reason TEXT'.",
]


@pytest.mark.parametrize("message", MESSAGES)
def test_next_command_works_as_printed(tmp_path, message):
    spec = spec_at(tmp_path / "a b")
    printed = as_typed(message, str(spec), "--root", str(tmp_path))
    command = re.search(r"'(.+)'", printed)[1]
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    words = [*shlex.split(command), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, env=bare, check=False)
    assert done.returncode == 0, done.stderr
    assert words[-4:] == [str(spec), "--root", str(tmp_path), "--help"]


def test_every_command_that_a_message_names_is_one():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "ebbtide").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r"'ebbtide ([a-z]+)", text)}
    assert {"run", "refresh", "migrate"} <= named <= set(main.list_commands(click.Context(main)))
    loose = [text for text in sources if re.search(r"[Rr]un:? (uv run )?ebbtide [a-z]", text)]
    assert loose == [], "in quotes, so that the command line can complete it"


def test_state_of_a_folder_of_several_specs_exits_with_2_and_names_them(tmp_path):
    for name in ("one", "two"):
        spec_at(tmp_path / name, name=name)
    shown = call("state", tmp_path)
    assert shown.exit_code == 2
    assert f"holds 2 specs. Allowed: one of {tmp_path / 'one'}, {tmp_path / 'two'}." in shown.output


def test_migrate_with_apply_and_undo_exits_with_2(tmp_path):
    shown = call("migrate", spec_at(tmp_path / "a"), "--apply", "--undo")
    assert shown.exit_code == 2
    assert "Allowed: one of them" in shown.output


@pytest.mark.parametrize("command", ["run", "status", "refresh", "cleanup", "compact", "migrate"])
def test_two_specs_with_one_name_exit_with_2(tmp_path, command):
    first, second = spec_at(tmp_path / "a"), spec_at(tmp_path / "b")
    shown = call(command, first, second)
    assert shown.exit_code == 2
    assert f"Two specs have one name: '{first}' and '{second}'. Got: t." in shown.output


@pytest.mark.parametrize(("java", "said"), [(None, "Java is missing."), ("11.0.2", "Java is too old. Got: 11.0.2")])
def test_missing_or_old_java_is_said_as_make_says_it(tmp_path, warm_programs, java, said):
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    if java:
        (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{java}\" 2019-01-15' >&2\n")
        (home / "bin" / "java").chmod(0o755)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.jsonl").write_text("{}\n")
    (tmp_path / "pyproject.toml").touch()
    spec_at(tmp_path)
    environment = os.environ | {"JAVA_HOME": str(home)}
    command = [warm_programs / "ebbtide", "run", ".", "--engine", "spark"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    make = subprocess.run(["make", "java"], cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert (run.returncode, run.stdout) == (5, "")
    assert make.returncode != 0
    message = run.stderr.removeprefix("Error: JavaMissingError: ")
    assert message.startswith(said)
    assert message in make.stderr


class Terminal(io.StringIO):
    """A terminal that remembers all that was written."""

    def isatty(self):
        return True


def step(number, records=10):
    return StepProgress("t", number, "batch", number, records, 0, {}, StepClock(1000), 0.5)


def view_a_run(stream):
    with Live(stream) as live:
        view = RunView(live, as_json=False)
        view.phase(Phase("t", "listing the source"))
        view.phase(Phase("t", "reading", 1, 0, 4))
        view.step(step(1))
        view.phase(Phase("t", "deciding", 2, 1, 4))
    return stream.getvalue()


def test_terminal_shows_phase_rate_and_time_left_on_one_line_and_clears_it():
    written = view_a_run(Terminal())
    assert "t: listing the source" in written
    assert "t step 1: reading  " in written, "nothing is known of the rate yet"
    assert re.search(r"t step 2: deciding, 1 of 4 files, [\d,]+ records/s, about \d+ s left", written)
    assert written.count("\n") == 1, "of the finished step"
    assert written.endswith("\r\x1b[2K")


def test_rate_is_that_of_the_run_under_way_where_a_command_makes_several(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(live_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    shown = []
    view = RunView(SimpleNamespace(show=shown.append, say=lambda line: None, is_quiet=False, log=None), as_json=False)
    for seconds, records in ((100, 1_000_000), (1, 1_000)):
        view.phase(Phase("t", "listing the source"))
        now_s[0] += seconds
        view.step(step(1, records))
        view.phase(Phase("t", "reading", 2, 0, 0, records, 2 * records))
    assert [", 10,000 records/s," in shown[1], ", 1,000 records/s," in shown[3]] == [True, True], shown


def test_what_is_no_terminal_gets_a_plain_line_a_step():
    assert view_a_run(io.StringIO()) == step(1).line() + "\n"


def test_no_more_logs_are_kept_than_said(tmp_path):
    (tmp_path / ".logs").mkdir()
    for number in range(KEPT + 5):
        (tmp_path / ".logs" / f"20200101T{number:06d}-1.log").touch()
    made = new_log(str(tmp_path))
    kept = sorted((tmp_path / ".logs").iterdir())
    assert len(kept) == KEPT
    assert kept[-1] == made


@pytest.mark.parametrize("root", ["s3://bucket/root", "/proc/none"])
def test_log_of_a_root_that_takes_none_is_a_temporary_file(root, tmp_path, shell):
    shell.keep_temporary_files(tmp_path)
    assert new_log(root).is_relative_to(tmp_path)


def test_log_and_its_folder_are_private_and_no_one_elses_folder_is_taken(tmp_path, shell):
    log = new_log(str(tmp_path / "root"))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (log, log.parent, log.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
    shell.keep_temporary_files(tmp_path)
    taken = new_log("s3://bucket/root").parent
    taken.chmod(0o777)
    other = new_log("s3://bucket/root").parent
    assert (other == taken, stat.S_IMODE(other.stat().st_mode)) == (False, 0o700)
