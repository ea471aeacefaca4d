"""What clients send, read from a request: bodies of JSON, and what stands in its path and query."""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from ebbtide.errors import EbbtideError, GatewayError
from ebbtide.sql.gateway.answers import Refusal

BODY_TIMEOUT_S = 10
"""How long a client may take to send a body."""
DRAINED_BYTES = 16 * 1024 * 1024
"""Of a body that is too large; of one that is longer still the rest is not read."""
ESCAPED_BYTES = 6
"""Of a character in JSON at most, as an escape."""
MORE_BYTES = 4096
"""Of a body, beside the statement."""
SHOWN = 255
"""Characters of what was sent that an error shows."""
MOST_DIGITS = 15
"""Of a number in a path."""


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class OpenBody(_Body):
    """Of the request that opens a session."""

    settings: dict[str, str] = Field(default_factory=dict)


class StatementBody(_Body):
    """Of a request that executes a statement."""

    statement: str


class CompleteBody(_Body):
    """Of a request for completions."""

    text: str
    offset: int = Field(ge=0)


Body = TypeVar("Body", bound=_Body)


async def read_body(request: Request, kind: type[Body], statement_bytes: int) -> Body:
    """Read the JSON of a request.

    Args:
        request: It.
        kind: What the body is to be.
        statement_bytes: How long a text in it may be.

    Raises:
        Refusal: it is too large, does not come, or is not such JSON.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise refusal(
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
    """Read a body; one that is too large is refused, once it was sent: who is cut off while sending reads no answer."""
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
        raise refusal(
            HTTPStatus.REQUEST_TIMEOUT,
            "The body of the request did not come to its end.",
            f"{n_bytes} bytes",
            f"all of it within {BODY_TIMEOUT_S} s",
        ) from error
    if n_bytes > most_bytes:
        raise too_large("body", f"more than {most_bytes} bytes", most_bytes)
    return b"".join(chunks)


def _unusable(error: ValidationError, kind: type[_Body]) -> Refusal:
    """Say what is wrong first; not what was sent, as that may be a credential."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = found[0]
    place = ".".join(map(str, first["loc"]))
    got = first["msg"]
    if place:
        got = f"{place[:SHOWN]}: {got}"
    fields = ", ".join(kind.model_fields)
    return refusal(
        HTTPStatus.BAD_REQUEST,
        "The body of the request is not usable.",
        got,
        f"a JSON object of {fields}",
    )


def refuse_long(name: str, text: str, most_bytes: int) -> None:
    """Refuse a text that is too long.

    Raises:
        Refusal: it is.
    """
    n_bytes = len(text.encode(errors="surrogatepass"))
    if n_bytes > most_bytes:
        raise too_large(name, f"{n_bytes} bytes", most_bytes)


def too_large(name: str, got: str, most_bytes: int) -> Refusal:
    """Refuse something for its size."""
    return refusal(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The {name} is too long.",
        got,
        f"{most_bytes} bytes",
        "Split it into several, or load the rows from a file.",
    )


def seconds(request: Request, most_s: float) -> float:
    """Return how long a request is to wait: `timeout_s` of its query; longer than allowed, it waits as long as allowed.

    Raises:
        Refusal: it is not a number of seconds.
    """
    text = request.query_params.get("timeout_s", "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise refusal(
            HTTPStatus.BAD_REQUEST,
            "timeout_s is not usable.",
            text[:SHOWN],
            f"seconds, 0 to {most_s:g}",
        )
    return min(value, most_s)


def page_token(request: Request) -> int:
    """Return the token of the page that a path names.

    Raises:
        Refusal: it is not one.
    """
    text: str = request.path_params["token"]
    is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    if not is_number:
        raise refusal(
            HTTPStatus.BAD_REQUEST,
            "The page's token is not usable.",
            text[:SHOWN],
            "0, or 'next' of a page",
        )
    return int(text)


def refusal(
    status: HTTPStatus,
    what: str,
    got: Any,
    allowed: Any,
    next_step: str | None = None,
) -> Refusal:
    """Refuse a request."""
    error: EbbtideError = GatewayError.of(
        what,
        got=got,
        allowed=allowed,
        next_step=next_step,
    )
    return Refusal(status, error)
