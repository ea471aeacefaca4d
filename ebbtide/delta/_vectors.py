"""Deletion vectors: bitmaps of the positions of a data file's deleted rows.

| stored | descriptor's `storageType` | where |
|---|---|---|
| inline | `i` | in the descriptor; only read, never written: VACUUM of Delta 4.4 for Spark fails on a table that has one |
| relative | `u` | in a file of the table, named by a UUID, which may hold several |
| absolute | `p` | in a file by its whole path, which must be in the table; only read |

A bitmap is a magic number, then Roaring's portable format for 64 bits. In a file its length precedes it and its checksum follows, both
big-endian. Source: Delta transaction log protocol, "Deletion Vectors", "Deletion Vector Format".
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.delta._log import Log
from ebbtide.errors import DeltaLogError
from ebbtide.storage import Location

Descriptor = dict[str, Any]
"""The value under `deletionVector` of a data file."""
MAGIC = struct.pack("<i", 1681511377)
FILE_VERSION = b"\x01"
WAY_OUT = "Restore it from a copy; without one run 'ebbtide repair', which repairs a sink, or 'ebbtide refresh'."
"""Next step for a vector that is lost."""
FEW_ROWS = 1000
"""Maximum rows that are searched one by one: in a vector of 250,000 this takes a tenth of the time of comparing with all."""
MOST_MARKS = 2**26
"""Maximum rows of a file for a mark of one byte per row, if many positions are looked up."""
_UUID_TEXT = 20
"""Characters of a UUID in Z85."""


def encode(rows: BitMap64) -> bytes:
    """Write a bitmap in the format of vectors."""
    # Run-length form: a deleted range takes a few bytes.
    rows.run_optimize()
    return MAGIC + rows.serialize()


def _unreadable(where: str, got: str) -> DeltaLogError:
    return DeltaLogError.of(f"The deletion vector {where} cannot be read.", got=got)


def decode(data: bytes, where: str) -> BitMap64:
    """Read a bitmap in the format of vectors.

    Args:
        data: Its bytes.
        where: Their place, for errors.

    Raises:
        DeltaLogError: they have another format, or are torn.
    """
    magic = data[:4]
    bitmap = data[4:]
    if magic != MAGIC:
        raise _unreadable(where, f"it begins with {magic!r}")
    try:
        return BitMap64.deserialize(bitmap)
    except ValueError as error:
        raise _unreadable(where, str(error)) from error


def _framed(data: bytes) -> bytes:
    """Return a bitmap with its length and checksum, as in a file."""
    n_bytes = len(data)
    crc = zlib.crc32(data)
    length = struct.pack(">i", n_bytes)
    checksum = struct.pack(">I", crc)
    return length + data + checksum


def read(table: str, descriptor: Descriptor) -> BitMap64:
    """Read a vector.

    Args:
        table: Location of the table.
        descriptor: Descriptor of the vector.

    Raises:
        DeltaLogError: it is torn, or does not exist.
    """
    size = int(descriptor["sizeInBytes"])
    location = location_of(table, descriptor)
    if location is None:
        padded = from_z85(descriptor["pathOrInlineDv"])
        return decode(padded[:size], "in the log")
    offset = int(descriptor.get("offset") or 1)
    where = f"at byte {offset} of '{location}'"
    framed_size = 4 + size + 4
    stored = Location(location).read_range(offset, framed_size)
    if stored is None or len(stored) != framed_size:
        raise DeltaLogError.of(f"The deletion vector {where} does not exist.", next_step=WAY_OUT)
    data = stored[4:-4]
    is_whole = stored == _framed(data)
    if not is_whole:
        raise DeltaLogError.of(
            f"The deletion vector {where} is torn.",
            got="another length or checksum",
            next_step=WAY_OUT,
        )
    return decode(data, where)


def counts(
    table: str,
    descriptor: Descriptor | None,
    positions: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Mark the rows of a data file that count.

    Args:
        table: Location of the table.
        descriptor: Descriptor of the file's vector; None: all rows count.
        positions: Positions of the rows to judge.
    """
    if descriptor is None:
        return np.ones(len(positions), dtype=bool)
    gone = read(table, descriptor)
    return ~among(gone, positions)


