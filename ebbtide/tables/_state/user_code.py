"""Ships a user's function to Spark's workers, which cannot import from the spec's project.

The source text is shipped: of the function's module, and of all modules of the project that it imports (see `project_sources`). On a
worker a finder of the import system serves those modules under their own names, so that they import each other as on the driver.
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

from ebbtide.tables._state.project_sources import Source, project_sources


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
        return pickle.loads(self.pickled)  # noqa: S301 - made by `ship`, in the same application


def ship(value: Any, module: str) -> Shipped:
    """Pack an object whose class or function is in a module of the user's.

    Args:
        value: The object.
        module: The module's name. Workers import an installed module themselves; a module without a file, as in a notebook, is
            pickled by value.
    """
    if module == "__main__":  # cloudpickle always pickles it by value
        return Shipped({}, _pickled(value))
    imported = sys.modules[module]
    file = getattr(imported, "__file__", None)
    if file is None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(imported)  # type: ignore[no-untyped-call]
        return Shipped({}, _pickled(value))
    sources = project_sources(module, Path(file))
    return Shipped(sources, _pickled(value))


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
