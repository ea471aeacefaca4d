"""Ships a user's function to Spark's workers, which cannot import from the spec's project.

The source text is shipped: of the function's module, and of all modules of the project that it imports (see `Shipped.project_sources`). On a
worker a finder of the import system serves those modules under their own names, so that they import each other as on the driver.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import pickle
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

Operator = TypeVar("Operator")
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


@lru_cache(maxsize=256)
def _imported(source: Source, name: str) -> tuple[str, ...]:
    """Return the names that a module imports: modules, and members of modules.

    Each step ships the function, and most texts are then those of the step before.
    """
    package = name
    if not source.is_package:
        package, _, _ = name.rpartition(".")
    names: list[str] = []
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                dots = "." * node.level
                module = importlib.util.resolve_name(dots + module, package)
            names.append(module)
            names += [f"{module}.{alias.name}" for alias in node.names]
    return tuple(names)


@dataclass(frozen=True)
class Shipped:
    """An object and the modules that it needs; it can be unpickled without these modules installed.

    Args:
        sources: The modules, by name.
        pickled: The object, pickled. Unpickled only after the modules can be imported.
    """

    sources: Mapping[str, Source]
    pickled: bytes

    def unpack(self) -> Any:
        """Return the object; modules that cannot be found are imported from their sources."""
        _SHELF.put(self.sources)
        return pickle.loads(self.pickled)  # noqa: S301 - made by `of`, in the same application

    @classmethod
    def of(cls, value: Any, module: str) -> Shipped:
        """Pack an object whose class or function is in a module of the user's.

        Args:
            value: The object.
            module: The module's name. Workers import an installed module themselves; a module without a file, as in a notebook, is
                pickled by value.
        """
        if module == "__main__":  # cloudpickle always pickles it by value
            return cls({}, _pickled(value))
        imported = sys.modules[module]
        file = getattr(imported, "__file__", None)
        if file is None:
            from pyspark import cloudpickle

            cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
            return cls({}, _pickled(value))
        return cls(cls.project_sources(module, Path(file)), _pickled(value))

    @staticmethod
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


def packed(operator: Operator) -> Callable[[], Operator]:
    """Return a picklable function that returns an operator in a worker, with the user's code that it needs."""
    function = getattr(operator, "function", None)
    if function is None:
        return lambda: operator
    shipped = Shipped.of(operator, function.func.__module__)
    return shipped.unpack


def _pickled(value: Any) -> bytes:
    from pyspark import cloudpickle  # loads PySpark, which a pipeline without functions does not need

    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


class _Shelf(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads shipped modules. Last on `sys.meta_path`: an installed module of the same name comes first."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def put(self, sources: Mapping[str, Source]) -> None:
        """Add sources. If the text of a known one changed, as for a later application on this worker, all are forgotten."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        if self._has_other_text(sources):
            self._forget()
        self.sources.update(sources)

    def _has_other_text(self, sources: Mapping[str, Source]) -> bool:
        """Return whether a known module has a different text."""
        for name, source in sources.items():
            known = self.sources.get(name, source)
            if known != source:
                return True
        return False

    def _forget(self) -> None:
        """Remove all sources and their modules: any may have imported the one that changed."""
        for name in self.sources:
            module = sys.modules.get(name)
            is_own = getattr(module, "__loader__", None) is self
            if is_own:
                del sys.modules[name]
        self.sources.clear()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a shipped module; see `MetaPathFinder`."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        return importlib.util.spec_from_loader(
            fullname,
            self,
            origin=source.path,
            is_package=source.is_package,
        )

    def exec_module(self, module: ModuleType) -> None:
        """Run a shipped module; see `Loader`."""
        source = self.sources[module.__name__]
        code = compile(source.text, source.path, "exec")
        exec(code, module.__dict__)  # noqa: S102 - the user's own code


_SHELF = _Shelf()
