"""What a gateway answers: JSON, and errors with a status of HTTP that fits and the class that the client raises again."""

from __future__ import annotations

import json
import logging
import traceback
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from ebbtide.errors import (
    ConfigError,
    EbbtideError,
    GatewayBusyError,
    GatewayError,
    OperationCanceledError,
    OperationGoneError,
    SessionGoneError,
    SqlError,
    SqlSyntaxError,
    Transient,
)
from ebbtide.redaction import shown

LOG = logging.getLogger(__name__)
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
STATUSES: dict[type[EbbtideError], HTTPStatus] = {
    SqlSyntaxError: HTTPStatus.BAD_REQUEST,
    ConfigError: HTTPStatus.BAD_REQUEST,
    SessionGoneError: HTTPStatus.NOT_FOUND,
    OperationGoneError: HTTPStatus.NOT_FOUND,
    OperationCanceledError: HTTPStatus.CONFLICT,
    SqlError: HTTPStatus.UNPROCESSABLE_ENTITY,
    GatewayError: HTTPStatus.FORBIDDEN,
    GatewayBusyError: HTTPStatus.TOO_MANY_REQUESTS,
    Transient: HTTPStatus.SERVICE_UNAVAILABLE,
    EbbtideError: HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""The status of an error: that of the first of its classes that is listed."""


class Refusal(Exception):  # noqa: N818 - carries an error
    """A request that is refused with a status of its own.

    Args:
        status: Of the answer.
        error: What is wrong with it.
    """

    def __init__(self, status: HTTPStatus, error: EbbtideError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


class Answer(JSONResponse):
    """JSON in ASCII: a text that cannot be written as UTF-8 can be answered, too."""

    def render(self, content: Any) -> bytes:
        """Write it."""
        return json.dumps(
            content,
            allow_nan=False,
            separators=(",", ":"),
        ).encode("ascii")


def answer(content: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Answer with JSON."""
    return Answer(content, status, HEADERS)


def failure(error: Exception) -> Answer:
    """Answer with an error; one that is not ours is logged, and the client gets its kind alone."""
    if isinstance(error, Refusal):
        return _failure(error.error, error.status)
    if isinstance(error, EbbtideError):
        return _failure(error, status_of(error))
    LOG.error("%s", shown("".join(traceback.format_exception(error))))
    unexpected = GatewayError.of(
        "The gateway failed.",
        got=type(error).__name__,
        next_step="Its log says more: ask who runs it.",
    )
    return _failure(unexpected, HTTPStatus.INTERNAL_SERVER_ERROR)


def status_of(error: EbbtideError) -> HTTPStatus:
    """Return the status that fits an error."""
    classes = type(error).__mro__
    return next(STATUSES[kind] for kind in classes if kind in STATUSES)


def _failure(error: EbbtideError, status: HTTPStatus) -> Answer:
    content = {
        "class": type(error).__name__,
        "message": str(error),
        "retryable": isinstance(error, Transient),
    }
    made = answer({"error": content}, status)
    if status is HTTPStatus.UNAUTHORIZED:
        made.headers["WWW-Authenticate"] = "Bearer"
    return made
