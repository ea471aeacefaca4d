"""Mutation tests: `make mutants`, or `make mutants ONLY=ebbtide/formats/_columns.py` for some modules.

mutmut makes the mutants and notes which tests call which function. Central functions are called by nearly all tests, so that
a mutant runs against the nearest of them: those of its module's own test files, then the shortest others, as far as a budget
of time goes. One that those do not kill counts as a survivor.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

import click
import mutmut.__main__ as mutmut
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import change_cwd
from mutmut.workers import isolation

BUDGET_S = 8
"""The most that the tests of one mutant take, as measured without mutants."""
CPU_S = 10
"""A test run that has used this much, and twice what it was measured to take, has a loop that does not end."""
MEMORY = 6 << 30
"""Bytes; the same for a loop that fills a list."""
LOADED = ("numba", "pandas", "deltalake", "sqlglot.transforms")
"""Loaded where they are first used: a second of each fork that would load them."""
KILLED = ("killed", "timeout")
"""A mutant that runs for ever is one whose tests never pass."""

NOT_RUN = {255: "could not be run"}
"""Exit codes that mutmut takes for a timeout though no test ran."""


def nearest(function: str, tests: set[str]) -> list[str]:
    """Return the tests that a function's mutants run against, the first to run first.

    The test files of `_backfill_status` are `test_backfill_status.py` and `test_backfill.py`. Of a test with parameters the shortest case runs before another case of any does.
    """
    lasts = state().duration_by_test
    module = function.rpartition(".")[0].removeprefix("ebbtide.").replace(".", "/")
    folder, _, name = module.rpartition("/")
    own_folder = f"tests/{folder}/"
    words = name.lstrip("_").split("_")
    own_files = [f"{own_folder}test_{'_'.join(words[:n])}.py" for n in range(len(words), 0, -1)]
    cases: Counter[str] = Counter()
    ranked: list[tuple[bool, bool, int, float, str]] = []
    for test in sorted(tests, key=lambda each: (lasts[each], each)):
        name_of_test = test.partition("[")[0]
        cases[name_of_test] += 1
        far = test.partition("::")[0] not in own_files, not test.startswith(own_folder)
        ranked.append((*far, cases[name_of_test], lasts[test], test))
    found, total_s = [], 0.0
    for *_, last_s, test in sorted(ranked):
        total_s += last_s
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


class CollectedTests(PytestRunner):
    """Tests that are collected once: each mutant forks that process, and runs some of them."""

    items: dict[str, Any] | None = None

    def warm_up(self) -> None:
        """Collect all tests; none of them runs here."""
        import pytest
        from _pytest.config import _prepareconfig

        for module in LOADED:
            import_module(module)
        arguments = ["--rootdir=.", "--tb=no", "-q", "-s", *self._pytest_add_cli_args]
        with change_cwd("mutants"):
            config = _prepareconfig([*arguments, *self._pytest_add_cli_args_test_selection])
            config._do_configure()
            session = pytest.Session.from_config(config)
            config.hook.pytest_sessionstart(session=session)
            session.perform_collect()
        self.items = {item.nodeid: item for item in session.items}
        gc.freeze()  # what is there is not looked at again by each fork, and stays shared

    def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
        """Run tests up to the first that fails, and return 1 if one does."""
        if self.items is None:
            return super().run_tests(mutant_name=mutant_name, tests=tests)
        named = list(tests)
        measured_s = sum(state().duration_by_test[each] for each in named)
        limit_s = int(process_time() + max(CPU_S, 2 * measured_s))
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        chosen = [self.items[each] for each in named]
        with change_cwd("mutants"):
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                if item.session.testsfailed:
                    return 1
        return 0


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


def mutated(named: list[str]) -> list[str]:
    """Return the modules that are meant by modules and folders, or else by `only_mutate` and `do_not_mutate` in pyproject.toml.

    Raises:
        SystemExit: one of them is not there.
    """
    settings = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["mutmut"]
    found: set[str] = set()
    for pattern in named or settings["only_mutate"]:
        places = list(Path().glob(pattern))
        if not places:
            sys.exit(f"No such module or folder: {pattern}")
        for place in places:
            found.update(map(str, place.rglob("*.py") if place.is_dir() else [place]))
    left_alone = settings["do_not_mutate"]
    return sorted(
        path for path in found if path.endswith(".py") and not any(fnmatch(path, each) for each in left_alone)
    )


collect = mutmut.collect_or_load_stats

if __name__ == "__main__":
    os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "NUMBA_DISABLE_JIT": "1"}  # mutants of a loop cannot be compiled
    mutmut.collect_or_load_stats = with_nearest_tests
    isolation.PytestRunner = CollectedTests
    modules = mutated(sys.argv[1:])
    names = [path.removesuffix(".py").replace("/", ".") + ".x*" for path in modules]
    # Without names mutmut goes on where it was; what is named runs again.
    mutmut._run(names if sys.argv[1:] else [], max_children=1)
    report(modules)
