"""The state of a function that declares one, and does nothing."""

from __future__ import annotations

from typing import Any

from ebbtide.keyed_state import FunctionRun, StatefulFunction, Store
from ebbtide.stores import HeapStore


def run_with(declared: Any, store: Store | None = None, name: str = "s", key: Any = "a") -> FunctionRun:
    """Bind a state to a store.

    Args:
        declared: Its descriptor.
        store: A heap if not given.
        name: The state's name.
        key: The current key.
    """
    function = type("Holds", (StatefulFunction,), {"output": "n BIGINT", name: declared})
    run = FunctionRun(function(), store or HeapStore())
    run.context.key = key
    return run
