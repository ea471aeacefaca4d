"""The command line as a user types it, in processes of its own."""

import json
import os
import re
import subprocess
import sys

import pytest
from clusters.spark_support import change, write

MAIN = [sys.executable, "-c", "from ebbtide.cli import main; main()"]
SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: t
  source: {path: in, records: value, max_files_per_step: 1}
  format: {type: plain, position: [p, n]}
  schema: id BIGINT, v STRING, seq BIGINT
  key: [id]
  order: arrival
"""


def call(folder, *arguments, **environment):
    command = [*MAIN, *arguments]
    return subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, env=os.environ | environment
    )


@pytest.mark.grid
def test_run_writes_our_lines_only_and_with_nothing_new_starts_no_jvm(tmp_path):
    (tmp_path / "defs.yaml").write_text(SPEC)
    missing = call(tmp_path, "run", ".")
    assert missing.returncode == 5
    assert "SourceReadError: The source folder" in missing.stderr
    assert "Traceback" not in missing.stderr

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0000.jsonl.part").touch()
    empty = call(tmp_path, "run", ".")
    assert empty.returncode == 3, empty.stderr
    assert "what does not match: 0000.jsonl.part." in empty.stdout

    write(tmp_path / "in", [change("+I", 1, "a", 1)], [change("+I", 2, "b", 2), "{"])
    done = call(tmp_path, "run", ".", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    *steps, summary = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["records"] for step in steps] == [1, 2]
    assert summary["totals"]["quarantined"] == 1
    assert (summary["nothing_matched"], summary["files_unmatched"]) == (None, 1)
    assert (tmp_path / ".ebbtide" / "t" / "sink").is_dir()
    log = max((tmp_path / ".ebbtide" / ".logs").iterdir())
    assert "NativeCodeLoader" in log.read_text(), "what Spark says is kept"

    idle = call(tmp_path, "run", ".", JAVA_HOME="/nowhere")
    assert (idle.returncode, idle.stderr) == (0, "")
    assert idle.stdout.startswith("t: nothing new; files that do not match source.pattern: 1. Sink: ")
    write(tmp_path / "in", [change("+I", 3, "c", 3)], first=2)
    needed = call(tmp_path, "run", ".", JAVA_HOME="/nowhere")
    assert (needed.returncode, "Java is missing" in needed.stderr) == (5, True)


TALKS = """
from ebbtide import StatefulFunction, ValueStateDescriptor


class Talks(StatefulFunction):
    output = "n BIGINT"
    count = ValueStateDescriptor("BIGINT")

    def process(self, key, rows, ctx):
        print("the function was here", flush=True)
        yield {"n": 1}
"""


@pytest.mark.grid
def test_why_spark_does_not_start_is_in_the_log_that_is_named_and_what_a_function_prints_on_standard_error(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "talks.py").write_text(TALKS)
    stateful = SPEC.replace("Upsert", "Stateful").replace("order: arrival", "function: talks:Talks")
    (tmp_path / "defs.yaml").write_text(stateful)
    write(tmp_path / "in", [change("+I", 1, "a", 1)])
    failed = call(tmp_path, "run", ".", EBBTIDE_MASTER="nonsense")
    assert failed.returncode == 1
    [log] = re.findall(r"^Spark's log: (.+)$", failed.stderr, re.MULTILINE)
    assert "Master must" in (tmp_path / log).read_text()
    assert "Master must" in failed.stderr, "its last lines are shown"
    assert "Traceback" not in failed.stderr

    done = call(tmp_path, "run", ".", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["the function was here"], "so few rows are processed in the driver"
    assert all(json.loads(line)["pipeline"] == "t" for line in done.stdout.splitlines())


@pytest.mark.grid
def test_state_is_shown_kept_and_migrated(tmp_path):
    (tmp_path / "defs.yaml").write_text(SPEC)
    write(tmp_path / "in", [change("+I", 1, "a", 1)], [change("+I", 2, "b", 2)])
    assert call(tmp_path, "run", ".").returncode == 0
    shown = call(tmp_path, "state", ".", "--where", "id = 2", "--json")
    assert [json.loads(line)["v"] for line in shown.stdout.splitlines()] == ["b"], shown.stderr
    assert call(tmp_path, "state", ".").stdout.splitlines()[0].split()[:3] == ["id", "v", "seq"]
    refused = call(tmp_path, "state", ".", "--where", "no = 1")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
    assert "cleanup: found nothing to do; 2 entries" in call(tmp_path, "cleanup", ".").stdout
    compacted = call(tmp_path, "compact", ".", "--json")
    assert json.loads(compacted.stdout)["entries"] == 2, compacted.stderr
    (tmp_path / "defs.yaml").write_text(SPEC + "  ttl: 1d\n")
    refused = call(tmp_path, "run", ".")
    assert (refused.returncode, "ebbtide migrate" in refused.stderr) == (5, True)
    planned = call(tmp_path, "migrate", ".")
    assert "ttl none -> 1d" in planned.stdout, planned.stderr
    assert "2 entries stamped" in planned.stdout
    assert json.loads(call(tmp_path, "migrate", ".", "--apply", "--json").stdout)["step"] == 4
    assert call(tmp_path, "run", ".").returncode == 0
    assert "There is no migration" not in call(tmp_path, "migrate", ".", "--undo").stderr
