"""Recognizes marks in place of values that the source did not send because they had not changed.

A Debezium connector writes its placeholder P, by default `__debezium_unavailable_value`, in the form of the column:

| column of the database | mark |
|---|---|
| text, JSON, enum, any other scalar | P |
| bytes | base64, base64url or hex of P's bytes; or P |
| array of texts, bytes, UUIDs | an array with one such mark; for UUIDs the name-based UUID of P's bytes |
| array of numbers or times | P's bytes, one per number; as numbers, base64, or `{"scale", "value"}` |
| hstore | `{P: P}`, or the same as text |
| geometry, geography, point | a place that the connector reserves, as WKB |

A mark replaces the whole value of a column. An array or a map with P among other items is data. A struct with P in a field is
refused: an earlier value cannot fill a part of a column. An array of booleans has no recognizable mark.

Source: Debezium 3.7, `UnchangedToastedPlaceholder` of the Postgres connector, and the value converters of Oracle, MySQL and SQL Server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from ebbtide.formats._encodings import read_decimal, read_variable_decimal

HEX = "hex:"
"""Prefix of a placeholder given as bytes in hex, for the MySQL connector."""
_DISTINCT_BYTES = 8
"""From this length on, in bytes, a value does not equal a placeholder's base64 or hex by chance."""
_LARGEST_SCALE = 38
RESERVED_POINT = (-99_999_999.0, -99_999_999.0)
_RESERVED_PLACES = (
    bytes.fromhex("0101000020E6100000000000FC83D797C1000000FC83D797C1"),  # of a geometry
    bytes.fromhex("0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640"),  # of a geography
    struct.pack("<BIdd", 1, 1, *RESERVED_POINT),
)
_PLACES = frozenset(base64.b64encode(wkb).decode() for wkb in _RESERVED_PLACES)


