"""Calls that block, on threads of their own: none waits for another, and none keeps the process from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

Returned = TypeVar("Returned")


async def on_thread(call: Callable[..., Returned], *arguments: Any) -> Returned:
    """Call something, and wait for what it returns or raises without holding up others."""
    future: Future[Returned] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            returned = call(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
        else:
            future.set_result(returned)

    Thread(target=work, daemon=True, name="gateway").start()
    return await asyncio.wrap_future(future)
