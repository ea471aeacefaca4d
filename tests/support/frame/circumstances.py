"""Circumstances that a test puts the product in until its end: which of several ways something is computed, and what process that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from frame.limits import swap_inside


class JvmStartedError(Exception):
    """Spark was asked for where nothing may start it."""


def _no_session(*_: Any, **__: Any) -> NoReturn:
    raise JvmStartedError


CIRCUMSTANCES: dict[str, tuple[str, Callable[[], Any]]] = {
    "compiled": ("ebbtide.columns.CompiledLoop.pays", lambda: lambda *_, **__: True),
    "not compiled": ("ebbtide.columns.CompiledLoop.pays", lambda: lambda *_, **__: False),
    "another process": ("ebbtide.delta._key_index._shared", dict),
    "another boot": ("ebbtide.ledger._settling.boot", lambda: lambda: "another"),
    "a folder of another user": ("ebbtide.storage.Location.is_ours", lambda: lambda _: False),
    "without heartbeats": ("ebbtide.ledger.Lease._keep", lambda: lambda _: None),
    "without Spark": ("ebbtide.sessions.build_session", lambda: _no_session),
}
"""By a word: a place of the product, and what makes the thing that is there instead."""


def assume(circumstance: str) -> None:
    """Have a circumstance until the end of the test, or of the `limits` that it is in.

    Args:
        circumstance: One of `CIRCUMSTANCES`.
    """
    place, made = CIRCUMSTANCES[circumstance]
    swap_inside(place, made())
