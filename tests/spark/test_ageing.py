"""A run that hands over at its age: one process of the same number, in which one run follows the other without a gap."""

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


def test_run_is_followed_by_another_one_in_the_same_process_and_no_step_is_made_twice(tmp_path):
    source = write(tmp_path / "in", [change("+I", 1, "a", 1)])
    spec = plain_spec(source, order={"sequence": ["seq"]}, run="continuous", max_run_age="3s")
    folder = tmp_path / "spec"
    folder.mkdir()
    attributes = spec.model_dump_json(by_alias=True, exclude_unset=True)
    (folder / "defs.yaml").write_text(f"type: ebbtide.dagster.UpsertPipeline\nattributes: {attributes}\n")
    root = tmp_path / "root"
    command = [sys.executable, "-m", "ebbtide.cli", "run", str(folder), "--root", str(root), "--accept-loss"]
    plan = Plan.under(str(root), spec)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            handovers = (line for line in run.stderr if "a new process continues" in line)
            next(handovers)
            write(source, [change("+I", 2, "b", 2)], first=2)
            steps = (line for line in run.stderr if " step 2 " in line)
            next(steps)
            assert "--accept-loss" not in arguments_of(run.pid)
            os.kill(run.pid, signal.SIGTERM)
            said, more = run.communicate(timeout=PATIENCE_S)
        finally:
            run.kill()
    assert run.returncode == 0, more
    assert "Traceback" not in more
    made = [(facts.step, facts.cause.what) for _, facts in plan.state.steps()][::-1]
    assert made == [(1, "batch"), (2, "batch")]
    assert len(said.splitlines()) >= 2, "a summary of each run"
    rows = Snapshot.read(plan.at("sink")).rows(spec.sink_table.columns)
    assert sorted(rows["id"].to_pylist()) == [1, 2]


def arguments_of(pid: int) -> list[str]:
    return Path("/proc", str(pid), "cmdline").read_text().split("\0")
