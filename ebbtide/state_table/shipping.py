"""Takes a user's function along to Spark's workers, which cannot import from the spec's project.

The source text goes along, of the function's module and of all modules of the project that it imports, in turn: packages,
relative imports, imports inside functions. On a worker a finder gives those modules out under their own names, so that they
import each other there as they do at home.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pyspark import cloudpickle

INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib", "platstdlib"))


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


@dataclass(frozen=True)
class Shipped:
    """An object and the modules that it needs; picklable without any of them.

    Args:
        sources: The modules, by name.
        pickled: The object.
    """

    sources: Mapping[str, Source]
    pickled: bytes

    def unpack(self) -> Any:
        """Return the object, its modules imported from their sources where they cannot be found."""
        _SHELF.put(self.sources)
        return pickle.loads(self.pickled)  # noqa: S301 - made by `ship`, in the same application


def ship(value: Any, module: str) -> Shipped:
    """Pack an object whose class or function is in a module of the user's.

    Args:
        value: What is sent.
        module: The module's name. One that is installed is imported by the workers themselves; one without a file, as in a
            notebook, goes along inside the pickle.
    """
    found = sys.modules[module]
    file = getattr(found, "__file__", None)
    if file is None or module == "__main__":
        if module != "__main__":
            cloudpickle.register_pickle_by_value(found)  # type: ignore[no-untyped-call]
        return Shipped({}, _pickled(value))
    return Shipped(project_sources(module, Path(file)), _pickled(value))


def _pickled(value: Any) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def project_sources(module: str, file: Path) -> dict[str, Source]:
    """Read a module, and what it imports of its own project, in turn.

    Args:
        module: Its name.
        file: Where it is.
    """
    depth = module.count(".") + (file.name == "__init__.py")
    home = file.resolve().parents[depth]
    if any(home.is_relative_to(place) for place in INSTALLED):
        return {}
    found: dict[str, Source] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        source = None if name in found or name.partition(".")[0] == "ebbtide" else _read(home, name)
        if source is not None:
            found[name] = source
            waiting += [name.rpartition(".")[0]] if "." in name else []
            waiting += _imported(source, name)
    return found


def _read(home: Path, name: str) -> Source | None:
    """Read a module of the project; None if it is no module, or not of the project."""
    place = home.joinpath(*name.split("."))
    package, file = place / "__init__.py", place.with_suffix(".py")
    if package.is_file():
        return Source(str(package), package.read_text(encoding="utf-8"), is_package=True)
    if file.is_file():
        return Source(str(file), file.read_text(encoding="utf-8"), is_package=False)
    return Source(str(place), "", is_package=True) if place.is_dir() else None


def _imported(source: Source, name: str) -> Iterator[str]:
    """Yield the names that a module imports, of modules and of what is in them."""
    package = name if source.is_package else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            module = importlib.util.resolve_name(relative, package) if node.level else relative
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


class _Shelf(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules from their sources, once all other finders have not found them."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def put(self, sources: Mapping[str, Source]) -> None:
        """Take sources in; modules made of other text, by an earlier application of this worker, are forgotten."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        changed = {name for name, source in sources.items() if self.sources.get(name, source) != source}
        if changed:
            for name in [*self.sources]:
                if getattr(sys.modules.get(name), "__loader__", None) is self:
                    del sys.modules[name]
            self.sources.clear()
        self.sources.update(sources)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        source = self.sources.get(fullname)
        if source is None:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=source.path, is_package=source.is_package)

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        source = self.sources[module.__name__]
        exec(compile(source.text, source.path, "exec"), module.__dict__)  # noqa: S102 - the user's own code


_SHELF = _Shelf()
