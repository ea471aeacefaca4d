"""The commands as `--help` shows them: in groups, on whole lines, with examples that hold, variables and the nearest names."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from local.local_pipeline import up

from ebbtide.cli import main
from ebbtide.cli.verbs import COMMANDS, example, sections
from ebbtide.environment import VARIABLES
from ebbtide.operations import BUILT_IN
from ebbtide.operations._registry import TAKEN_NAMES

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for commands in sections().values() for name in commands]


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="ebbtide")


def commands(group=main, path=()):
    """Yield each command that is no group, with its path."""
    context = click.Context(group, info_name="ebbtide")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_sections_have_each_command_once_and_begin_with_those_of_every_day():
    assert NAMES[:8] == ["run", "check", "status", "runs", "report", "lag", "new", "sql"]
    built_in = {name.partition(".")[0] for name in BUILT_IN} | TAKEN_NAMES - {"stream"}
    assert (sorted(NAMES), len(NAMES)) == (sorted(built_in), len(set(NAMES)))


def test_help_shows_each_line_whole_in_a_terminal_of_80_columns():
    lines = call("--help").output.splitlines()
    for section, listed in sections().items():
        assert f"{section}:" in lines
        for name, text in listed.items():
            assert f"  {name:11}  {text}" in lines
    assert max(map(len, lines)) <= 80
    assert "..." not in "".join(line for line in lines if "SPEC" not in line and "Usage" not in line)


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda each: each if isinstance(each, str) else "")
def test_example_of_each_command_is_in_its_help_and_is_taken(path, command, shell, tmp_path):
    shown = call(*path.split(), "--help").output
    assert example(path) in shown
    words = shlex.split(COMMANDS[path].example)
    if "--cases" in words:
        (tmp_path / "cases.jsonl").touch()
        shell.cd(tmp_path)
    with command.make_context(path, words):  # it refuses an option, or a value, that there is not
        pass


def test_help_and_page_have_every_variable_that_the_code_reads():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "ebbtide").rglob("*.py")]
    read = {name for text in sources for name in re.findall(r"\bEBBTIDE_[A-Z_]+", text)}
    names = {variable.name for variable in VARIABLES}
    assert read == names
    page = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
    shown = call("--help").output
    for name in names:
        assert name in shown
        assert f"`{name}`" in page


def test_completion_of_the_shell_knows_commands_and_options(warm_programs):
    def completed(words, number):
        environment = os.environ | {
            "_EBBTIDE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        return subprocess.run(
            [warm_programs / "ebbtide"], capture_output=True, text=True, env=environment, check=True
        ).stdout.split()

    assert completed("ebbtide re", 1) == [
        "plain,report",
        "plain,replay",
        "plain,repair",
        "plain,rewind",
        "plain,refresh",
        "plain,resume",
    ]
    assert completed("ebbtide backfill s", 2) == ["plain,start", "plain,status", "plain,swap"]
    assert "plain,--accept-loss" in completed("ebbtide run --acc", 2)


@pytest.fixture
def project(make, tmp_path, shell):
    """A project with a pipeline of one step that waits, whose tables are where the project says."""
    made = make()
    made.put(up(1, 1))
    given = made.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    folder = tmp_path / "shop"
    (folder / "pipelines/defs/t").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "pipelines/defs/t/defs.yaml").write_text(
        json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given})
    )
    shell.unset("EBBTIDE_ROOT")
    shell.cd(tmp_path)
    return folder


def test_tables_are_those_of_the_spec_s_project_wherever_one_stands(project, shell):
    shown = call("run", "shop/pipelines/defs/t", "--engine", "local")
    assert shown.exit_code == 0, shown.output
    assert (project / ".ebbtide/t/sink").is_dir()
    assert not Path(".ebbtide").exists()
    for here, spec in (
        (project, "pipelines/defs/t"),
        (project / "pipelines/defs", "t"),
        (project / "pipelines/defs/t", "."),
    ):
        shell.cd(here)
        assert "step 1" in call("status", spec).output


def test_specs_of_several_projects_need_a_root(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "pyproject.toml").touch()
    shown = call("status", "shop/pipelines/defs/t", "other")
    assert shown.exit_code == 2
    assert "several projects" in shown.stderr
    assert "--root" in shown.stderr


def test_quiet_run_shows_its_result_alone_and_verbose_says_where_steps_were_made(project):
    quiet = call("run", "shop/pipelines/defs/t", "--engine", "local", "-q")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    assert quiet.stdout.startswith("t: 1 step, 1 record")
    again = call("refresh", "shop/pipelines/defs/t", "--engine", "local", "--yes", "-v")
    assert again.exit_code == 0, again.output
    assert "Steps ran in this process: engine: local." in again.stdout
    assert "batch  step" in again.stderr


def test_verbose_error_has_its_traceback_and_another_has_not(project):
    spec = project / "pipelines/defs/t/defs.yaml"
    given = json.loads(spec.read_text())
    given["attributes"]["source"]["path"] = "/nowhere"
    spec.write_text(json.dumps(given))
    plain, verbose = (call("run", "shop/pipelines/defs/t", *level) for level in ([], ["-v"]))
    assert (plain.exit_code, verbose.exit_code) == (5, 5)
    assert ("Traceback" in plain.stderr, "Traceback" in verbose.stderr) == (False, True)
