"""The source text of a project's module, and of all modules of the project that it imports, directly or not.

Packages, relative imports and imports inside functions are followed. The text is parsed, not run.
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
        path: Its file on the driver's machine, for tracebacks.
        text: Its text; empty for a folder without `__init__.py`.
        is_package: True for a folder.
    """

    path: str
    text: str
    is_package: bool


def project_sources(module: str, file: Path) -> dict[str, Source]:
    """Read a module, and all modules of its project that it imports, directly or not.

    Args:
        module: Its name.
        file: Its file.
    """
    depth = module.count(".")
    if file.name == "__init__.py":
        depth += 1
    home = file.resolve().parents[depth]
    if any(home.is_relative_to(folder) for folder in INSTALLED):
        return {}
    # A walk over the imports that reads each module of the project once. Every name of an import statement is a candidate:
    # `from a import b` may mean a module `a.b`. A name that is not a module of the project is dropped when it is looked up.
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
    """Return whether a module belongs to Ebbtide, which workers have installed."""
    top, _, _ = module.partition(".")
    return top == "ebbtide"


def _read(home: Path, name: str) -> Source | None:
    """Read a module of the project; None if the project has no such module."""
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
    """Yield the names that a module imports: modules, and members of modules."""
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
