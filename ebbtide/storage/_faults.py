"""Faults of an object store: retries of calls whose fault is transient, and errors for the rest.

The library distinguishes a fault of the network from an answer only by its text: `status code: 503` or `HTTP error: ...`.
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
"""Seconds of retries before the run fails: S3 answers 503 for minutes while it splits a busy prefix."""
FIRST_PAUSE_S = 0.2
MOST_PAUSE_S = 15.0
PASSING_STATUSES = (408, 429)
"""Statuses of answers that are retried, in addition to all from 500 on."""
PAST_THE_END = 416
"""Status of the answer to a range that begins behind the last byte."""
_DEBUG = "\n\nDebug source:"
"""Begins the part of a message that the library adds for its own developers."""
_STATUS = re.compile(r"status code: (\d{3})([\w ]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_SYSTEM = re.compile(r'message: "([^"]+)"')
_NETWORK = "HTTP error: "
_OF_SETTINGS = "builder error"
"""A request that could not be made: an invalid URL, or plain HTTP that is not allowed. Retrying does not help."""
_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class ConflictError(BaseError):
    """Raised when a store refuses a put because of another one that it then does not have: it refused two concurrent puts."""


def retried(location: str, call: Callable[[], Answer]) -> Answer:
    """Make a call, and repeat it while the store's fault is transient.

    Args:
        location: Location of the file, for errors.
        call: Calls the store; must be idempotent.

    Raises:
        StoreUnavailableError: every try failed.
        StoreRefusedError: it refuses the call.
        FileNotFoundError: the file does not exist.
    """
    started = time.monotonic()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except BaseError as error:
            fault = error
        # Transient or not is decided by the fault alone: a missing file is not one, and `call` raises it itself.
        elapsed_s = time.monotonic() - started
        if not passes(fault):
            raise refused(location, fault)
        if elapsed_s + pause_s > BUDGET_S:
            raise _unavailable(location, fault, elapsed_s)
        _log.warning("The object store of '%s' failed, tried again in %.1f s: %s", location, pause_s, cause(fault))
        # Jitter: without it all clients that were slowed down would return at the same moment.
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        time.sleep(pause_s * jitter)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def passes(fault: BaseError) -> bool:
    """Return whether a fault is transient."""
    if isinstance(fault, ConflictError):
        return True
    text = _text(fault)
    status = _STATUS.search(text)
    if status is not None:
        number = int(status[1])
        return number >= 500 or number in PASSING_STATUSES
    return _NETWORK in text and _OF_SETTINGS not in text


def is_empty(fault: BaseError) -> bool:
    """Return whether a store refuses a range because the file has no bytes at all."""
    status = _STATUS.search(_text(fault))
    return status is not None and int(status[1]) == PAST_THE_END


def cause(fault: Exception) -> str:
    """Return the message of a store or of the network, without URLs and signed text: these may be credentials."""
    text = _text(fault)
    status = _STATUS.search(text)
    if status is not None:
        code = _CODE.search(text)
        answer = f"{status[1]}{status[2]}".strip()
        if code is None:
            return answer
        return f"{answer}, {code[1]}"
    # A fault of the network: `Error performing GET URL - HTTP error: ...`, and the system's message further down.
    _, _, last = text.rpartition(" - ")
    first_line, _, _ = last.partition("\n")
    system = _SYSTEM.search(str(fault))
    if system is None:
        return first_line
    return f"{first_line}: {system[1]}"


def refused(location: str, fault: Exception) -> EbbtideError:
    """Return the error of a call that would be refused again."""
    # The library's error is not chained: its text may have a signed request.
    return StoreRefusedError.of(
        f"The object store of '{location}' refuses the request.",
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
        next_step="No step is half done: start the run again when the store answers.",
    )


def _text(fault: Exception) -> str:
    text, _, _ = str(fault).partition(_DEBUG)
    return text
