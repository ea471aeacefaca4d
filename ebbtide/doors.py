"""The door of a room: the names that other rooms may take from it.

A room is a package of private modules. Its `__init__` imports, for type checkers alone, the names that it offers, each as
`from MODULE import NAME as NAME`; `names_of` makes them attributes of the package, each loaded with its module when it is first taken. So a
name that is not taken is not loaded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module

# Not parsed: every process, Spark's workers too, reads a door for each room that it enters, and `ast` costs more than the door.
_OFFER = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def names_of(room: str) -> tuple[Callable[[str], object], list[str]]:
    """Return the `__getattr__` and the `__all__` of a room, made from the imports that its door has for type checkers.

    Args:
        room: Name of the package, its `__name__`.

    Example:
        >>> from ebbtide import storage
        >>> storage.Location("s3://bucket/shop") / "orders"
        's3://bucket/shop/orders'
    """
    spec = sys.modules[room].__spec__
    source = spec.loader.get_data(spec.origin).decode()  # type: ignore[union-attr]
    module_of = {name: module for module, name in _OFFER.findall(source)}

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value: object = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[room], name, value)  # the next time it exists
        return value

    return load, sorted(module_of)
