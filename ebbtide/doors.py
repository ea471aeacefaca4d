"""The door of a room: the names that other rooms may take from it.

A room is a package of private modules. Its `__init__` imports, for type checkers alone, the names that it offers; `names_of` makes them
attributes of the package, each loaded with its module when it is first taken. So a name that is not taken is not loaded.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec


def names_of(room: str) -> tuple[Callable[[str], object], list[str]]:
    """Return the `__getattr__` and the `__all__` of a room, made from the imports that its door has for type checkers.

    Args:
        room: Name of the package, its `__name__`.

    Example:
        >>> from ebbtide import storage
        >>> storage.Location("s3://bucket/shop") / "orders"
        's3://bucket/shop/orders'
    """
    spec = find_spec(room)
    source = spec.loader.get_source(room)  # type: ignore[union-attr]
    for_type_checkers = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in for_type_checkers for node in block.body if isinstance(node, ast.ImportFrom)]
    inside = f"{room}."
    module_of = {
        alias.asname or alias.name: node.module
        for node in imports
        if node.module is not None and node.module.startswith(inside)
        for alias in node.names
    }

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[room], name, value)  # the next time it is there
        return value

    return load, sorted(module_of)
