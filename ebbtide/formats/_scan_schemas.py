"""Scans records with a Connect schema. Records with the same schema begin with the same bytes, which are parsed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask
from ebbtide.formats._columns import TimeUnit
from ebbtide.formats._encodings import read_decimal
from ebbtide.formats._scan import marked

_BEGIN = b'{"schema":'
_PAYLOAD = b'"payload":'
_LOOKED_AT = 16
"""Number of leading records searched for a value; records without one are rare."""


@dataclass(frozen=True)
class RecordsOfSchema:
    """The records of a batch that have the schema of its first one.

    Args:
        head: Their bytes before the payload.
        payloads: (n,) their payloads; arbitrary for other records.
        are_own: (n,) the record has this schema.
    """

    head: bytes
    payloads: pa.BinaryArray
    are_own: Mask

    @classmethod
    def of(cls, values: pa.BinaryArray) -> Self | None:
        """Return them; None if the first record has no schema, or does not begin as Connect writes one.

        Args:
            values: (n,) the records.
        """
        looked_at = values.slice(0, _LOOKED_AT).drop_null()
        if not len(looked_at):
            return None
        first = looked_at[0].as_py()
        if not first.startswith(_BEGIN):
            return None
        begin = first.find(_PAYLOAD)
        if begin < 0:
            return None
        head = first[: begin + len(_PAYLOAD)]
        begins_so = pc.starts_with(values, pattern=head)
        is_closed = pc.ends_with(values, pattern=b"}")
        are_own = marked(begins_so) & marked(is_closed)
        payloads = pc.binary_slice(values, len(head), -1)
        return cls(head, payloads, are_own)


@dataclass(frozen=True)
class SchemaReading:
    """Units and scales of a row's values, from its record's schema.

    Args:
        units: Units of integers in timestamp columns.
        scales: Column to the scale of its encoded decimals.
    """

    units: Mapping[str, TimeUnit]
    scales: Mapping[str, int]


WITHOUT_SCHEMA = SchemaReading({}, {})
"""Units and scales of records without a schema."""


def decimal_texts(texts: pa.StringArray, scale: int) -> tuple[pa.StringArray, pa.BooleanArray]:
    """Decode decimals.

    Args:
        texts: (n,) base64 of unscaled numbers; null stays null.
        scale: The scale of all.

    Returns:
        (n,) the decimals as texts, and a mask of texts that are not base64 of a number.
    """
    decimals: list[str | None] = []
    are_bad: list[bool] = []
    for text in texts.to_pylist():
        decimal = None
        is_bad = False
        if text is not None:
            try:
                decimal = str(read_decimal(text, scale))
            except ValueError:
                is_bad = True
        decimals.append(decimal)
        are_bad.append(is_bad)
    return (
        pa.array(decimals, pa.string()),
        pa.array(are_bad, pa.bool_()),
    )
