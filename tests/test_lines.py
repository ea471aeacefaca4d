"""No text is cut into lines at characters that may stand within a value."""

import ast
from pathlib import Path

import pytest
from frame.source import nodes_of

from ebbtide.lines import lines_of

pytestmark = pytest.mark.group("rooms")
ROOT = Path(__file__).resolve().parent.parent
OF_BYTES = {"delta/_log.py", "sources/_lines.py", "operations/_quarantine/redecoding.py"}
"""Modules that split bytes, which end at line feeds and carriage returns alone."""


def test_lines_end_at_line_feeds_alone():
    other = [chr(code) for code in range(0x3000) if len(f"a{chr(code)}b".splitlines()) > 1 and chr(code) not in "\r\n"]
    assert len(other) == 8
    text = "a" + "".join(other) + "b"
    assert lines_of(f"{text}\n{text}\r\n\n{text}") == [text, text, "", text]
    assert lines_of("a\n") == ["a"]


def test_texts_are_split_by_one_function():
    calling = set()
    for path in (ROOT / "ebbtide").rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and node.attr == "splitlines":
                calling.add(str(path.relative_to(ROOT / "ebbtide")))
    assert calling == OF_BYTES
