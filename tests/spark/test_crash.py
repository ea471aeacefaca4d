"""A run killed with SIGKILL at any place of a step: the next run ends with the same tables as one never killed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.spark_support import change, plain_spec, sink, table, write

from ebbtide import run

CRASH = Path(__file__).parent / "crash.py"
PLACES = (
    "before the decision",
    "after the decision",
    "after the quarantine",
    "after the sink",
    "after the changelog",
    "before the quarantine",
)
FILES = [
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), "{"],
    [change("-D", 1, "a", 3), change("+U", 2, "c", 4), change("+I", 3, "d", 5), "["],
    [change("-U", 2, "b", 6), change("+I", 1, "e", 7), "]"],
]
EMITTED = sorted([("+I", 1, "a"), ("+I", 2, "b"), ("-D", 1, "a"), ("+U", 2, "c"), ("+I", 3, "d"), ("+I", 1, "e")])


def unnumbered(lines):
    """Equal rows must meet: the place in the source is left out of the row."""
    return [line.replace('"seq": ', '"no": ') for line in lines]


@pytest.mark.grid  # over a topic: test_kafka.py; at every place, without Spark: tests/runtime/test_crashes.py
@pytest.mark.parametrize("place", PLACES)
def test_run_killed_in_a_step_is_finished_by_the_next(spark, tmp_path, place):
    every = {"emission": "every"}
    spec = plain_spec(write(tmp_path / "in", *map(unnumbered, FILES)), schema="id BIGINT, v STRING", materializer=every)
    given = spec.model_dump_json(by_alias=True)
    killed = subprocess.run(
        [sys.executable, CRASH, given, tmp_path / "killed", place], check=False, stderr=subprocess.PIPE
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]

    rest = run(spark, spec, str(tmp_path / "killed"))
    kinds = [step.kind for step in rest.steps]
    assert kinds == (["batch", "batch"] if place == "before the decision" else ["replay", "batch"])
    assert [(row["id"], row["v"]) for row in sink(spark, tmp_path / "killed", spec)] == [(1, "e"), (2, "c"), (3, "d")]
    emitted = [(row["_kind"], row["id"], row["v"]) for row in table(spark, tmp_path / "killed", spec, "changelog")]
    assert sorted(emitted) == EMITTED
    bad = table(spark, tmp_path / "killed", spec, "quarantine")
    assert sorted((row["step"], row["raw"]) for row in bad) == [(1, b"{"), (2, b"["), (3, b"]")]
    state = table(spark, tmp_path / "killed", spec, "state")
    read = [json.loads(row["_note"]) for row in state if row["_entry"] == "file"]
    written = sorted((tmp_path / "in").iterdir())
    assert sorted(read, key=lambda file: file["name"]) == [{"name": f.name, "size": f.stat().st_size} for f in written]
