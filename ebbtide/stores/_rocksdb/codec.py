"""The byte format of keys and entries in RocksDB.

A key is `length(state) state length(key) key sub`: the state's name as UTF-8, the key and the sub-key as values; a sub-key of
None is empty. An entry is `stamp ttl value`, the first two as values. Lengths are 4 bytes, all numbers big-endian. A value is a
tag and its content:

| tag | value | content |
|---|---|---|
| `N` `T` `F` | None, True, False | |
| `i` | int from -2^63 to 2^63-1 | 8 bytes, sign bit turned, so that bytes sort as numbers do |
| `I` | other int | two's complement |
| `f` | float | 8 bytes, IEEE 754 |
| `s` `b` | str, bytes | UTF-8; the bytes |
| `n` | Decimal | its text |
| `d` | date | `i` of its ordinal |
| `t` `z` | datetime without, with a zone | `i` of the microseconds since 1970-01-01 (UTC); it comes back in UTC |
| `p` | timedelta | `i` of its microseconds |
| `l` `u` | list, tuple | each element: length, value |
| `m` | dict | key and value in turn: length, value |
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

from ebbtide.keyed_state import Entry

EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH = EPOCH_UTC.replace(tzinfo=None)
MICROSECOND = timedelta(microseconds=1)
ALLOWED_TYPES = "None, bool, int, float, str, bytes, Decimal, date, datetime, timedelta, list, tuple, dict"
_LONG = struct.Struct(">Q")
_DOUBLE = struct.Struct(">d")
_LENGTH = struct.Struct(">I")
_BIAS = 2**63
"""Added to an integer, so that its bytes sort as it does."""


def encode(value: Any) -> bytes:
    """Write a value.

    Raises:
        TypeError: a type that the format has not.

    Example:
        >>> encode(-1) < encode(0) < encode(7), decode(encode({"a": [1, None]}))
        (True, {'a': [1, None]})
    """
    match value:
        case None:
            return b"N"
        case True:
            return b"T"
        case False:
            return b"F"
        case int() if -_BIAS <= value < _BIAS:
            biased = value + _BIAS
            return b"i" + _LONG.pack(biased)
        case int():
            n_bytes = value.bit_length() // 8 + 1  # with room for the sign
            content = value.to_bytes(n_bytes, "big", signed=True)
            return b"I" + content
        case str():
            return b"s" + value.encode()
        case float():
            return b"f" + _DOUBLE.pack(value)
        case bytes():
            return b"b" + value
        case Decimal():
            return b"n" + str(value).encode()
        case datetime() if value.tzinfo is not None:
            microseconds = (value - EPOCH_UTC) // MICROSECOND
            return b"z" + encode(microseconds)
        case datetime():
            microseconds = (value - EPOCH) // MICROSECOND
            return b"t" + encode(microseconds)
        case date():
            ordinal = value.toordinal()
            return b"d" + encode(ordinal)
        case timedelta():
            microseconds = value // MICROSECOND
            return b"p" + encode(microseconds)
        case list():
            return b"l" + _sequence(value)
        case tuple():
            return b"u" + _sequence(value)
        case dict():
            keys_and_values = chain.from_iterable(value.items())
            return b"m" + _sequence(keys_and_values)
    got = type(value).__name__
    raise TypeError(f"state in RocksDB cannot hold {value!r}; got {got}; allowed: {ALLOWED_TYPES}")


def decode(raw: bytes) -> Any:
    """Read what `encode` wrote."""
    tag = raw[:1]
    content = raw[1:]
    match tag:
        case b"N":
            return None
        case b"T":
            return True
        case b"F":
            return False
        case b"i":
            (biased,) = _LONG.unpack(content)
            return biased - _BIAS
        case b"I":
            return int.from_bytes(content, "big", signed=True)
        case b"s":
            return content.decode()
        case b"f":
            return _DOUBLE.unpack(content)[0]
        case b"b":
            return content
        case b"n":
            return Decimal(content.decode())
        case b"z":
            microseconds = decode(content)
            return EPOCH_UTC + microseconds * MICROSECOND
        case b"t":
            microseconds = decode(content)
            return EPOCH + microseconds * MICROSECOND
        case b"d":
            ordinal = decode(content)
            return date.fromordinal(ordinal)
        case b"p":
            microseconds = decode(content)
            return microseconds * MICROSECOND
        case b"l":
            return list(_parts(content))
        case b"u":
            return tuple(_parts(content))
        case b"m":
            parts = _parts(content)
            return dict(zip(parts, parts, strict=True))  # one iterator: a key and a value in turn
    raise ValueError(f"no such tag in the format: {tag!r}")


def encode_entry(entry: Entry) -> bytes:
    """Write an entry."""
    stamp = encode(entry.stamp_ms)
    ttl = encode(entry.ttl_ms)
    value = encode(entry.value)
    return _sized(stamp) + _sized(ttl) + value


def decode_entry(raw: bytes) -> Entry:
    """Read an entry."""
    stamp, rest = _split(raw)
    ttl, value = _split(rest)
    return Entry(
        value=decode(value),
        stamp_ms=decode(stamp),
        ttl_ms=decode(ttl),
    )


def prefix(state: str, key: Hashable = None) -> bytes:
    """Write the part of a key that all entries of a state, or of one key in it, share."""
    encoded_state = state.encode()
    start = _sized(encoded_state)
    if key is None:
        return start
    encoded_key = encode(key)
    return start + _sized(encoded_key)


def encode_sub(sub: Hashable) -> bytes:
    """Write a sub-key."""
    if sub is None:
        return b""
    return encode(sub)


def decode_sub(raw: bytes) -> Any:
    """Read a sub-key."""
    if not raw:
        return None
    return decode(raw)


def decode_key(raw: bytes) -> tuple[Any, Any]:
    """Read (key, sub-key)."""
    _, rest = _split(raw)
    encoded_key, encoded_sub = _split(rest)
    key = decode(encoded_key)
    sub = decode_sub(encoded_sub)
    return key, sub


def _sequence(values: Iterable[Any]) -> bytes:
    parts = map(encode, values)
    return b"".join(map(_sized, parts))


def _parts(raw: bytes) -> Iterator[Any]:
    while raw:
        part, raw = _split(raw)
        yield decode(part)


def _sized(raw: bytes) -> bytes:
    length = _LENGTH.pack(len(raw))
    return length + raw


def _split(raw: bytes) -> tuple[bytes, bytes]:
    """Return what `_sized` wrote at the start, and the rest."""
    (length,) = _LENGTH.unpack_from(raw)
    start = _LENGTH.size
    end = start + length
    part = raw[start:end]
    rest = raw[end:]
    return part, rest
