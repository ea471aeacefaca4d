"""`ebbtide sql` for scripts, over a session in memory."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner
from statements.sql_support import MemorySession

from ebbtide.cli import main
from ebbtide.sql import Target

NOT_BEFORE_THE_PROMPT = {"pyspark", "pyarrow", "pydantic", "sqlglot", "numpy"}


@pytest.fixture
def targets(monkeypatch):
    """Let sessions be in memory; return what they were to be opened on."""
    asked = []

    def open_session(target):
        asked.append(target)
        return MemorySession(tables={"few": pa.table({"id": [1, 2], "name": ["Ada", None]})})

    monkeypatch.setattr(Target, "open", open_session)
    return asked


def call(*arguments, **options):
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], **options)


@pytest.mark.demand("sql-scripts")
def test_statements_of_the_command_line_are_executed(targets, tmp_path):
    done = call("-e", "SELECT * FROM few", "--format", "json", "--root", tmp_path, "--defs", "d")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": 1, "name": "Ada"},
        {"id": 2, "name": None},
    ]
    [target] = targets
    assert (target.root, target.defs) == (str(tmp_path), "d")


def test_standard_input_is_a_script(targets):
    done = call(input="SHOW TABLES;\nSELECT * FROM nowhere;\nSELECT * FROM few;")
    assert done.exit_code == 1
    assert "few" in done.stdout
    assert "Ada" not in done.stdout
    assert done.stderr == "Error: standard input, line 2: SqlError: There is no table 'nowhere'. Allowed: few.\n"


def test_init_file_comes_first_and_quit_ends_all(targets, tmp_path):
    init, script = tmp_path / "init.sql", tmp_path / "script.sql"
    init.write_text("SET result-format = csv;")
    script.write_text("SELECT * FROM ${table}; QUIT; SELECT * FROM nowhere;")
    done = call("-i", init, "-f", script, "-D", "table=few")
    assert (done.exit_code, done.stdout) == (0, "id,name\n1,Ada\n2,\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-e", "SELECT 1", "-f", __file__], "Allowed: one of them"),
        (["-f", "nowhere.sql"], "does not exist"),
        (["-D", "x", "-e", "SELECT 1"], "Allowed: name=value"),
        (["--format", "xml"], "is not one of"),
        (["--token-env", "TOKEN"], "with --gateway"),
        (["--token-env", "TOKEN", "--token-file", __file__], "one of them"),
        (["--gateway", "http://127.0.0.1:1", "--root", "x"], "The gateway uses the data it was started with"),
    ],
)
def test_wrong_usage_exits_with_2(targets, arguments, said):
    done = call(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_session_that_cannot_be_opened_exits_with_its_code(tmp_path):
    environment = tmp_path / "env.yaml"
    environment.write_text("nonsense: 1")
    done = call("-e", "SELECT 1", "--environment", environment)
    assert done.exit_code == 2
    assert "nonsense" in done.stderr


@pytest.mark.demand("sql-priority")
def test_variables_of_the_environment_stand_below_those_of_the_command_line(targets, tmp_path):
    environment = tmp_path / "env.yaml"
    environment.write_text("variables: {table: few, column: id}")
    done = call("-e", "SELECT * FROM ${table}; SET c = '${column}'", "-D", "column=name", "--environment", environment)
    assert "(2 rows)" in done.stdout
    assert "c is name." in done.stdout


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_prompt_needs_none_of_the_large_libraries():
    code = "import sys, ebbtide.cli.sql, ebbtide.sql._shell.prompt; print(*sys.modules)"
    loaded = set(python(code).stdout.split())
    assert "ebbtide.sql._shell.prompt" in loaded
    assert loaded & NOT_BEFORE_THE_PROMPT == set()


WITHOUT_LIBRARIES = """
import sys
sys.path.insert(0, "tests/support")
sys.modules["prompt_toolkit"] = None
import pyarrow, click.testing
from statements.sql_support import MemorySession
from ebbtide.sql import Target
from ebbtide.cli import main
Target.open = lambda target: MemorySession(tables={"few": pyarrow.table({"id": [7]})})
sys.stdin.isatty = sys.stdout.isatty = lambda: len(sys.argv) > 1
"""


def test_scripts_need_no_library_of_the_prompt():
    done = python(f"{WITHOUT_LIBRARIES}\nmain(['sql', '-e', 'SELECT * FROM few'])")
    assert (done.returncode, done.stdout) == (0, "+----+\n| id |\n|----|\n|  7 |\n+----+\n(1 row)\n")


def test_prompt_without_its_library_says_which_extra_has_it():
    done = python(f"{WITHOUT_LIBRARIES}\nsys.argv.append('x')\nmain(['sql'])")
    assert done.returncode == 1
    assert "pip install 'ebbtide[sql]'" in done.stderr
