"""Mutants of what only Spark reaches: `make mutants SPARK=1`, after `make mutants`, which makes them.

They run in one process with one session, each against the tests of sinks that Spark writes, as far as these call its function. What
was found is noted where `make mutants` notes it; a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import _prepareconfig
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

MODULES = ("ledger/transaction", "ledger/puts", "tables/delta_sink")
TESTS = ("tests/spark/test_delta.py::test_commits_go_through_the_log_store_of_delta_where_no_link_can_be_made",)
NO_TESTS = 33
"""The exit code by which mutmut notes a mutant that none of its tests calls."""
SURVIVED, KILLED = 0, 1
MOST_S = 180


class Suite:
    """Tests that are collected once."""

    def __init__(self) -> None:
        arguments = ["--rootdir=.", "--tb=no", "-q", "-m", "", "-p", "no:cacheprovider", "--import-mode=importlib"]
        config = _prepareconfig([*arguments, *TESTS])
        config._do_configure()
        self.session = pytest.Session.from_config(config)
        config.hook.pytest_sessionstart(session=self.session)
        self.session.perform_collect()

    def passes(self, items: list[Any]) -> bool:
        """Run tests up to the first that fails."""
        for item in items:
            failed_before = self.session.testsfailed
            signal.alarm(MOST_S)
            # All but what belongs to the whole session, as Spark does, is torn down.
            item.ihook.pytest_runtest_protocol(item=item, nextitem=self.session)
            signal.alarm(0)
            if self.session.testsfailed > failed_before:
                return False
        return True

    def by_function(self) -> dict[str, list[Any]]:
        """Run all tests; return which of them call which function, the most special ones first."""
        functions_of: dict[Any, set[str]] = {}
        for item in self.session.items:
            state()._stats.clear()
            set_mutant_under_test("stats")
            if not self.passes([item]):
                sys.exit(f"{item.nodeid} fails without a mutant")
            functions_of[item] = set(state()._stats)
        found = defaultdict(list)
        for item in sorted(functions_of, key=lambda each: len(functions_of[each])):
            for function in functions_of[item]:
                found[function].append(item)
        return found


def overdue(*_: object) -> None:
    """End a test that does not come to an end."""
    raise TimeoutError


def main() -> None:
    """Run all that were not run."""
    signal.signal(signal.SIGALRM, overdue)
    suite = Suite()
    tests_of = suite.by_function()
    for module in MODULES:
        notes = Path("ebbtide", f"{module}.py.meta")
        known = json.loads(notes.read_text())
        codes = known["exit_code_by_key"]
        for name in [name for name, code in codes.items() if code in (NO_TESTS, SURVIVED)]:
            tests = tests_of.get(name.partition("__mutmut_")[0])
            if not tests or name in known.get("on_spark", ()):
                continue
            set_mutant_under_test(name)
            codes[name] = SURVIVED if suite.passes(tests) else KILLED
            known.setdefault("on_spark", []).append(name)
            notes.write_text(json.dumps(known, indent=4))
            print(name, "survived" if codes[name] == SURVIVED else "killed", flush=True)  # noqa: T201


if __name__ == "__main__":
    os.chdir("mutants")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - in place of the folder of this file
    main()
