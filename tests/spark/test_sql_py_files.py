"""`--py-files`: functions of modules that only these files have, in queries on workers and in jobs of INSERT."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from clusters.spark_support import change, write

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
CREATE FUNCTION shout AS 'py_words:shout' DETERMINISTIC;
CREATE FUNCTION half AS 'py_rules:half';
SELECT shout('a') AS s, half(4) AS h, count(*) AS n FROM range(0, 8, 1, 4) WHERE shout(string(id)) <> '';
CREATE SOURCE log (id BIGINT, v STRING, seq BIGINT, PRIMARY KEY (id))
WITH (path = '{source}', format = plain, records = value, sequence = seq);
CREATE TABLE kept (id BIGINT, v STRING, seq BIGINT, PRIMARY KEY (id));
INSERT INTO kept SELECT id, shout(v), seq FROM log;
"""


def archive(path: Path, end: str = "!") -> Path:
    """Write an archive with a package whose module imports another."""
    with zipfile.ZipFile(path, "w") as written:
        written.writestr(
            "py_words/__init__.py",
            "from py_words.ends import END\n\ndef shout(v: str) -> str:\n    return v.upper() + END\n",
        )
        written.writestr("py_words/ends.py", f"END = {end!r}\n")
    return path


@pytest.fixture
def files(tmp_path):
    """Files of code in a folder that no process works in."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "py_rules.py").write_text("def half(n: int) -> int:\n    return n // 2\n")
    return f"{archive(folder / 'words.zip')},{folder / 'py_rules.py'}"


def sql(home, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", "sql", "--format", "csv", *arguments],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[1,2,1024]", marks=pytest.mark.grid)])
@pytest.mark.demand("sql-code")
def test_functions_of_the_files_are_called_by_queries_and_by_jobs(tmp_path, files, master):
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2)])
    home = tmp_path / "elsewhere"
    home.mkdir()
    executed = sql(home, "--py-files", files, "-e", SCRIPT.format(source=source), EBBTIDE_MASTER=master)
    assert executed.returncode == 0, executed.stderr
    assert "A!,2,8" in executed.stdout
    while "RUNNING" in (jobs := sql(home, "-e", "SHOW JOBS").stdout):
        time.sleep(1)
    assert "FINISHED" in jobs, jobs
    kept = sql(home, "--py-files", files, "-e", "SELECT id, v FROM kept").stdout
    assert sorted(kept.split()[1:]) == ["1,A!", "2,B!"]
    without = sql(home, "-e", "SELECT id, v FROM kept")
    assert "No module named 'py_words'" in without.stderr
