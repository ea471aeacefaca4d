"""What the examples in docstrings show is what comes."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "ebbtide").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]
"""Found by their text: to import all modules would cost each process of tests five seconds."""


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_give_what_they_show(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed, "the examples and what came are in the captured output"
