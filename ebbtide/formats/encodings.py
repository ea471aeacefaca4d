"""Integers that are written otherwise: as a spec's `encodings` or a record's own schema says."""

from __future__ import annotations

import base64
from typing import Any, Literal

Encoding = Literal["unsigned", "bits"]
_UNSIGNED_MODULUS = 2**64


def decode_integer(value: Any, encoding: Encoding) -> Any:
    """Return the integer that a value encodes; any other value as it is, for the column's type to judge.

    Args:
        value: A JSON value.
        encoding: `unsigned`: numbers above 2^63 - 1 come as negative ones; `bits`: see `read_bits`.

    Example:
        >>> decode_integer(-1, "unsigned"), decode_integer("AQI=", "bits"), decode_integer(True, "bits")
        (18446744073709551615, 513, 1)
    """
    if encoding == "unsigned":
        is_wrapped = type(value) is int and value < 0
        return value + _UNSIGNED_MODULUS if is_wrapped else value
    if isinstance(value, bool):  # BIT(1)
        return int(value)
    if not isinstance(value, str):
        return value
    try:
        return read_bits(value)
    except ValueError:
        return value


def read_bits(text: str) -> int:
    """Read a BIT(n) column: base64 of its bytes, the lowest first.

    Raises:
        ValueError: The text is not base64.
    """
    raw = base64.b64decode(text, validate=True)
    return int.from_bytes(raw, "little")
