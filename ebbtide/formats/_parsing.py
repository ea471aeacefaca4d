"""Parses bytes to JSON objects, quickly or with every digit kept, and reads the envelopes of exported Kafka records."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeGuard, cast

from pydantic_core import from_json

from ebbtide.formats._format import NEW_KEY, OLD_KEY, BadRecordError, Json, shortened

BYTE_ORDER_MARK = "\ufeff"
"""May precede a record if files that begin with it were concatenated."""
NULLS = (b"null", b'{"schema":null,"payload":null}', b'{"schema": null, "payload": null}')
"""Nulls in writing: of JSON, and of Kafka Connect's converter with schemas. As a record's value they are tombstones too."""
_LONGEST_NULL = max(map(len, NULLS))
Parse = Callable[[str | bytes], Json]
"""Parses one JSON object.

Raises:
    BadRecordError: The text is not a JSON object.
"""


def parse(text: str | bytes) -> Json:
    """Parse quickly; numbers with a fraction become floats. The exact parser judges texts that this one refuses."""
    try:
        value = from_json(text, allow_inf_nan=False, cache_strings="keys")
    except (ValueError, TypeError):  # a lone surrogate is a TypeError
        return parse_exactly(text)
    if not isinstance(value, dict):
        return parse_exactly(text)
    return value


def parse_exactly(text: str | bytes) -> Json:
    """Parse with every digit kept, 4 times slower; the error names the problem."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = _EXACT.decode(text.lstrip(BYTE_ORDER_MARK))
    except UnicodeDecodeError as error:
        detail = f"{error.reason} at byte {error.start}; allowed: UTF-8"
        raise BadRecordError("not_utf8", detail, masked=detail) from error
    except RecursionError as error:
        detail = "nested too deep; allowed: a few hundred levels"
        raise BadRecordError("too_deep", detail, masked=detail) from error
    except (ValueError, ArithmeticError) as error:
        detail = f"{error}; allowed: one JSON object{_way_out(error)}"
        raise BadRecordError("bad_json", detail, masked=detail) from error
    if not isinstance(value, dict):
        way_out = _OF_ARRAY if isinstance(value, list) else ""
        detail = f"got {shortened(value)}; allowed: one JSON object{way_out}"
        raise BadRecordError("not_an_object", detail)
    return value


_OF_ARRAY = " a line. Next: write each object on a line of its own, without the brackets and commas of an array"
"""The next step for an array of objects."""


def _way_out(error: Exception) -> str:
    """Return the next step for several objects on one line, and for lines of an array; empty for any other text."""
    if not isinstance(error, json.JSONDecodeError):
        return ""
    rest = error.doc[error.pos :]
    if rest.strip() == "," or error.doc.strip() in ("[", "]"):
        return _OF_ARRAY
    if not rest.startswith("{"):
        return ""
    return " a line. Next: write a new line after each object, or nothing between them"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


def envelope_origin(envelope: Json) -> tuple[str, int, int]:
    """Return a Kafka record's topic, partition and offset.

    Raises:
        BadRecordError: One of them is missing or impossible.
    """
    topic = envelope.get("topic")
    partition = envelope.get("partition")
    offset = envelope.get("offset")
    has_topic = isinstance(topic, str) and is_text(topic)
    has_partition = is_natural(partition, below=2**31)
    has_offset = is_natural(offset, below=2**63)
    if has_topic and has_partition and has_offset:
        origin = topic, partition, offset
        return cast("tuple[str, int, int]", origin)
    parts = (
        f"topic {shortened(topic)}",
        f"partition {shortened(partition)}",
        f"offset {shortened(offset)}",
    )
    got = ", ".join(parts)
    detail = f"got {got}; allowed: text and two integers from 0"
    raise BadRecordError("not_a_record", detail)


def is_natural(value: Any, *, below: int) -> TypeGuard[int]:
    """Return whether a JSON value is an integer from 0 to below a bound."""
    is_integer = type(value) is int  # a boolean is an int in Python, but not in JSON
    return is_integer and 0 <= value < below


def value_field(envelope: Json) -> str:
    """Return the name of the field with a Kafka record's value: `kcat -J` calls it `payload`."""
    is_of_kcat = "payload" in envelope and "value" not in envelope
    return "payload" if is_of_kcat else "value"


def is_null(value: str | bytes) -> bool:
    """Return whether a value is one of `NULLS`."""
    if len(value) > _LONGEST_NULL:
        return False
    written = value if isinstance(value, bytes) else value.encode(errors="surrogatepass")
    return written in NULLS


def envelope_value(envelope: Json) -> str | None:
    """Return a Kafka record's value as text; None for a tombstone, also for a null in writing.

    Raises:
        BadRecordError: The value is missing, or neither text nor null.
    """
    name = value_field(envelope)
    text = envelope.get(name)
    is_present = name in envelope
    is_tombstone = is_present and text is None
    if is_tombstone or isinstance(text, str):
        return None if text is None or is_null(text) else text
    got = type(text).__name__ if is_present else "nothing"
    raise BadRecordError.of(
        "not_a_record",
        name,
        got=got,
        allowed="the record's value as text, or null",
    )


def envelope_other_key(envelope: Json) -> str | None:
    """Return the old or new key from a Kafka record's header; None without such a header."""
    headers = envelope.get("headers")
    if not isinstance(headers, list):
        return None
    if all(not isinstance(header, list) for header in headers):
        # As kcat -J writes them: name, value, name, value.
        headers = [list(pair) for pair in zip(headers[::2], headers[1::2], strict=False)]
    for header in headers:
        is_pair = isinstance(header, list) and len(header) == 2
        if is_pair and header[0] in (OLD_KEY, NEW_KEY):
            value = header[1]
            return value if isinstance(value, str) else None
    return None


def is_text(value: str) -> bool:
    """Return whether a string can be stored: JSON may hold lone surrogates, UTF-8 may not."""
    if value.isascii():
        return True
    is_surrogate = ("\ud800" <= character <= "\udfff" for character in value)
    return not any(is_surrogate)
