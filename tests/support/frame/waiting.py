"""How long a test waits for what must come: so long that no load of the machine is taken for a failure."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 240
"""Less than pytest's `faulthandler_timeout`, so that the test says what it waited for."""


def until(condition: Callable[[], Any], what: str = "what another thread or process is about to do") -> Any:
    """Wait until something is true, and return it."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < ends_at, f"waited in vain for {what}"
        time.sleep(0.01)
    return found
