"""The code of the product as many tests read it. Tests that ask for all of it are of the group `rooms`: each file is parsed once."""

import ast
from functools import cache
from pathlib import Path


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree, as `ast.walk` gives them."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
