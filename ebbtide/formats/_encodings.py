"""Encoded numbers and bytes, by a spec's `encodings` or a record's own schema.

| encoding | JSON | becomes |
|---|---|---|
| `unsigned` | a negative number for one above 2^63 - 1 | the number |
| `bits` | base64, the lowest byte first; BIT(1) as a boolean | the number |
| `precise` | base64 of the unscaled number, the highest byte first; or `{"scale", "value": base64}` | a decimal |
| `base64`, `base64url`, `hex` | a text | bytes |

A precise decimal takes its scale from the column, not from the record. "1234" is both a number and base64, so only the
encoding distinguishes them. Likewise "deadbeef" is both hex and base64: bytes without a stated encoding are read as base64
(either alphabet) only if they cannot be hex. "1aFF" cannot be hex, since hex is written in letters of one case.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

BinaryEncoding = Literal["base64", "base64url", "hex"]
Encoding = Literal["unsigned", "bits", "precise"] | BinaryEncoding
_OF_BYTES: dict[Encoding | None, BinaryEncoding] = {"base64": "base64", "base64url": "base64url", "hex": "hex"}
_HEX = re.compile("([0-9a-f]{2})+|([0-9A-F]{2})+")
"""Hex in letters of one case. Debezium writes lower case."""
_TO_BASE64 = str.maketrans("-_", "+/")
_UNSIGNED_MODULUS = 2**64
_UNSCALED_BYTES = 1024
"""Longest unscaled decimal: the time to convert one grows with the square of its length, and a column has at most 38 digits."""
_VARIABLE = {"scale", "value"}
"""Fields of a decimal with its scale."""
UNFIT = object()
"""Marks a value that cannot be decoded: it fits no column."""


def decoded(
    values: Sequence[Any],
    encoding: Encoding | None,
    type_: pa.DataType,
    schemas: Iterable[object],
) -> list[Any]:
    """Return a column's values with their encoding undone.

    Args:
        values: JSON values.
        encoding: Encoding of the column, if it has one.
        type_: Type of the column.
        schemas: (n,) truthy for records with a schema: their decimals are already decoded.
    """
    if encoding is None or encoding in _OF_BYTES:  # a column of bytes reads them itself
        return list(values)
    if encoding == "precise":
        decimals = []
        for value, schema in zip(values, schemas, strict=False):
            decimal = value if schema else _decode_precise(value, type_.scale)
            decimals.append(decimal)
        return decimals
    return [decode_integer(value, encoding) for value in values]


def decode_integer(value: Any, encoding: Encoding) -> Any:
    """Return the integer that a value encodes; any other value is returned unchanged and judged by the column's type.

    Args:
        value: A JSON value.
        encoding: `unsigned` or `bits`.

    Example:
        >>> decode_integer(-1, "unsigned"), decode_integer("AQI=", "bits"), decode_integer(True, "bits")
        (18446744073709551615, 513, 1)
    """
    if encoding == "unsigned":
        # The connector writes an unsigned number as a signed one with the same 64 bits.
        is_wrapped = type(value) is int and value < 0
        if is_wrapped:
            return value + _UNSIGNED_MODULUS
        return value
    if isinstance(value, bool):  # BIT(1)
        return int(value)
    if not isinstance(value, str):
        return value
    try:
        return read_bits(value)
    except ValueError:
        return value


def _decode_precise(value: Any, scale: int) -> Any:
    """Return the decimal that a text or an object encodes; a number is returned unchanged."""
    try:
        if isinstance(value, str):
            return read_decimal(value, scale)
        if isinstance(value, dict):
            return read_variable_decimal(value)
    except ValueError:
        return UNFIT
    return value


def of_bytes(encoding: Encoding | None) -> BinaryEncoding | None:
    """Return an encoding if it encodes bytes."""
    return _OF_BYTES.get(encoding)


def read_bytes(text: str, encoding: BinaryEncoding | None) -> bytes:
    """Read bytes.

    Args:
        text: The text.
        encoding: Its encoding; None: not stated.

    Raises:
        ValueError: The text is not in its encoding; or without one, it may be hex.

    Example:
        >>> read_bytes("-_8=", None) == read_bytes("+/8=", "base64") == read_bytes("fbff", "hex")
        True
    """
    if encoding == "hex":
        return binascii.unhexlify(text)
    if encoding is None and may_be_hex(text):
        raise ValueError("base64, or hex")
    if encoding != "base64":
        is_mixed = not {"+", "/"}.isdisjoint(text) and not {"-", "_"}.isdisjoint(text)
        is_other = encoding == "base64url" and not {"+", "/"}.isdisjoint(text)
        if is_mixed or is_other:
            raise ValueError("letters of another alphabet")
        text = text.translate(_TO_BASE64)
    if encoding == "base64url":
        text += "=" * (-len(text) % 4)
    return base64.b64decode(text, validate=True)


def may_be_hex(text: str) -> bool:
    """Return whether a text may have been written as hex.

    Example:
        >>> may_be_hex("deadbeef"), may_be_hex("DEADBEEF"), may_be_hex("1aFF"), may_be_hex("abc")
        (True, True, False, False)
    """
    return _HEX.fullmatch(text) is not None


def read_bits(text: str) -> int:
    """Read a BIT(n) column: base64 of its bytes, the lowest first.

    Raises:
        ValueError: The text is not base64.
    """
    raw = base64.b64decode(text, validate=True)
    return int.from_bytes(raw, "little")


def read_decimal(text: str, scale: int) -> Decimal:
    """Read a decimal: base64 of the unscaled number, in two's complement, the highest byte first.

    Raises:
        ValueError: The text is not base64, is empty, or too long.

    Example:
        >>> read_decimal("AU74", 2)
        Decimal('857.52')
    """
    raw = base64.b64decode(text, validate=True)
    n_bytes = len(raw)
    if not 0 < n_bytes <= _UNSCALED_BYTES:
        raise ValueError(f"a decimal of {n_bytes} bytes")
    number = int.from_bytes(raw, "big", signed=True)
    sign, digits, _ = Decimal(number).as_tuple()
    # Built from its parts: Decimal's arithmetic would round to 28 digits.
    return Decimal((sign, digits, -scale))


def read_variable_decimal(value: dict[str, Any]) -> Decimal:
    """Read a decimal with its scale: `{"scale", "value"}`.

    Raises:
        ValueError: It is not such an object.
    """
    scale = value.get("scale")
    text = value.get("value")
    has_other_fields = value.keys() != _VARIABLE
    if has_other_fields or type(scale) is not int or not isinstance(text, str):
        raise ValueError("not a decimal with its scale")
    return read_decimal(text, scale)


def is_precise(value: Any) -> bool:
    """Return whether a value can be a precise decimal but not a number: base64, or `{"scale", "value"}`.

    Example:
        >>> is_precise("AU74"), is_precise("1234"), is_precise("12.50"), is_precise({"scale": 0, "value": "AU74"})
        (True, False, False, True)
    """
    if not isinstance(value, str | dict):
        return False
    is_number = isinstance(value, str) and value.isdigit()
    if is_number:
        return False
    decimal = _decode_precise(value, 0)
    return decimal is not UNFIT
