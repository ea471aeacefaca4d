"""Deletion vectors: which rows of a data file no longer count, as a bitmap of their positions.

| stored | descriptor's `storageType` | where |
|---|---|---|
| inline | `i` | in the descriptor; another writer's: VACUUM of Delta 4.4 for Spark fails on a table that has one |
| relative | `u` | in a file of the table, named by a UUID, which may hold several |
| absolute | `p` | in a file by its whole path, which must be the table's; another writer's |

A bitmap is a magic number, then Roaring's portable format for 64 bits. In a file each stands after its length and before
its checksum, both big-endian. Source: Delta transaction log protocol, "Deletion Vectors", "Deletion Vector Format".
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

from ebbtide.delta.log import file_location
from ebbtide.errors import DeltaLogError
from ebbtide.storage.paths import join, read_range, write_bytes

Descriptor = dict[str, Any]
"""What a data file's `deletionVector` says of its vector."""
MAGIC = struct.pack("<i", 1681511377)
FILE_VERSION = b"\x01"
WAY_OUT = "Restore it from a copy; without one run 'ebbtide repair', which mends a sink, or 'ebbtide refresh'."
"""What to do about a vector that is lost."""
_UUID_TEXT = 20
"""Characters of a UUID in Z85."""


def encode(rows: BitMap64) -> bytes:
    """Write a bitmap in the format of vectors."""
    # Runs of neighbours, as a range that was deleted, take a few bytes.
    rows.run_optimize()
    return MAGIC + rows.serialize()


def _unreadable(where: str, got: str) -> DeltaLogError:
    return DeltaLogError.of(f"The deletion vector {where} cannot be read.", got=got)


def decode(data: bytes, where: str) -> BitMap64:
    """Read a bitmap in the format of vectors.

    Args:
        data: Its bytes.
        where: Names them in errors.

    Raises:
        DeltaLogError: they are in another format, or torn.
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
    """Return a bitmap as it stands in a file."""
    length = struct.pack(">i", len(data))
    checksum = struct.pack(">I", zlib.crc32(data))
    return length + data + checksum


def read(table: str, descriptor: Descriptor) -> BitMap64:
    """Read a vector, wherever it is stored.

    Args:
        table: The table's location.
        descriptor: Of a data file of the table.

    Raises:
        DeltaLogError: it is torn, or not there.
    """
    size = int(descriptor["sizeInBytes"])
    location = location_of(table, descriptor)
    if location is None:
        padded = from_z85(descriptor["pathOrInlineDv"])
        return decode(padded[:size], "in the log")
    offset = int(descriptor.get("offset") or 1)
    where = f"at byte {offset} of '{location}'"
    framed_size = 4 + size + 4
    stored = read_range(location, offset, framed_size)
    if stored is None or len(stored) != framed_size:
        raise DeltaLogError.of(f"The deletion vector {where} is not there.", next_step=WAY_OUT)
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
        table: The table's location.
        descriptor: Of the file's vector; None: all count.
        positions: Numbers of the rows asked for.
    """
    if descriptor is None:
        return np.ones(len(positions), dtype=bool)
    gone = numbers(read(table, descriptor))
    return ~np.isin(positions, gone)


def numbers(rows: BitMap64) -> NDArray[np.int64]:
    """Return the numbers in a bitmap, ascending."""
    return np.fromiter(rows, np.int64, len(rows))


def without(rows: pa.Table, gone: BitMap64) -> pa.Table:
    """Return the rows of a data file, all of them, without some.

    Args:
        rows: In the file's order.
        gone: Numbers of those that are left out.
    """
    stays = np.ones(len(rows), dtype=bool)
    stays[numbers(gone)] = False
    return rows.filter(pa.array(stays))


def write(table: str, vectors: Sequence[BitMap64]) -> list[Descriptor]:
    """Store vectors in one new file.

    Args:
        table: The table's location.
        vectors: None of them empty.

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
        location = join(table, _file_name(name))
        write_bytes(location, bytes(content))
    return descriptors


def unique_id(descriptor: Descriptor | None) -> str:
    """Return what distinguishes the vectors of one data file; empty for none.

    A file and the id of its vector are what the log adds and removes. Source: protocol, "Action Reconciliation".
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
    """Return where a vector is stored; None if it stands in its descriptor.

    Args:
        table: The table's location.
        descriptor: Of a data file of the table.
    """
    path = descriptor["pathOrInlineDv"]
    if descriptor["storageType"] == "i":
        return None
    if descriptor["storageType"] == "p":
        return file_location(table, path)
    prefix = path[:-_UUID_TEXT]
    uuid_text = path[-_UUID_TEXT:]
    name = uuid.UUID(bytes=from_z85(uuid_text))
    file = _file_name(name)
    if prefix:
        return file_location(table, f"{prefix}/{file}")
    return join(table, file)


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
