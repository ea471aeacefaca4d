"""Requests and answers of the gateway: JSON; an error has a status of HTTP and the name of the class that the client raises."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from threading import Thread
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from ebbtide import errors
from ebbtide.errors import EbbtideError, GatewayError, Transient
from ebbtide.redaction import shown

LOG = logging.getLogger(__name__)
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
STATUSES: dict[type[EbbtideError], HTTPStatus] = {
    errors.SqlSyntaxError: HTTPStatus.BAD_REQUEST,
    errors.ConfigError: HTTPStatus.BAD_REQUEST,
    errors.SessionGoneError: HTTPStatus.NOT_FOUND,
    errors.OperationGoneError: HTTPStatus.NOT_FOUND,
    errors.OperationCanceledError: HTTPStatus.CONFLICT,
    errors.SqlError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.GatewayError: HTTPStatus.FORBIDDEN,
    errors.GatewayBusyError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.Transient: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EbbtideError: HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""Statuses of errors: that of the first listed class in the order of inheritance."""
BODY_TIMEOUT_S = 10
"""Maximum time to receive a body."""
DRAINED_BYTES = 16 * 1024 * 1024
"""Bytes that are read of a body that is too large; the rest is not read."""
ESCAPED_BYTES = 6
"""Maximum size of a character in JSON, as an escape."""
MORE_BYTES = 4096
"""Maximum size of a body without the statement."""
SHOWN = 255
"""Maximum number of characters of a request that an error shows."""
MOST_DIGITS = 15
"""Maximum length of a number in a path."""
Returned = TypeVar("Returned")


async def on_thread(call: Callable[..., Returned], *arguments: Any) -> Returned:
    """Call a blocking function on a new daemon thread, so that calls neither wait for each other nor delay the end of the process."""
    future: Future[Returned] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            returned = call(*arguments)
        except BaseException as error:  # noqa: BLE001 - the await raises it
            future.set_exception(error)
        else:
            future.set_result(returned)

    Thread(target=work, daemon=True, name="gateway").start()
    return await asyncio.wrap_future(future)


class Refusal(Exception):  # noqa: N818 - carries an error
    """A request that is refused with a specific status.

    Args:
        status: Status of the answer.
        what: The problem, as a sentence.
        got: Value that was sent.
        allowed: Values that may be sent.
        next_step: Advice for the client.
    """

    def __init__(
        self,
        status: HTTPStatus,
        what: str,
        got: Any,
        allowed: Any = None,
        next_step: str | None = None,
    ) -> None:
        self.status = status
        self.error: EbbtideError = GatewayError.of(
            what,
            got=got,
            allowed=allowed,
            next_step=next_step,
        )
        super().__init__(str(self.error))


class Answer(JSONResponse):
    """JSON in ASCII: a text that cannot be written as UTF-8 can be answered, too."""

    def render(self, content: Any) -> bytes:
        """Return the content as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def answer(content: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Answer with JSON."""
    return Answer(content, status, HEADERS)


def failure(error: Exception) -> Answer:
    """Answer with an error; an unexpected one is logged, and the client receives the name of its class only."""
    if isinstance(error, EbbtideError):
        status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
        return _failure(error, status)
    if not isinstance(error, Refusal):
        LOG.error("%s", shown("".join(traceback.format_exception(error))))
        next_step = "Its log says more: ask who runs it."
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        error = Refusal(
            status,
            "The gateway failed.",
            type(error).__name__,
            next_step=next_step,
        )
    return _failure(error.error, error.status)


def _failure(error: EbbtideError, status: HTTPStatus) -> Answer:
    is_retryable = isinstance(error, Transient)
    content = {"class": type(error).__name__, "message": str(error), "retryable": is_retryable}
    made = answer({"error": content}, status)
    if status is HTTPStatus.UNAUTHORIZED:
        made.headers["WWW-Authenticate"] = "Bearer"
    return made


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OpenBody(_Body):
    """Body of the request that opens a session."""

    settings: dict[str, str] = Field(default_factory=dict)


class StatementBody(_Body):
    """Body of a request that executes a statement."""

    statement: str


class CompleteBody(_Body):
    """Body of a request for completions."""

    text: str
    offset: int = Field(ge=0)


Body = TypeVar("Body", bound=_Body)


async def read_body(request: Request, kind: type[Body], statement_bytes: int) -> Body:
    """Read the JSON of a request.

    Args:
        request: Request that has the body.
        kind: Model of the body.
        statement_bytes: Maximum size of a text in the body.

    Raises:
        Refusal: the body is too large, incomplete, or not such JSON.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise Refusal(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "The body is not declared as JSON.",
            content_type[:SHOWN] or "no Content-Type",
            "Content-Type: application/json",
        )
    raw = await _read(request, statement_bytes * ESCAPED_BYTES + MORE_BYTES)
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise _unusable(error, kind) from error


async def _read(request: Request, most_bytes: int) -> bytes:
    """Read a body. One that is too large is read to its end before it is refused, since a client reads no answer while it sends."""
    chunks: list[bytes] = []
    n_bytes = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                n_bytes += len(chunk)
                if n_bytes > DRAINED_BYTES:
                    break
                if n_bytes <= most_bytes:
                    chunks.append(chunk)
    except (TimeoutError, ClientDisconnect) as error:
        what = "The body of the request is incomplete."
        allowed = f"all of it within {BODY_TIMEOUT_S} s"
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, what, f"{n_bytes} bytes", allowed) from error
    if n_bytes > most_bytes:
        raise _too_large("body", f"more than {most_bytes} bytes", most_bytes)
    return b"".join(chunks)


def _unusable(error: ValidationError, kind: type[_Body]) -> Refusal:
    """Return the first fault of a body, without the value: that may be a credential."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    first = faults[0]
    place = ".".join(map(str, first["loc"]))[:SHOWN]
    message = first["msg"]
    got = f"{place}: {message}" if place else message
    allowed = f"a JSON object of {', '.join(kind.model_fields)}"
    return Refusal(
        HTTPStatus.BAD_REQUEST,
        "The body of the request is not usable.",
        got,
        allowed,
    )


def refuse_long(name: str, text: str, most_bytes: int) -> None:
    """Refuse a text that is too long.

    Raises:
        Refusal: the text is.
    """
    n_bytes = len(text.encode(errors="surrogatepass"))
    if n_bytes > most_bytes:
        raise _too_large(name, f"{n_bytes} bytes", most_bytes)


def _too_large(name: str, got: str, most_bytes: int) -> Refusal:
    next_step = "Split it into several, or load the rows from a file."
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return Refusal(status, f"The {name} is too long.", got, f"{most_bytes} bytes", next_step)


def seconds(request: Request, most_s: float) -> float:
    """Return how long a request waits: `timeout_s` of its query, at most `most_s`.

    Raises:
        Refusal: `timeout_s` is not a number of seconds.
    """
    text = request.query_params.get("timeout_s", "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        allowed = f"seconds, 0 to {most_s:g}"
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "timeout_s is not usable.",
            text[:SHOWN],
            allowed,
        )
    return min(value, most_s)


def page_token(request: Request) -> int:
    """Return the token of a page from the path of a request.

    Raises:
        Refusal: it is not a token.
    """
    text: str = request.path_params["token"]
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        allowed = "0, or 'next' of a page"
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            "The page's token is not usable.",
            text[:SHOWN],
            allowed,
        )
    return int(text)
