"""Faults of an object store: which pass by themselves, how long a call is tried again, and what is said of them.

The library distinguishes a fault of the network from an answer by its text only: `status code: 503` or `HTTP error: ...`.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from obstore.exceptions import BaseError

from ebbtide.errors import EbbtideError, StoreRefusedError, StoreUnavailableError

BUDGET_S = 180.0
"""How long a call is tried again before the run fails: S3 that splits a busy prefix answers 503 for minutes."""
FIRST_PAUSE_S = 0.2
MOST_PAUSE_S = 15.0
PASSING_STATUSES = (408, 429)
"""Of an answer that is worth another try, beside all from 500 on."""
_DEBUG = "\n\nDebug source:"
"""Begins what the library adds for its own developers."""
_STATUS = re.compile(r"status code: (\d{3})([\w ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_SYSTEM = re.compile(r'message: "([^"]+)"')
_NETWORK = "HTTP error: "
_OF_SETTINGS = "builder error"
"""A request that could not even be made: of a URL that is none, or of plain HTTP where that is not allowed."""
_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class ConflictError(BaseError):
    """Raised when a store refuses a put because of another that it then does not have: of two at once it refused both."""


def retried(location: str, call: Callable[[], Answer]) -> Answer:
    """Make a call, again and again while the store fails in a way that passes by itself.

    Args:
        location: What it is about, for errors.
        call: Asks the store; more than once it does no more than once.

    Raises:
        StoreUnavailableError: the store failed all the time.
        StoreRefusedError: it refuses the call.
        FileNotFoundError: there is no such file.
    """
    started = time.monotonic()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except BaseError as error:
            fault = error
        elapsed_s = time.monotonic() - started
        if not passes(fault):
            raise refused(location, fault)
        if elapsed_s + pause_s > BUDGET_S:
            raise _unavailable(location, fault, elapsed_s)
        _log.warning("The object store of '%s' failed, tried again in %.1f s: %s", location, pause_s, cause(fault))
        # By chance, or all clients that must slow down would come back at once.
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def passes(fault: BaseError) -> bool:
    """Return whether a fault may pass by itself."""
    if isinstance(fault, ConflictError):
        return True
    text = _text(fault)
    status = _STATUS.search(text)
    if status is not None:
        number = int(status[1])
        return number >= 500 or number in PASSING_STATUSES
    return _NETWORK in text and _OF_SETTINGS not in text


def cause(fault: Exception) -> str:
    """Return what a store, or the network, said: without URLs, which may be signed, and without what was signed."""
    text = _text(fault)
    status = _STATUS.search(text)
    if status is not None:
        code = _CODE.search(text)
        said = f"{status[1]}{status[2]}".strip()
        if code is None:
            return said
        return f"{said}, {code[1]}"
    # Of the network: `Error performing GET URL - HTTP error: ...`, and what the system said further down.
    _, _, last = text.rpartition(" - ")
    first_line, _, _ = last.partition("\n")
    system = _SYSTEM.search(str(fault))
    if system is None:
        return first_line
    return f"{first_line}: {system[1]}"


def refused(location: str, fault: Exception) -> EbbtideError:
    """Return the error of a call that would be refused again."""
    # What the library says is not chained to it: an answer may hold what was signed.
    return StoreRefusedError.of(
        f"The object store of '{location}' refuses what is asked of it.",
        got=cause(fault),
        next_step="Look at the bucket's name and rights, and at the endpoint, region and credentials in the environment "
        "(docs/how-to/object-stores.md).",
    )


def _unavailable(
    location: str,
    fault: BaseError,
    elapsed_s: float,
) -> EbbtideError:
    return StoreUnavailableError.of(
        f"The object store of '{location}' failed for {elapsed_s:.0f} s.",
        got=cause(fault),
        next_step="Nothing is half done: start the run again once the store answers.",
    )


def _text(fault: Exception) -> str:
    text, _, _ = str(fault).partition(_DEBUG)
    return text
