"""Replay on Spark: killed after its decision, finished by the next run, and read by others."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, table, write

from ebbtide import refresh, run, status
from ebbtide.checks import Engines, VersionRange
from ebbtide.checks import _quarantine as rate
from ebbtide.checks._judged import Judged
from ebbtide.inspect import QuarantineSummary
from ebbtide.operations._quarantine import replay as quarantine_replay
from ebbtide.runtime import Plan, idle_run, system_clock
from ebbtide.tables import Selection

CRASH = Path(__file__).parent / "crash.py"
BY_SEQ = {"sequence": ["seq"]}
MENDED = {"order": BY_SEQ, "schema": "id BIGINT, v STRING DEFAULT 'none', seq BIGINT, at TIMESTAMP_NTZ DEFAULT NULL"}


def without_v(id_, n):
    return json.dumps({"p": 0, "n": n, "kind": "+U", "row": {"id": id_, "seq": n}})


@pytest.mark.grid
def test_replay_killed_after_its_decision_is_finished_by_the_next_run(spark, tmp_path):
    first = [change("+I", 1, "a", 1), without_v(1, 5), *(without_v(n, n) for n in (6, 7, 8)), "{"]
    source = write(tmp_path / "in", first, [change("+U", 1, "b", 4), change("+U", 6, "newer", 9)])
    root = str(tmp_path)
    run(LOCAL, plain_spec(source, order=BY_SEQ), root)
    spec = plain_spec(source, **MENDED)
    assert idle_run(spec, root, system_clock()) is not None

    text = spec.model_dump_json(by_alias=True)
    command = [sys.executable, CRASH, text, root, "after the decision", "replay"]
    killed = subprocess.run(command, check=False, stderr=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert [row["v"] for row in sink(spark, tmp_path, spec)] == ["b", "newer"]
    assert idle_run(spec, root, system_clock()) is None, "something is left to do"

    write(source, [change("+U", 8, "newest", 10)], first=2)
    kinds = [step.kind for step in run(LOCAL, spec, root).steps]
    assert kinds == ["batch"], "the source is read on where it was"
    rows = [(row["id"], row["v"], row["seq"]) for row in sink(spark, tmp_path, spec)]
    assert rows == [(1, "none", 5), (6, "newer", 9), (7, "none", 7), (8, "newest", 10)]
    assert [row["raw"] for row in table(spark, tmp_path, spec, "quarantine")] == [b"{"], "Spark sees the same"
    assert QuarantineSummary.of(spec, root).records == status(spec, root).read.in_quarantine == 1
    assert idle_run(spec, root, system_clock()) is not None

    plan = Plan.under(root, spec)
    replays = [facts for _, facts in plan.state.steps() if facts.cause.what == "quarantine_replay"]
    assert [facts.decision.removed for facts in replays] == [{"replayed": 4}]
    judged = Judged(Engines(lambda: spark), plan, VersionRange.after(plan), 0)
    counted = rate.batches(judged).inputs["facts"].read().to_pylist()
    assert sum(row["quarantined"] for row in counted) == 5, "each bad record counts once"
    assert sum(row["records"] for row in counted) == len(first) + 3


@pytest.mark.grid
def test_replay_by_sequence_survives_a_refresh_of_the_source(spark, tmp_path):
    """A refresh reads the source again: with the mended spec nothing is bad any more."""
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), *(without_v(n, n) for n in (2, 3, 4))])
    root = str(tmp_path)
    run(LOCAL, plain_spec(source, order=BY_SEQ), root)
    spec = plain_spec(source, **MENDED)
    report = quarantine_replay.apply(spark, spec, root, system_clock(), Selection(limit=3))
    assert (report["replayed"], report["counts"]["inserted"]) == (3, 3)
    replayed = sink(spark, tmp_path, spec)
    refresh(spark, spec, root)
    assert sink(spark, tmp_path, spec) == replayed
    assert QuarantineSummary.of(spec, root).records == 0