@dataclass(frozen=True)
class Unavailable:
    r"""Recognizes the values that were not sent.

    Args:
        placeholder: The connector's `unavailable.value.placeholder`. Default: Debezium's.

    Example:
        >>> unavailable = Unavailable("none")
        >>> unavailable.is_mark("none"), unavailable.is_mark([110, 111, 110, 101]), unavailable.is_mark("nonesuch")
        (True, True, False)
        >>> unavailable.is_mark("bm9uZQ=="), unavailable.is_mark("bm9uZQ==", pa.binary())
        (False, True)
        >>> unavailable.raw, Unavailable("hex:00ff").raw
        (b'none', b'\x00\xff')
    """

    placeholder: str = "__debezium_unavailable_value"

    @cached_property
    def raw(self) -> bytes:
        """The placeholder's bytes.

        Raises:
            ValueError: The text after `hex:` is not hex.
        """
        if self.placeholder.startswith(HEX):
            return bytes.fromhex(self.placeholder.removeprefix(HEX))
        return self.placeholder.encode()

    @cached_property
    def _is_distinct(self) -> bool:
        return len(self.raw) >= _DISTINCT_BYTES

    @cached_property
    def _plain_texts(self) -> frozenset[str]:
        """Texts that are marks in a column of any type."""
        text = self.raw.decode(errors="replace")
        hstore = json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False)
        return frozenset({self.placeholder, text, hstore})

    @cached_property
    def _coded_texts(self) -> frozenset[str]:
        """Texts that are marks in a column of bytes."""
        raw = self.raw
        coded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex()}
        return self._plain_texts | coded

    @cached_property
    def texts(self) -> frozenset[str]:
        """Texts that are marks in a column of another type than bytes, which may hold bytes as text."""
        return self._coded_texts if self._is_distinct else self._plain_texts

    @cached_property
    def _uuid(self) -> str:
        digest = hashlib.md5(self.raw, usedforsecurity=False).digest()
        return str(uuid.UUID(bytes=digest, version=3))

    @cached_property
    def texts_within(self) -> frozenset[str]:
        """Texts that a list or an object which is not sent, or in part, may hold."""
        return self._coded_texts | _PLACES | {self._uuid}

    @cached_property
    def _signed_bytes(self) -> tuple[int, ...]:
        return struct.unpack(f"{len(self.raw)}b", self.raw)

    @property
    def n_spelt(self) -> int:
        """Number of items of a list that is the placeholder's bytes, one per number."""
        return len(self.raw)

    def is_mark(self, value: Any, type_: pa.DataType | None = None) -> bool:
        """Return whether a JSON value is the mark of an unsent value.

        Args:
            value: The whole value of a column.
            type_: The column's type. Default: unknown.
        """
        if isinstance(value, str):
            is_binary = type_ is not None and pa.types.is_binary(type_)
            return value in (self._coded_texts if is_binary else self.texts)
        if isinstance(value, list):
            # A loop enters nested arrays of one item: a record may nest them to any depth.
            items, item_type = value, _item_type_of(type_)
            while len(items) == 1 and isinstance(items[0], list):
                items, item_type = items[0], _item_type_of(item_type)
            return self._is_array(items, item_type)
        if isinstance(value, dict):
            return self._is_object(value)
        return False

    def take_out(self, values: list[Any], type_: pa.DataType) -> list[int]:
        """Set the marks among a column's values to null, and return their indices.

        Args:
            values: JSON values; changed in place.
            type_: The column's type.
        """
        classes = set(map(type, values))
        may_be_nested = not classes.isdisjoint((list, dict))
        if not may_be_nested:
            marks = self._coded_texts if pa.types.is_binary(type_) else self.texts
            if str not in classes or marks.isdisjoint(values):
                return []
        unsent = [i for i, value in enumerate(values) if self.is_mark(value, type_)]
        for i in unsent:
            values[i] = None
        return unsent

    def is_within(self, value: Any, type_: pa.DataType) -> bool:
        """Return whether a field of a struct within a value is the placeholder.

        Args:
            value: The whole value of a column.
            type_: The column's type.
        """
        if pa.types.is_struct(type_) and isinstance(value, dict):
            types = {field.name: field.type for field in type_}
            for name, item in value.items():
                own_type = types.get(name, pa.null())
                is_placeholder = isinstance(item, str) and item in self._plain_texts
                if is_placeholder or self.is_within(item, own_type):
                    return True
        elif pa.types.is_list(type_) and isinstance(value, list):
            return any(self.is_within(item, type_.value_type) for item in value)
        elif pa.types.is_map(type_) and isinstance(value, dict):
            return any(self.is_within(item, type_.item_type) for item in value.values())
        return False

    def _is_array(self, items: Sequence[Any], type_: pa.DataType | None) -> bool:
        if len(items) == 1:
            [item] = items
            is_of_uuid = isinstance(item, str) and item == self._uuid
            if is_of_uuid or self.is_mark(item, type_):
                return True
        return self._is_spelt(items)

    def _is_spelt(self, items: Sequence[Any]) -> bool:
        """Return whether items are the placeholder's bytes, one per number, at any common scale."""
        wanted = self._signed_bytes
        if len(items) != len(wanted):
            return False
        numbers = [_number_of(item) for item in items]
        if None in numbers:
            return False
        scales = range(_LARGEST_SCALE + 1) if self._is_distinct else range(1)
        # The largest byte determines the scale; zeros fit any.
        largest = max(wanted, key=abs)
        number = numbers[wanted.index(largest)]
        for scale in scales:
            if number == Decimal(largest).scaleb(-scale):
                scaled = [Decimal(byte).scaleb(-scale) for byte in wanted]
                return numbers == scaled
        return False

    def _is_object(self, value: dict[str, Any]) -> bool:
        if len(value) == 1:
            [(name, item)] = value.items()
            return name in self._plain_texts and item == name
        if "wkb" in value:
            wkb = value["wkb"]
            return isinstance(wkb, str) and wkb in _PLACES
        return (value.get("x"), value.get("y")) == RESERVED_POINT


def _number_of(item: Any) -> Decimal | None:
    """Return an array item as a number; None if it is not one."""
    is_number = isinstance(item, int | float | Decimal) and not isinstance(item, bool)
    if is_number:
        return Decimal(repr(item)) if isinstance(item, float) else Decimal(item)
    try:
        if isinstance(item, dict):
            return read_variable_decimal(item)
        if isinstance(item, str):
            return read_decimal(item, 0)
    except ValueError:
        return None
    return None


DEFAULT = Unavailable()
"""Recognizes the values that a connector with the default placeholder did not send."""


def _item_type_of(type_: pa.DataType | None) -> pa.DataType | None:
    """Return the type of a list's items; None if the type is not a list."""
    return type_.value_type if type_ is not None and pa.types.is_list(type_) else None
