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
from typing import Any

from ebbtide.model.state.raw import Entry

EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH = EPOCH_UTC.replace(tzinfo=None)
MICROSECOND = timedelta(microseconds=1)
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
        case bool():
            return b"T" if value else b"F"
        case int():
            if -_BIAS <= value < _BIAS:
                return b"i" + _LONG.pack(value + _BIAS)
            return b"I" + value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
        case str():
            return b"s" + value.encode()
        case float():
            return b"f" + _DOUBLE.pack(value)
        case bytes():
            return b"b" + value
        case Decimal():
            return b"n" + str(value).encode()
        case datetime() if value.tzinfo is not None:
            return b"z" + encode((value - EPOCH_UTC) // MICROSECOND)
        case datetime():
            return b"t" + encode((value - EPOCH) // MICROSECOND)
        case date():
            return b"d" + encode(value.toordinal())
        case timedelta():
            return b"p" + encode(value // MICROSECOND)
        case list():
            return b"l" + _sequence(value)
        case tuple():
            return b"u" + _sequence(value)
        case dict():
            return b"m" + _sequence(part for pair in value.items() for part in pair)
    raise TypeError(
        f"state in RocksDB cannot hold {value!r}; got {type(value).__name__}; allowed: None, bool, int, float, str, bytes, "
        "Decimal, date, datetime, timedelta, list, tuple, dict"
    )


def decode(raw: bytes) -> Any:
    """Read what `encode` wrote."""
    tag, content = raw[:1], raw[1:]
    match tag:
        case b"N":
            return None
        case b"T" | b"F":
            return tag == b"T"
        case b"i":
            return _LONG.unpack(content)[0] - _BIAS
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
            return EPOCH_UTC + decode(content) * MICROSECOND
        case b"t":
            return EPOCH + decode(content) * MICROSECOND
        case b"d":
            return date.fromordinal(decode(content))
        case b"p":
            return decode(content) * MICROSECOND
        case b"l":
            return list(_parts(content))
        case b"u":
            return tuple(_parts(content))
        case b"m":
            parts = _parts(content)
            return dict(zip(parts, parts, strict=True))
    raise ValueError(f"no such tag in the format: {tag!r}")


def encode_entry(entry: Entry) -> bytes:
    """Write an entry."""
    stamp = _sized(encode(entry.stamp_ms))
    ttl = _sized(encode(entry.ttl_ms))
    return stamp + ttl + encode(entry.value)


def decode_entry(raw: bytes) -> Entry:
    """Read an entry."""
    stamp, rest = _split(raw)
    ttl, value = _split(rest)
    return Entry(decode(value), decode(stamp), decode(ttl))


def prefix(state: str, key: Hashable = None) -> bytes:
    """Write the part of a key that all entries of a state, or of one key in it, share."""
    start = _sized(state.encode())
    return start if key is None else start + _sized(encode(key))


def encode_sub(sub: Hashable) -> bytes:
    """Write a sub-key."""
    return b"" if sub is None else encode(sub)


def decode_sub(raw: bytes) -> Any:
    """Read a sub-key."""
    return decode(raw) if raw else None


def decode_key(raw: bytes) -> tuple[Any, Any]:
    """Read (key, sub-key)."""
    _, rest = _split(raw)
    key, sub = _split(rest)
    return decode(key), decode_sub(sub)


def _sequence(values: Iterable[Any]) -> bytes:
    return b"".join(_sized(encode(value)) for value in values)


def _parts(raw: bytes) -> Iterator[Any]:
    while raw:
        part, raw = _split(raw)
        yield decode(part)


def _sized(raw: bytes) -> bytes:
    return _LENGTH.pack(len(raw)) + raw


def _split(raw: bytes) -> tuple[bytes, bytes]:
    """Return what `_sized` wrote at the start, and the rest."""
    (length,) = _LENGTH.unpack_from(raw)
    end = _LENGTH.size + length
    return raw[_LENGTH.size : end], raw[end:]
