"""Benchmarks follow the code: what they import is there, and the functions that `benchmarks/stages.py` times; their times add up."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("script", sorted(path.name for path in BENCHMARKS.glob("*.py")))
def test_names_that_a_script_imports_are_there(script):
    # Not run: most need packages that only benchmarks have.
    code = ast.parse((BENCHMARKS / script).read_text())
    for statement in ast.walk(code):
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("ebbtide"):
            module = importlib.import_module(statement.module)
            for name in statement.names:
                is_there = hasattr(module, name.name) or importlib.util.find_spec(f"{module.__name__}.{name.name}")
                assert is_there, f"{script} imports {name.name} from {module.__name__}"


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.demand("sum-benchmark")
def test_each_strategy_of_flip_544_is_measured(shell, by_key):
    shell.put_on_path(BENCHMARKS)
    import flip544

    cells = [(store, strategy) for store, strategy in flip544.OURS if store != "kernel"]
    assert len(cells) == 8
    for store, strategy in cells:
        rate = flip544.measure(store, strategy, records=20, keys=1, pct=100, delay=2, budget_s=5, by_key=by_key)
        assert rate > 0


@pytest.fixture
def stages(shell):
    shell.put_on_path(BENCHMARKS)
    import stages

    return stages


def test_each_stage_names_functions_that_are_there(stages):
    for stage, places in stages.STAGES.items():
        for place in places:
            owner, name = stages.owner_of(place)
            assert callable(getattr(owner, name)), (stage, place)


def test_time_of_a_stage_is_without_that_of_the_stages_in_it(stages):
    now = iter([0.0, 1.0, 4.0, 9.0])  # outer begins, inner begins and ends, outer ends
    timers = stages.Timers(lambda: next(now))
    inner = timers._timed("inner", lambda: None)
    timers._timed("outer", inner)()
    assert timers.seconds == {"inner": 3.0, "outer": 6.0}


def test_each_turn_of_a_generator_counts_and_its_caller_s_time_does_not(stages):
    now = iter(range(100))
    timers = stages.Timers(lambda: next(now))
    items = timers._timed("read", lambda: iter([1, 2]))()
    assert list(items) == [1, 2]
    assert timers.seconds == {"read": 4}  # the call, both items and the end: a tick each


@pytest.mark.parametrize("name", ["plain", "debezium"])
def test_local_engine_reads_an_input_and_its_stages_are_printed(stages, tmp_path, capsys, shell, name):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    stages.measure(name, tmp_path, 40, stages.Timers())
    printed = capsys.readouterr().out
    assert f"{name}: 40 records" in printed
    assert all(stage in printed for stage in stages.STAGES)


def test_pages_say_of_the_benchmark_what_its_results_give(shell):
    shell.put_on_path(BENCHMARKS)
    import figures

    for name, (pattern, text) in figures.figures().items():
        page = (BENCHMARKS.parent / name).read_text(encoding="utf-8")
        assert re.findall(pattern, page) == [text], f"{name}: run 'python benchmarks/figures.py'"
