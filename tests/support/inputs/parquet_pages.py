"""The pages of a Parquet file, decompressed, without what reads its values: also those of which no row is read any more.

A column chunk is a run of pages: a header in Thrift's compact protocol, then its bytes. Source: Parquet format, `parquet.thrift`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KINDS = {0: "data", 1: "index", 2: "dictionary", 3: "data v2"}
CODECS = {
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "ZSTD": "zstd",
    "LZ4": "lz4_raw",
    "LZ4_RAW": "lz4_raw",
}
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


@dataclass(frozen=True)
class Page:
    """A page of a column.

    Args:
        column: Its name, with those of the structures around it.
        kind: One of `KINDS`.
        codec: The codec of its column.
        content: Its bytes, decompressed.
    """

    column: str
    kind: str
    codec: str
    content: bytes


def pages(data: bytes) -> Iterator[Page]:
    """Yield the pages of a file.

    Args:
        data: The file.
    """
    footer = pq.read_metadata(pa.BufferReader(data))
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            chunk = footer.row_group(group).column(number)
            yield from _pages_of(data, chunk)


def _pages_of(data: bytes, chunk: Any) -> Iterator[Page]:
    begins = [chunk.data_page_offset]
    if chunk.has_dictionary_page:
        begins.append(chunk.dictionary_page_offset)
    at = min(begins)
    end = at + chunk.total_compressed_size
    while at < end:
        header, length = Compact(data, at).struct()
        at += length
        body = data[at : at + header[3]]
        at += header[3]
        yield Page(
            chunk.path_in_schema, KINDS[header[1]], chunk.compression, _decompressed(body, header, chunk.compression)
        )


def pages_without_footer(data: bytes) -> Iterator[Page]:
    """Yield the pages at the beginning of a file that was not finished, each under the first codec that decodes it.

    Args:
        data: The beginning of a file.
    """
    at = 4
    while True:
        try:
            header, length = Compact(data, at).struct()
            body = data[at + length : at + length + header[3]]
            kind = KINDS[header[1]]
        except (IndexError, KeyError, TypeError):
            return
        at += length + header[3]
        for codec in (*CODECS, "UNCOMPRESSED"):
            with contextlib.suppress(OSError, ValueError):
                yield Page("?", kind, codec, _decompressed(body, header, codec))
                break


def _decompressed(body: bytes, header: dict[int, Any], codec: str) -> bytes:
    if codec == "UNCOMPRESSED":
        return body
    n_plain = 0
    if 8 in header:  # of a data page v2 the levels, which come first, are not compressed
        v2 = header[8]
        n_plain = v2[5] + v2[6]
        if v2.get(7) is False:
            return body
    levels, rest = body[:n_plain], body[n_plain:]
    n_bytes = header[2] - n_plain
    if not n_bytes:
        return levels
    return levels + pa.Codec(CODECS[codec]).decompress(rest, n_bytes, asbytes=True)


class Compact:
    """Reads a structure in Thrift's compact protocol.

    Args:
        data: Has it.
        at: Where it begins.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._begin = self._at = at

    def struct(self) -> tuple[dict[int, Any], int]:
        """Return its fields by their numbers, and its length."""
        return self._fields(), self._at - self._begin

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _fields(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while type_and_step := self._byte():
            step, kind = type_and_step >> 4, type_and_step & 0xF
            number = number + step if step else self._zigzag()
            found[number] = kind == TRUE if kind in (TRUE, FALSE) else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # of a list: each a byte
            return self._byte()
        if kind == DOUBLE:
            self._at += 8
            return None
        if kind == BINARY:
            length = self._varint()
            self._at += length
            return self._data[self._at - length : self._at]
        if kind in (LIST, SET):
            size_and_type = self._byte()
            size = size_and_type >> 4
            size = self._varint() if size == 15 else size
            return [self._value(size_and_type & 0xF) for _ in range(size)]
        if kind == STRUCT:
            return self._fields()
        return self._zigzag()


def compressed_by_lzo(path: Path, column: str) -> None:
    """Note in a file's footer that a column's pages are in LZO, which is in the format and in no build of Arrow.

    In the footer a column's codec follows the last part of its path: field 15 hexadecimal, Snappy is 2 and LZO 6.
    """
    content = path.read_bytes()
    name = column.encode()
    by_snappy = name + b"\x15\x02"
    assert by_snappy in content
    path.write_bytes(content.replace(by_snappy, name + b"\x15\x06"))
