"""A run that goes on for ever, as systemd ends it: SIGTERM to its whole process group, JVM and workers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.spark_support import change, plain_spec, write
from frame.waiting import PATIENCE_S

from ebbtide.delta import Snapshot
from ebbtide.runtime import Plan

pytestmark = pytest.mark.grid


def test_run_that_goes_on_ends_after_its_step_by_a_signal_to_the_group(tmp_path):
    source = write(tmp_path / "in", [change("+I", 1, "a", 1)])
    spec = plain_spec(source, order={"sequence": ["seq"]})
    folder = tmp_path / "spec"
    folder.mkdir()
    attributes = spec.model_dump_json(by_alias=True, exclude_unset=True)
    (folder / "defs.yaml").write_text(f"type: ebbtide.dagster.UpsertPipeline\nattributes: {attributes}\n")
    command = [sys.executable, "-m", "ebbtide.cli", "run", str(folder), "--root", str(tmp_path / "root"), "--follow"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        steps = (line for line in run.stderr if " batch " in line)
        next(steps)
        write(source, [change("+I", 2, "b", 2)], first=1)
        next(steps)
        os.killpg(run.pid, signal.SIGTERM)
        said, more = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, more
    assert "Stopping after this step" in more
    assert "Traceback" not in more
    assert "2 steps" in said
    assert not java_of(tmp_path)
    rows = Snapshot.read(Plan.under(str(tmp_path / "root"), spec).at("sink")).rows(spec.sink_table.columns)
    assert sorted(rows["id"].to_pylist()) == [1, 2]


def java_of(folder: Path) -> list[str]:
    """Processes that name a folder."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(folder) in line and "java" in line]
