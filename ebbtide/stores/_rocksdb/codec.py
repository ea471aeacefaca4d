"""The byte format of keys and entries in RocksDB.

A key is `length(state) state length(key) key sub`: the state's name as UTF-8, the key and the sub-key encoded so that they sort; a sub-key of
None is empty. Lengths are 4 bytes, all numbers big-endian. What sorts is a tag and its content:

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

An entry does not sort. It is the byte 1, and the MessagePack of `[stamp, ttl, value]`. What MessagePack has no type for is an extension: 1 is a tuple, as an array;
2 is any other value, with tag and content as above. Releases before this form wrote an entry as `stamp ttl value`, each as above, the first
two with their length: its first byte is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any

import msgpack

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
PACKED = b"\x01"
"""The first byte of an entry as MessagePack."""
TUPLE, SORTED = 1, 2
"""Numbers of the extensions."""


def encode(value: Any) -> bytes:
    """Write a value so that it sorts.

    Raises:
        TypeError: a type that the format has not.

    Example:
        >>> encode(-1) < encode(0) < encode(7), decode(encode({"a": [1, None]}))
        (True, {'a': [1, None]})
    """
    encoder = ENCODERS.get(type(value))
    if encoder is None:
        encoder = _encoder_of_subclass(value)
    return encoder(value)


def _encoder_of_subclass(value: Any) -> Callable[[Any], bytes]:
    for type_, encoder in ENCODERS.items():
        if isinstance(value, type_):
            return encoder
    got = type(value).__name__
    raise TypeError(f"state in RocksDB cannot hold {value!r}; got {got}; allowed: {ALLOWED_TYPES}")


def _encoded_int(value: int) -> bytes:
    if -_BIAS <= value < _BIAS:
        return b"i" + _LONG.pack(value + _BIAS)
    n_bytes = value.bit_length() // 8 + 1  # with room for the sign
    return b"I" + value.to_bytes(n_bytes, "big", signed=True)


def _encoded_datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        return b"t" + _encoded_int((value - EPOCH) // MICROSECOND)
    return b"z" + _encoded_int((value - EPOCH_UTC) // MICROSECOND)


def _sequence(values: Iterable[Any]) -> bytes:
    parts = []
    for value in values:
        part = encode(value)
        parts += [_LENGTH.pack(len(part)), part]
    return b"".join(parts)


ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: lambda value: b"T" if value else b"F",
    int: _encoded_int,
    str: lambda value: b"s" + value.encode(),
    float: lambda value: b"f" + _DOUBLE.pack(value),
    bytes: lambda value: b"b" + value,
    Decimal: lambda value: b"n" + str(value).encode(),
    datetime: _encoded_datetime,  # a subclass of date, so before it
    date: lambda value: b"d" + _encoded_int(value.toordinal()),
    timedelta: lambda value: b"p" + _encoded_int(value // MICROSECOND),
    list: lambda value: b"l" + _sequence(value),
    tuple: lambda value: b"u" + _sequence(value),
    dict: lambda value: b"m" + _sequence(chain.from_iterable(value.items())),
}
"""The writer of each type; a subclass is written as the first type that it has."""


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
    """Write an entry.

    Raises:
        TypeError: a type that the format has not.
    """
    return PACKED + _packed([entry.stamp_ms, entry.ttl_ms, entry.value])


def decode_entry(raw: bytes) -> Entry:
    """Read an entry."""
    if raw[:1] == PACKED:
        stamp_ms, ttl_ms, value = _unpacked(raw[1:])
        return Entry(value, stamp_ms, ttl_ms)
    stamp, rest = _split(raw)
    ttl, encoded = _split(rest)
    return Entry(
        value=decode(encoded),
        stamp_ms=decode(stamp),
        ttl_ms=decode(ttl),
    )


def _extension(value: Any) -> msgpack.ExtType:
    """Return a value of a type that MessagePack has not."""
    if isinstance(value, tuple):
        return msgpack.ExtType(TUPLE, _packed(list(value)))
    return msgpack.ExtType(SORTED, encode(value))


def _of_extension(number: int, content: bytes) -> Any:
    return tuple(_unpacked(content)) if number == TUPLE else decode(content)


_packed: Callable[[Any], bytes] = partial(msgpack.packb, default=_extension, strict_types=True)
_unpacked: Callable[[bytes], Any] = partial(msgpack.unpackb, ext_hook=_of_extension, strict_map_key=False)


def prefix(state: str, key: Hashable = None) -> bytes:
    """Write the part of a key that all entries of a state, or of one key in it, share."""
    start = _sized(state.encode())
    return start if key is None else start + _sized(encode(key))


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
