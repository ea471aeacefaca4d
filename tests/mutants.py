"""Mutation tests: `make mutants`, or `make mutants ONLY=ebbtide/formats/columns.py` for some modules.

mutmut makes the mutants and notes which tests call which function. Central functions are called by nearly all tests, so that
a mutant runs against the nearest of them: those of its module's own test files, then the shortest others, as far as a budget
of time goes. One that those do not kill counts as a survivor.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click
import mutmut.__main__ as mutmut
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.state import state
from mutmut.stats import status_by_exit_code

ROOMS = ("ebbtide/model", "ebbtide/operators", "ebbtide/formats", "ebbtide/sources")
BUDGET_S = 8
"""The most that the tests of one mutant take, as measured without mutants."""
KILLED = ("killed", "timeout")
"""A mutant that runs for ever is one whose tests never pass."""

NOT_RUN = {255: "could not be run"}
"""Exit codes that mutmut takes for a timeout though no test ran."""


def nearest(function: str, tests: set[str]) -> list[str]:
    """Return the tests that a function's mutants run against, the first to run first."""
    lasts = state().duration_by_test
    module = function.rpartition(".")[0].removeprefix("ebbtide.").replace(".", "/")
    folder, _, name = module.rpartition("/")
    own_file = f"tests/{folder}/test_{name}"
    found, total_s = [], 0.0
    for test in sorted(tests, key=lambda each: (not each.startswith(own_file), lasts[each], each)):
        total_s += lasts[test]
        if found and total_s > BUDGET_S:
            break
        found.append(test)
    return found


def with_nearest_tests(*given: Any, **named: Any) -> None:
    """Find out which tests call which function, and keep the nearest."""
    collect(*given, **named)
    by_function: Any = state().tests_by_mangled_function_name
    for function, tests in by_function.items():
        by_function[function] = nearest(function, tests)


def report(modules: list[str]) -> None:
    """Print each module's counts, and what survived."""
    total: Counter[str] = Counter()
    for path in modules:
        data = SourceFileMutationData(path=Path(path))
        data.load()
        found = {name: NOT_RUN.get(code, status_by_exit_code[code]) for name, code in data.exit_code_by_key.items()}
        for name, status in found.items():
            if status not in KILLED:
                click.echo(f"\n{name}: {status}\n{get_diff_for_mutant(name)}")
        counts = Counter(found.values())
        click.echo(f"{path}: {len(found)} mutants; {dict(counts)}")
        total += counts
    click.echo(f"all: {total.total()} mutants; {dict(total)}")


collect = mutmut.collect_or_load_stats

if __name__ == "__main__":
    os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "NUMBA_DISABLE_JIT": "1"}  # mutants of a loop cannot be compiled
    mutmut.collect_or_load_stats = with_nearest_tests
    folders = [Path(each) for each in sys.argv[1:] or ROOMS]
    modules = sorted(str(path) for given in folders for path in (given.rglob("*.py") if given.is_dir() else [given]))
    names = [path.removesuffix(".py").replace("/", ".") + ".x*" for path in modules]
    # Without names mutmut goes on where it was; what is named runs again.
    mutmut._run(names if sys.argv[1:] else [], max_children=1)
    report(modules)
