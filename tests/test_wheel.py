"""What a user gets: the wheel, in environments of their own, beside a project that has rooms of the same names as ours."""

import json
import re
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from clusters.spark_support import change, write
from frame.installed import Environment, build_wheel

NOT_PUBLISHED = "Ebbtide is not on PyPI yet"
PYPROJECT = """
[project]
name = "team"
version = "0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "pipelines"
"""
DEFINITIONS = """
from pathlib import Path

import assets, resources
import dagster as dg

HERE = Path(__file__).parent
assert {Path(found.__file__).parents[1] for found in (assets, resources)} == {HERE.parent}


@dg.definitions
def defs():
    in_process = dg.Definitions(executor=dg.in_process_executor)
    return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=HERE), in_process)
"""
SPEC = """
type: ebbtide.UpsertPipeline
attributes:
  name: plain
  source: {path: in, records: value}
  format: {type: plain, position: [p, n]}
  schema: id BIGINT, v STRING, seq BIGINT
  key: [id]
  order: {sequence: [seq]}
"""
SOURCE = "data/Größen 2026"
IMPORTS = """
import importlib
from ebbtide.errors import MissingExtraError

for name in asked:
    try:
        importlib.import_module(f"ebbtide.{name}")
    except MissingExtraError as error:
        answers.append(str(error))
"""
COMMANDS = """
from click.testing import CliRunner
from ebbtide.cli import main

for command in asked:
    ended = CliRunner().invoke(main, command)
    answers.append((ended.exit_code, ended.output))
"""
TO_GET_SPARK = "Install it: pip install 'ebbtide[spark]'."
ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.group("wheel")  # it is built once


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """Ebbtide without extras."""
    return Environment(tmp_path_factory.mktemp("bare") / "env", wheel)


@pytest.fixture(scope="module")
def with_dagster(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("dagster") / "env", wheel, "dagster")


@pytest.fixture(scope="module")
def project(with_dagster, tmp_path_factory):
    """A project with `assets`, `resources` and `pipelines` of its own, and a pipeline that `dg` scaffolded."""
    home = tmp_path_factory.mktemp("project")
    for package in ("assets", "resources", "pipelines"):
        (home / package).mkdir()
        (home / package / "__init__.py").touch()
    (home / "pipelines" / "defs").mkdir()
    (home / "pipelines" / "definitions.py").write_text(DEFINITIONS)
    (home / "pyproject.toml").write_text(PYPROJECT)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    made = with_dagster.call(
        home, "dg", "scaffold", "defs", "ebbtide.dagster.UpsertPipeline", "sizes", "--source", SOURCE
    )
    assert made.returncode == 0, made.stderr
    return home


def test_wheel_holds_the_library_alone_and_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    rooms = {name.partition("/")[0] for name in names}
    assert {name for name in rooms if not name.endswith(".dist-info")} == {"ebbtide", "pyspark_ebbtide.py"}
    assert "ebbtide/py.typed" in names


def test_wheel_names_what_dagster_and_ebbtide_find_by_it(wheel):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        points = ConfigParser(delimiters="=")
        points.read_string(archive.read(name).decode())
    assert {group: dict(points[group]) for group in points.sections() if group in declared} == declared
    assert declared["dagster_dg_cli.registry_modules"] == {"ebbtide": "ebbtide.dagster"}


