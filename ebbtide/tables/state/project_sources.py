"""The source text of a project's module, and of what it imports of the project, in turn.

Packages, relative imports and imports inside functions count too.
"""

from __future__ import annotations

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INSTALLED = (
    Path(sysconfig.get_path("purelib")),
    Path(sysconfig.get_path("platlib")),
    Path(sysconfig.get_path("stdlib")),
    Path(sysconfig.get_path("platstdlib")),
)
"""Folders of modules that the workers import themselves."""


class Source(NamedTuple):
    """One module.

    Args:
        path: Its file at home, for tracebacks.
        text: What is in it; empty of a folder without `__init__.py`.
        is_package: It is a folder.
    """

    path: str
    text: str
    is_package: bool


def project_sources(module: str, file: Path) -> dict[str, Source]:
    """Read a module, and what it imports of its own project, in turn.

    Args:
        module: Its name.
        file: Where it is.
    """
    depth = module.count(".")
    if file.name == "__init__.py":
        depth += 1
    home = file.resolve().parents[depth]
    if any(home.is_relative_to(folder) for folder in INSTALLED):
        return {}
    # A walk over the imports: each module of the project is read once. A name that is not a module of the project is
    # dropped when it is looked up, so all names of an import statement are candidates.
    found: dict[str, Source] = {}
    candidates = [module]
    while candidates:
        name = candidates.pop()
        if name in found or _is_own(name):
            continue
        source = _read(home, name)
        if source is None:
            continue
        found[name] = source
        parent, _, _ = name.rpartition(".")
        if parent:
            candidates.append(parent)
        candidates.extend(_imported(source, name))
    return found


def _is_own(module: str) -> bool:
    """Return whether a module is of Ebbtide, which the workers have."""
    top, _, _ = module.partition(".")
    return top == "ebbtide"


def _read(home: Path, name: str) -> Source | None:
    """Read a module of the project; None if it is not a module, or not of the project."""
    folder = home.joinpath(*name.split("."))
    init = folder / "__init__.py"
    file = folder.with_suffix(".py")
    if init.is_file():
        return _source(init, is_package=True)
    if file.is_file():
        return _source(file, is_package=False)
    if folder.is_dir():
        return Source(str(folder), text="", is_package=True)
    return None


def _source(file: Path, *, is_package: bool) -> Source:
    text = file.read_text(encoding="utf-8")
    return Source(str(file), text, is_package)


def _imported(source: Source, name: str) -> Iterator[str]:
    """Yield the names that a module imports, of modules and of what is in them."""
    package = name
    if not source.is_package:
        package, _, _ = name.rpartition(".")
    tree = ast.parse(source.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                dots = "." * node.level
                module = importlib.util.resolve_name(dots + module, package)
            yield module
            for alias in node.names:
                yield f"{module}.{alias.name}"