def among(gone: BitMap64, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the positions that are in a bitmap."""
    if len(positions) <= FEW_ROWS:
        one_by_one = [position in gone for position in positions.tolist()]
        return np.array(one_by_one, dtype=bool)
    dead = positions_in(gone)
    last = positions.max(initial=0)
    if last >= MOST_MARKS:
        return np.isin(positions, dead)
    # A mark for each row of the file up to the last one that is asked for: looked up without a sort.
    is_gone = np.zeros(last + 1, dtype=bool)
    n_dead = np.searchsorted(dead, len(is_gone))
    is_gone[dead[:n_dead]] = True
    marks: NDArray[np.bool_] = is_gone[positions]
    return marks


def positions_in(rows: BitMap64) -> NDArray[np.int64]:
    """Return the positions in a bitmap, ascending."""
    # `to_array` copies whole runs of bits, 50 times as fast as going over a bitmap.
    unsigned = np.frombuffer(rows.to_array(), np.uint64)
    return unsigned.astype(np.int64)


def rows_without(rows: pa.Table, gone: BitMap64) -> pa.Table:
    """Return the rows of a data file without the deleted ones.

    Args:
        rows: All rows of the file, in its order.
        gone: Positions of the deleted rows.
    """
    n_rows = len(rows)
    dead = positions_in(gone)
    stays = np.ones(n_rows, dtype=bool)
    stays[dead] = False
    return rows.filter(pa.array(stays))


def write(table: str, vectors: Sequence[BitMap64]) -> list[Descriptor]:
    """Store vectors in one new file.

    Args:
        table: Location of the table.
        vectors: The vectors; none is empty.

    Returns:
        A descriptor for each, in order.
    """
    name = uuid.uuid4()
    content = bytearray(FILE_VERSION)
    descriptors: list[Descriptor] = []
    # One file for all vectors of a commit; each descriptor has its offset, counted from the version byte at 0.
    for rows in vectors:
        data = encode(rows)
        descriptor = {
            "storageType": "u",
            "pathOrInlineDv": to_z85(name.bytes),
            "offset": len(content),
            "sizeInBytes": len(data),
            "cardinality": len(rows),
        }
        descriptors.append(descriptor)
        content += _framed(data)
    if descriptors:
        location = Location(table) / _file_name(name)
        location.write_bytes(bytes(content))
    return descriptors


def unique_id(descriptor: Descriptor | None) -> str:
    """Return the unique id of a vector among those of its data file; empty without a vector.

    Source: protocol, "Action Reconciliation".
    """
    if descriptor is None:
        return ""
    storage_type = descriptor["storageType"]
    path = descriptor["pathOrInlineDv"]
    offset = descriptor.get("offset")
    if offset is None:
        return f"{storage_type}{path}"
    return f"{storage_type}{path}@{offset}"


def location_of(table: str, descriptor: Descriptor) -> str | None:
    """Return the file of a vector; None if the descriptor itself has it.

    Args:
        table: Location of the table.
        descriptor: Descriptor of the vector.
    """
    path = descriptor["pathOrInlineDv"]
    if descriptor["storageType"] == "i":
        return None
    if descriptor["storageType"] == "p":
        return Log(table).location_of(path)
    prefix = path[:-_UUID_TEXT]
    uuid_text = path[-_UUID_TEXT:]
    name = uuid.UUID(bytes=from_z85(uuid_text))
    file = _file_name(name)
    if prefix:
        return Log(table).location_of(f"{prefix}/{file}")
    return Location(table) / file


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_DIGITS = {character: digit for digit, character in enumerate(_Z85)}
_POWERS = (85**4, 85**3, 85**2, 85, 1)


def to_z85(data: bytes) -> str:
    """Write bytes, a multiple of 4, as text: five digits to the base 85 for four bytes, the first the most significant.

    Example:
        >>> to_z85(bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B]))
        'HelloWorld'
    """
    characters: list[str] = []
    for (number,) in struct.iter_unpack(">I", data):
        for power in _POWERS:
            digit = number // power % 85
            characters.append(_Z85[digit])
    return "".join(characters)


def from_z85(text: str) -> bytes:
    """Read what `to_z85` wrote."""
    data = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        group = text[start : start + 5]
        for character in group:
            digit = _Z85_DIGITS[character]
            number = number * 85 + digit
        data += number.to_bytes(4, "big")
    return bytes(data)