def test_release_has_one_version_and_one_address():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(r"^## (\d\S*?),? ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert {citation["version"], newest} == {project["version"]}
    address = project.get("urls", {}).get("Repository")
    assert (citation.get("repository-code"), site.get("repo_url")) == (address, address)
    # Until it is published, the first page says so; from then on, nothing says that it is not.
    for page in (ROOT / "README.md", ROOT / "docs" / "tutorials" / "first-table.md"):
        assert (NOT_PUBLISHED in page.read_text(encoding="utf-8")) == (address is None), page


def test_without_extras_a_spec_is_read_and_what_is_missing_is_said(bare, tmp_path):
    (tmp_path / "defs.yaml").write_text(SPEC)
    (tmp_path / "in").mkdir()
    status = bare.call(tmp_path, "ebbtide", "status", ".")
    assert status.returncode == 0, status.stderr
    assert "plain" in status.stdout
    missing = {
        "dagster": "dagster",
        "checks.great_expectations.validate": "quality",
        "sql._gateway": "sql",
        "sql._remote": "sql",
    }
    messages = in_one_process(bare, tmp_path, IMPORTS, list(missing))
    for message, extra in zip(messages, missing.values(), strict=True):
        assert message.endswith(f"Install it: pip install 'ebbtide[{extra}]'.")


def in_one_process(environment, folder, work, asked):
    """Return the answers of one process, which has all loaded once, to all that is asked.

    Args:
        environment: Whose Python it is.
        folder: Where it works.
        work: Python, which appends to `answers`.
        asked: JSON.
    """
    code = f"import json, sys\nasked, answers = json.loads(sys.argv[1]), []\n{work}\nprint('\\n' + json.dumps(answers))"
    ended = environment.call(folder, "python", "-c", code, json.dumps(asked))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.grid
def test_dg_knows_the_components(with_dagster, project):
    listed = with_dagster.call(project, "dg", "list", "components", "--json")
    keys = {component["key"] for component in json.loads(listed.stdout)["items"]}
    assert {f"ebbtide.dagster.{name}" for name in ("Resources", "StatefulPipeline", "UpsertPipeline")} <= keys


@pytest.mark.grid  # in this environment the tutorial of a Dagster project does the same: tests/test_doc_snippets.py
def test_dg_takes_the_spec_that_it_scaffolds(with_dagster, project):
    checked = with_dagster.call(project, "dg", "check", "defs")  # checks the YAML first
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "All component YAML validated successfully." in checked.stdout


def debezium(op, id_, name, lsn):
    """A Kafka record of Debezium's, as a line."""
    after = {"id": id_, "name": name, "updated_at": 5}
    value = {"op": op, "before": None, "after": after, "source": {"lsn": lsn, "ts_ms": 1000}, "ts_ms": 1000}
    place = {"topic": "sizes", "partition": 0, "offset": lsn, "ts": 1000}
    return json.dumps({**place, "key": json.dumps({"id": id_}), "value": json.dumps(value)})


def sink_rows(environment, project, name):
    """The rows of a sink of one file, without Spark."""
    code = f"""
import json, pathlib, pyarrow.parquet as parquet
files = [path for path in pathlib.Path(".ebbtide/{name}/sink").glob("*.parquet")]
rows = [row for path in files for row in parquet.read_table(path).to_pylist()]
print(json.dumps(rows, default=str))
"""
    return json.loads(environment.call(project, "python", "-c", code).stdout)


@pytest.mark.grid
def test_scaffolded_pipeline_is_launched_and_its_checks_pass(with_dagster, project):
    write(project / SOURCE, [debezium("u", 1, "new", 2), debezium("c", 1, "old", 1)])
    launched = with_dagster.call(project, "dg", "launch", "--job", "sizes")
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert [(row["id"], row["name"]) for row in sink_rows(with_dagster, project, "sizes")] == [(1, "new")]
    assert "Calculating Metrics" not in launched.stderr, "no progress bars"


def test_command_line_works_where_nothing_else_is_installed_and_says_what_needs_spark(bare, tmp_path):
    assert "Usage: ebbtide" in bare.call(tmp_path, "ebbtide", "--help").stdout
    assert bare.call(tmp_path, "python", "-c", "import pyspark").returncode != 0, "the extra spark brings it"
    (tmp_path / "defs.yaml").write_text(SPEC)
    (tmp_path / "keys.jsonl").write_text('{"id": 2}')
    write(tmp_path / "in", [change("+U", 1, "new", 2), change("+I", 1, "old", 1), change("+I", 2, "x", 3)])
    done = bare.call(tmp_path, "ebbtide", "run", ".")
    assert done.returncode == 0, done.stderr
    commands = [
        ["backfill", "start", ".", "--from", "earliest"],
        ["backfill", "drop", "."],
        ["compact", "."],
        ["vacuum", "."],
        ["repair", "."],
        ["acknowledge", ".", "--reason", "looked at"],
        ["migrate", "."],
        ["erase", ".", "--keys", "keys.jsonl", "--apply"],
        ["state", ".", "--where", "NOT tombstone"],
        ["erase", ".", "--where", "id = 1"],
        ["state", ".", "--where", "length(v) = 1"],
        ["erase", ".", "--where", "length(v) = 1"],
    ]
    ends = in_one_process(bare, tmp_path, COMMANDS, commands)
    assert [(code, output) for code, output in ends[:10] if code != 0] == []
    assert [(row["id"], row["v"]) for row in sink_rows(bare, tmp_path, "plain") if row["id"] == 1] == [(1, "new")]
    for code, output in ends[10:]:
        assert code == 2
        assert "Only Spark can judge this condition, and there is none. Got: length(v) = 1." in output
