"""Which folder of tables a command means, wherever it is run, and how places are written."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from local.support import change

from ebbtide import UpsertPipeline
from ebbtide.cli import main
from ebbtide.errors import ConfigError

SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: t
  source: {path: "PATH", records: value}
  format: {type: plain}
  schema: id BIGINT
  key: [id]
  order: upsert
"""


@pytest.fixture
def home(tmp_path, shell):
    """A folder that is no project, with records."""
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    (home / "in/1.jsonl").write_text(change("+I", id=1) + "\n")
    shell.cd(home)
    return home


def call(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def spec_in(folder, path="in"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "defs.yaml").write_text(SPEC.replace("PATH", str(path)))
    return folder


def test_new_marks_the_project_so_that_tables_are_found_from_elsewhere(home, shell):
    result = call("new", "t", "--path", "in", "--key", "id")
    assert (result.exit_code, (home / "pyproject.toml").is_file()) == (0, True)
    assert "pyproject.toml: marks the project;" in result.stderr
    assert "source: {path: in, records: value}" in (home / "pipelines/defs/t/defs.yaml").read_text()

    shell.cd(home.parent)
    assert call("run", home / "pipelines/defs/t").exit_code == 0
    assert (home / ".ebbtide/t/sink").is_dir()
    assert not (home.parent / ".ebbtide").exists()


@pytest.mark.parametrize("arguments", [["--path", "nowhere"], ["--path", "in", "--key", "no"]])
def test_new_that_writes_nothing_marks_nothing(home, arguments):
    assert call("new", "t", *arguments).exit_code == 2
    assert not (home / "pyproject.toml").exists()


def test_project_that_is_there_is_left_as_it_is(home):
    (home / "pyproject.toml").write_text("[tool.mine]\n")
    assert call("new", "t", "--path", "in", "--key", "id").exit_code == 0
    assert (home / "pyproject.toml").read_text() == "[tool.mine]\n"


@pytest.mark.parametrize("here", ["..", "elsewhere"])
def test_status_from_elsewhere_finds_the_tables_of_a_spec_without_a_project(home, shell, here):
    spec = spec_in(home / "defs/t", home / "in")
    assert call("run", spec).exit_code == 0
    (home / "elsewhere").mkdir()
    shell.cd(home / here)

    assert "t: step 1 (batch)" in call("status", spec).stdout


def test_tables_of_the_working_folder_come_before_those_further_above(home):
    (home.parent / ".ebbtide").mkdir()
    spec = spec_in(home / "defs/t", home / "in")

    assert call("run", spec).exit_code == 0

    assert (home / ".ebbtide/t/sink").is_dir()


@pytest.mark.parametrize("command", ["status", "cleanup"])
def test_root_that_is_not_there_is_refused_where_nothing_makes_it(home, command):
    spec = spec_in(home / "defs/t", home / "in")

    result = call(command, spec, "--root", "nowhere")

    assert result.exit_code == 2
    assert "The folder of tables does not exist. Got: --root nowhere." in result.stderr
    assert call("run", spec, "--root", "nowhere").exit_code == 0
    assert call(command, spec, "--root", "nowhere").exit_code == 0


def test_home_and_variables_are_expanded_in_places(home, shell):
    shell.export(HOME=home, SHOP="in")
    for written in ("~/in", "${HOME}/${SHOP}", "${HOME}/in"):
        spec = UpsertPipeline.load(spec_in(home / "defs/t", written))
        assert (spec.source.path, spec.source_path) == (str(home / "in"), written)
    assert call("run", home / "defs/t", "--root", "~/${SHOP}-tables").exit_code == 0
    assert (home / "in-tables/t/sink").is_dir()


def test_variable_that_is_not_set_is_named(home, shell):
    shell.unset("SHOP")
    with pytest.raises(ConfigError, match=r"source.path names a variable that is not set.*Set SHOP"):
        UpsertPipeline.load(spec_in(home / "defs/t", "${SHOP}/in"))
    assert "Set SHOP" in call("run", home / "defs/t").stderr


def test_path_of_new_is_written_as_it_was_given(home, shell):
    shell.export(SHOP=home / "in")
    assert call("new", "t", "--path", "${SHOP}", "--key", "id").exit_code == 0
    assert UpsertPipeline.load(Path("pipelines/defs/t")).source_path == "${SHOP}"
