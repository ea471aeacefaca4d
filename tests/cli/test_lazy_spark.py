"""Spark is started when work for it begins: a refusal and a plan start no JVM."""

import ast
import io
import json
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from frame.circumstances import JvmStartedError, assume
from frame.source import nodes_of
from local.local_pipeline import up

import ebbtide
from ebbtide.cli import main
from ebbtide.cli.live import Live
from ebbtide.cli.quiet import QuietSpark


@pytest.fixture(autouse=True)
def _no_jvm():
    assume("without Spark")


@pytest.fixture
def project(make, tmp_path):
    """A pipeline of two steps, and the file of its spec."""
    made = make(ttl={"ttl": "1d"})
    made.read(up(1, 1), up(2, 2))
    made.read(up(1, 3))
    return Project(made, tmp_path / "defs.yaml")


class Project:
    def __init__(self, made, file):
        self.made, self.file = made, file
        self.change_spec()

    def change_spec(self, **fields):
        spec = self.made.with_fields(**fields)
        given = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        self.file.write_text(json.dumps({"type": "ebbtide.UpsertPipeline", "attributes": given}))

    def call(self, *arguments):
        done = CliRunner().invoke(main, [*arguments, str(self.file), "--root", self.made.root])
        assert not isinstance(done.exception, JvmStartedError), "a JVM was started"
        return done


WORK = {
    "run": ["run", "--engine", "spark"],
    "refresh": ["refresh", "--yes", "--engine", "spark"],
    "rewind": ["rewind", "--to-step", "1"],
    "rewind --apply": ["rewind", "--to-step", "1", "--apply"],
    "migrate": ["migrate"],
    "migrate --apply": ["migrate", "--apply"],
    "repair": ["repair"],
    "repair --apply": ["repair", "--apply"],
    "cleanup": ["cleanup"],
    "compact": ["compact"],
    "vacuum": ["vacuum"],
    "clock": ["clock", "--to", "now"],
    "acknowledge": ["acknowledge", "--reason", "test"],
}


def refused(project, *but):
    """Return what of `WORK` is refused and changes nothing."""
    shown = {work: project.call(*arguments) for work, arguments in WORK.items() if work not in but}
    return {work: done.stderr for work, done in shown.items() if done.exit_code == 5}


def test_lost_state_is_refused_without_spark(project):
    shutil.rmtree(project.made.home / "state")
    errors = refused(project, "refresh")
    assert errors.keys() == WORK.keys() - {"refresh"}
    assert all("The state at" in error for error in errors.values())


def test_changed_key_is_refused_without_spark(project):
    project.change_spec(key=["n"])
    project.made.put(up(3, 4))
    errors = refused(project, "refresh", "repair")
    assert errors.keys() == WORK.keys() - {"refresh", "repair", "clock"}
    assert all("key" in error for error in errors.values())


def test_lost_source_is_refused_without_spark(project):
    shutil.rmtree(project.made.source)
    errors = refused(project, *WORK.keys() - {"run", "refresh"})
    assert errors.keys() == {"run", "refresh"}
    assert all("The source folder" in error for error in errors.values())


def test_missing_spec_is_refused_without_spark(project):
    project.file.unlink()
    codes = {project.call(*arguments).exit_code for arguments in WORK.values()}
    assert codes == {2}


def test_rewind_is_planned_without_spark(project):
    done = project.call("rewind", "--to-step", "1")
    assert done.output.startswith("t: back to step 1"), done.output


def test_migration_is_planned_without_spark(project):
    project.change_spec(ttl={"ttl": "2d"})
    done = project.call("migrate")
    assert "ttl" in done.output
    assert "To do it:" in done.output


def test_work_that_does_not_fit_is_refused_without_spark(project):
    for work in ("migrate --undo", "adopt", "backfill swap", "backfill start --snapshot other"):
        done = project.call(*work.split())
        assert done.exit_code == 5, work


def test_run_with_records_to_read_starts_spark(project):
    project.made.put(up(3, 4))
    with pytest.raises(AssertionError, match="a JVM was started"):
        project.call(*WORK["run"])


def test_help_of_all_commands_loads_no_library_of_tables():
    code = "import sys; from ebbtide.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Every day:" in shown.stdout
    loaded = {name.partition(".")[0] for name in shown.stderr.split()}
    assert loaded.isdisjoint({"numpy", "pandas", "pyarrow", "pyspark", "sqlglot", "yaml"})


def test_session_starts_at_once_where_the_jvm_puts_commits():
    with pytest.raises(JvmStartedError):
        _ = QuietSpark("hdfs://host/root", live=_Silent()).executor


GIVES_SESSION = {"executor", "spark"}
MAKE_COLUMNS = {"column", "columns", "json_text"}
"""Functions that make columns, as those of PySpark do: they are refused before a session has started."""


def columns_before_the_session(path):
    """Yield the functions of a module that take a session, and make a column before they use it."""
    for function in nodes_of(path):
        if not isinstance(function, ast.FunctionDef):
            continue
        if GIVES_SESSION.isdisjoint(argument.arg for argument in function.args.args):
            continue
        types = {argument.arg: ast.unparse(argument.annotation or ast.Constant("")) for argument in function.args.args}
        if "DataFrame" in types.values():  # it comes of a session that runs
            continue
        made, used = [], []
        for node in (each for part in function.body for each in ast.walk(part)):
            called = node.func if isinstance(node, ast.Call) else None
            of_pyspark = isinstance(called, ast.Attribute) and ast.unparse(called.value) == "F"
            if of_pyspark or (isinstance(called, ast.Name) and called.id in MAKE_COLUMNS):
                made.append(node.lineno)
            if isinstance(node, ast.Name) and node.id in GIVES_SESSION:
                used.append(node.lineno)
        if made and (not used or min(made) < min(used)):
            yield f"{path.name}: {function.name}"


@pytest.mark.group("rooms")
def test_function_uses_its_session_before_it_makes_columns():
    paths = sorted(Path(ebbtide.__file__).parent.rglob("*.py"))
    assert [found for path in paths for found in columns_before_the_session(path)] == []


def test_column_made_before_the_session_is_used_is_found(tmp_path):
    path = tmp_path / "some.py"
    path.write_text("def f(spark):\n    a = F.col('a')\n    return spark.read.where(a)\n")
    assert list(columns_before_the_session(path)) == ["some.py: f"]


class _Silent:
    def show(self, text):
        """Show nothing."""


def test_session_is_started_once_however_many_ask_for_it_at_the_same_time(tmp_path, monkeypatch):
    started = []
    both_ask = threading.Barrier(2)

    def start(*, log_file, **_):
        started.append(log_file)
        return object()

    def ask(spark):
        both_ask.wait(30)
        return spark.session

    monkeypatch.setattr("ebbtide.sessions.build_session", start)
    spark = QuietSpark(str(tmp_path), Live(io.StringIO()))
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(ask, [spark, spark])
    assert one is other
    assert len(started) == 1
