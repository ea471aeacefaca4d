"""Takes a user's function along to Spark's workers, which cannot import from the spec's project.

The source text goes along, of the function's module and of all modules of the project that it imports, in turn: packages,
relative imports, imports inside functions. On a worker a finder gives those modules out under their own names, so that they
import each other there as they do at home.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from ebbtide.tables.state.project_sources import Source, project_sources


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
    if module == "__main__":  # cloudpickle pickles it by value without being asked
        return Shipped({}, _pickled(value))
    imported = sys.modules[module]
    file = getattr(imported, "__file__", None)
    if file is None:
        cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
        return Shipped({}, _pickled(value))
    sources = project_sources(module, Path(file))
    return Shipped(sources, _pickled(value))


def _pickled(value: Any) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


class _Shelf(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules from their sources, once all other finders have not found them."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def put(self, sources: Mapping[str, Source]) -> None:
        """Take sources in; modules made of other text, by an earlier application of this worker, are forgotten."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        if self._has_other_text(sources):
            self._forget()
        self.sources.update(sources)

    def _has_other_text(self, sources: Mapping[str, Source]) -> bool:
        """Return whether one of some modules is here with other text."""
        for name, source in sources.items():
            known = self.sources.get(name, source)
            if known != source:
                return True
        return False

    def _forget(self) -> None:
        """Drop all sources, and the modules made of them: any may have imported one that has changed."""
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
        """See `MetaPathFinder`."""
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
        """See `Loader`."""
        source = self.sources[module.__name__]
        code = compile(source.text, source.path, "exec")
        exec(code, module.__dict__)  # noqa: S102 - the user's own code


_SHELF = _Shelf()
