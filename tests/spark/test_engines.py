"""A run on Spark goes on where a local one has stopped, and the other way round."""

import threading

import pytest
from clusters.spark_support import cut, shop_lines, shop_spec, write
from frame.limits import set_limits
from local.local_run import die_behind_a_decision
from oracles.shop_truth import same_as_truth

from ebbtide import Automatic, InProcess, run
from ebbtide.runtime._following import Following


@pytest.mark.parametrize("is_local_first", [True, pytest.param(False, marks=pytest.mark.grid)])
def test_engines_take_turns_and_finish_each_others_batches(spark, tmp_path, is_local_first):
    parts = cut(shop_lines("customers"), 6)
    source = tmp_path / "in"
    spec = shop_spec("customers", write(source, *parts[:2]))
    sessions = [InProcess(), spark] if is_local_first else [spark, InProcess()]
    first = run(sessions[0], spec, str(tmp_path))
    assert [step.kind for step in first.steps] == ["batch", "batch"]

    for number in range(2, len(parts), 2):
        write(source, parts[number], first=number)
        die_behind_a_decision(sessions[0], tmp_path, spec)
        write(source, parts[number + 1], first=number + 1)
        sessions.reverse()
        summary = run(sessions[0], spec, str(tmp_path))
        assert [step.kind for step in summary.steps] == ["replay", "batch"]
    assert same_as_truth(spec, tmp_path)


def test_run_that_goes_on_turns_to_spark_for_a_large_file_and_comes_back(spark, tmp_path):
    parts = cut(shop_lines("customers"), 4)
    source = tmp_path / "in"
    spec = shop_spec("customers", write(source, parts[0]))
    set_limits(most_bytes=10**9)
    stop = threading.Event()
    opened = []

    def open_spark():
        opened.append(spark)
        return spark

    def on_progress(step):
        if step.kind != "batch":
            return
        if step.step == 1:
            assert not opened
            set_limits(most_bytes=0)
            write(source, *parts[1:3], first=1)
        elif step.step == 3:
            assert opened
            set_limits(most_bytes=10**9)
            write(source, parts[3], first=3)
        elif step.step == 4:
            stop.set()

    follow = Following(interval_ms=10, tick_every_ms=10**9)
    summary = run(Automatic(open_spark), spec, str(tmp_path), on_progress=on_progress, stop=stop, follow=follow)
    assert summary.engine.startswith("in this process: ")
    assert same_as_truth(spec, tmp_path)
