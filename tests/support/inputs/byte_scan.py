"""Looks for planted bytes in everything that lies in some folders, whatever wrote it. It uses nothing of the product.

Each file is searched as it is, and whatever it is a container of, decoded, again and again: a gzip file within a cell of an SQLite file
within an archive too. Names of files and folders are searched like content.

| container | known by | searched |
|---|---|---|
| Parquet | `PAR1` | its bytes (footers with statistics, column indices), each page decompressed, each value of each column |
| Arrow | `ARROW1`, or a stream | each value of each column |
| gzip, zlib, zstd, bzip2, xz, LZ4 frames, LZ4 blocks of Java, framed Snappy | their first bytes | what they hold, as far as it is whole |
| zip, jar, tar | their first bytes | names and content of their members |
| SQLite | its first bytes | each cell of each table |
| RocksDB | a folder with `CURRENT` | each key and value of each column family |
| all other: JSON, HTML, logs, deletion vectors, checksums | | their bytes |

What begins like one of Parquet, Arrow, SQLite or an archive and cannot be read is a finding, too (`unreadable`): it is not passed by as clean.
Bloom filters, key hashes and digests hold no byte of a value, so that no search of bytes finds anything in them.
"""

from __future__ import annotations

import base64
import bz2
import contextlib
import io
import lzma
import os
import shutil
import sqlite3
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from inputs.parquet_pages import pages, pages_without_footer

DEEPEST = 6
"""Containers within containers that are opened."""
HALF = 8
"""Bytes of a canary that count as found: statistics cut texts, and encodings of Parquet leave out beginnings that repeat. 64 random bits are not met by chance."""
PIECE = 1 << 20
Part = tuple[str, bytes | None]
"""How content was found, and the content; None of a container that cannot be read."""
Content = tuple[str, bytes]
"""What is added to a container's name, and a part of its content."""


@dataclass(frozen=True, order=True)
class Hit:
    """A canary in a file.

    Args:
        canary: As hexadecimal digits; empty of what cannot be read.
        path: The file, below the folder that was searched.
        how: The containers that were opened, the outermost first: `bytes`, `name`, `parquet page data zstd`, ...
    """

    canary: str
    path: str
    how: str


class Needles:
    """The forms of some canaries, looked for all at once.

    Args:
        canaries: Each 16 bytes, as 32 hexadecimal digits.
    """

    def __init__(self, canaries: Iterable[str]) -> None:
        self._canary_of: dict[bytes, str] = {}
        for canary in canaries:
            for form in _forms(canary):
                self._canary_of[form] = canary
        self._lengths = sorted({len(form) for form in self._canary_of})
        # Each form is known by its first eight bytes. A table of their first two leaves few places of most files, and a search of
        # the eight as one number almost none: the cost does not depend on how many canaries there are.
        beginnings = sorted({int.from_bytes(form[:HALF], "little") for form in self._canary_of})
        self._beginnings = np.array(beginnings, np.uint64)
        self._may_begin = np.zeros(1 << 16, dtype=bool)
        self._may_begin[self._beginnings & 0xFFFF] = True

    def __call__(self, data: bytes) -> set[str]:
        """Return the canaries of which there is a form in some bytes."""
        found = set()
        for begin in range(0, len(data), PIECE):  # in pieces that overlap: the arrays are larger than the bytes
            found |= self._in_piece(data[begin : begin + PIECE + self._lengths[-1]])
        return found

    def _in_piece(self, data: bytes) -> set[str]:
        if len(data) < HALF:
            return set()
        octets = np.frombuffer(data, np.uint8)
        windows = np.lib.stride_tricks.sliding_window_view(octets, HALF)
        codes = octets[:-1].astype(np.uint16) | (octets[1:].astype(np.uint16) << 8)
        [begins] = np.nonzero(self._may_begin[codes[: len(windows)]])
        as_numbers = np.ascontiguousarray(windows[begins]).view("<u8").ravel()
        found = set()
        nearest = np.searchsorted(self._beginnings[:-1], as_numbers)
        is_one = self._beginnings[nearest] == as_numbers
        for begin in begins[is_one].tolist():
            for length in self._lengths:
                canary = self._canary_of.get(data[begin : begin + length])
                if canary is not None:
                    found.add(canary)
        return found


def _forms(canary: str) -> Iterator[bytes]:
    """Yield what stands for a canary: either half of it as digits, raw, in UTF-16, and in Base64 at each of the three alignments."""
    raw = bytes.fromhex(canary)
    for half in (raw[:HALF], raw[HALF:]):
        digits = half.hex()
        yield half
        yield digits.encode()
        yield digits.upper().encode()
        yield digits.encode("utf-16-le")
    for whole in (raw, canary.encode()):
        for shift in range(3):
            encoded = base64.b64encode(b"\0" * shift + whole)
            # Characters at both ends depend on the bytes beside the value.
            yield encoded[4 if shift else 0 : len(encoded) - 4]
            yield encoded[4 if shift else 0 : len(encoded) - 4].translate(bytes.maketrans(b"+/", b"-_"))


def scan(folders: Iterable[Path | str], canaries: Iterable[str]) -> list[Hit]:
    """Return where canaries are, in order.

    Args:
        folders: Searched with all that is below them; also single files.
        canaries: Each 16 bytes, as 32 hexadecimal digits.
    """
    return scan_files((named for folder in folders for named in _files(Path(folder))), canaries)


def scan_files(files: Iterable[tuple[str, bytes]], canaries: Iterable[str]) -> list[Hit]:
    """Return where canaries are, in order; of objects of a store for instance.

    Args:
        files: Name and content of each; names are searched too.
        canaries: As of `scan`.
    """
    needles = Needles(canaries)
    hits = set()
    for path, data in files:
        hits |= {Hit(canary, path, "name") for canary in needles(path.encode(errors="surrogateescape"))}
        for how, part in unpacked(data):
            if part is None:
                hits.add(Hit("", path, how))
                continue
            hits |= {Hit(canary, path, how) for canary in needles(part)}
    return sorted(hits)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of everything in a folder; of a folder itself its name, of a link what it points to."""
    if folder.is_file():
        yield folder.name, folder.read_bytes()
        return
    for current, folders, names in os.walk(folder):
        below = Path(current)
        for name in folders:
            yield str((below / name).relative_to(folder)), b""
        for name in names:
            path = below / name
            shown = str(path.relative_to(folder))
            if path.is_symlink():
                yield shown, os.fsencode(path.readlink())
            elif path.is_file():
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile, by a process that still runs
                    yield shown, path.read_bytes()
        if "CURRENT" in names:
            yield from _rocksdb(below, str(below.relative_to(folder)))


def unpacked(data: bytes) -> Iterator[Part]:
    """Yield some bytes, and the content of the containers in them."""
    yield from _unpacked(data, "bytes", DEEPEST)


def _unpacked(data: bytes, how: str, depth: int) -> Iterator[Part]:
    yield how, data
    if not depth:
        return
    before = "" if how == "bytes" else f"{how} > "
    for container in CONTAINERS:
        if not data.startswith(container.begins):
            continue
        name = before + container.name
        try:
            for label, part in container.unpack(data):
                yield from _unpacked(part, name + label, depth - 1)
        except NOT_ONE as error:
            if container.is_certain:
                yield f"unreadable {name}: {error}", None


def _parquet(data: bytes) -> Iterator[Content]:
    if not data.endswith(b"PAR1"):  # its writer was killed: there is no footer, but there may be pages
        for page in pages_without_footer(data):
            yield f" without footer, {page.kind}, {page.codec.lower()}", page.content
        return
    for page in pages(data):
        yield f" page, {page.kind}, {page.codec.lower()}", page.content
    yield from _values(pq.read_table(pa.BufferReader(data)))


def _arrow_file(data: bytes) -> Iterator[Content]:
    end = data.rindex(b"ARROW1") + len(b"ARROW1")  # in a local copy checksums follow
    with pa.ipc.open_file(pa.BufferReader(data[:end])) as reader:
        yield from _values(reader.read_all())


def _arrow_stream(data: bytes) -> Iterator[Content]:
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        yield from _values(reader.read_all())


def _values(rows: pa.Table) -> Iterator[Content]:
    for name in rows.column_names:
        values = _leaves(rows[name].to_pylist())
        yield f" values of {name}", b"\n".join(values)


def _leaves(value: Any) -> Iterator[bytes]:
    """Yield the texts and bytes in nested values."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode(errors="surrogatepass")
    elif isinstance(value, dict):
        for item in value.items():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)


def _decompressing(make: Callable[[], Any]) -> Callable[[bytes], Iterator[Content]]:
    def unpack(data: bytes) -> Iterator[Content]:
        """Yield each member of a file; of one that is cut off, what there is."""
        while data:
            decompressor = make()
            yield "", decompressor.decompress(data)
            data = getattr(decompressor, "unused_data", b"")

    return unpack


def _streaming(codec: str) -> Callable[[bytes], Iterator[Content]]:
    def unpack(data: bytes) -> Iterator[Content]:
        """Yield what a stream holds, by pieces: of one that is cut off, what there is."""
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(PIECE):
                yield "", piece

    return unpack


def _lz4_blocks(data: bytes) -> Iterator[Content]:
    """Yield the blocks of Java's `LZ4BlockOutputStream`: magic, method, compressed and original length, checksum, content."""
    at = 0
    while data[at : at + 8] == b"LZ4Block":
        method, length, original, _ = struct.unpack_from("<BIII", data, at + 8)
        at += 21
        body = data[at : at + length]
        at += length
        yield "", body if method & 0xF0 == 0x10 else pa.Codec("lz4_raw").decompress(body, original, asbytes=True)


def _snappy_frames(data: bytes) -> Iterator[Content]:
    """Yield the chunks of framed Snappy: kind, length of three bytes, checksum, content."""
    at = 0
    while at + 8 <= len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        body = data[at + 8 : at + 4 + length]
        at += 4 + length
        if kind == 1:
            yield "", body
        elif kind == 0:
            yield "", pa.Codec("snappy").decompress(body, _length(body), asbytes=True)


def _snappy_blocks(data: bytes) -> Iterator[Content]:
    """Yield the chunks of Java's `SnappyOutputStream`: magic of 8 bytes and two versions, then length and content of each."""
    at = 16
    while at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 4 : at + 4 + length]
        at += 4 + length
        yield "", pa.Codec("snappy").decompress(body, _length(body), asbytes=True)


def _length(body: bytes) -> int:
    """Return the length that a block of Snappy says it has, a varint."""
    value = 0
    for number, byte in enumerate(body[:5]):
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            break
    return value


def _zip(data: bytes) -> Iterator[Content]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            yield " name", name.encode()
            yield f" {name}", archive.read(name)


def _tar(data: bytes) -> Iterator[Content]:
    if data[257:262] != b"ustar":
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                yield f" {member.name}", content.read()


def _sqlite(data: bytes) -> Iterator[Content]:
    connection = sqlite3.connect(":memory:")
    with contextlib.closing(connection):
        connection.deserialize(_without_wal(data))
        connection.text_factory = bytes
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            quoted = name.decode().replace('"', '""')
            for row in connection.execute(f'SELECT * FROM "{quoted}"'):
                for cell in row:
                    if isinstance(cell, bytes):
                        yield f" table {name.decode()}", cell


def _without_wal(data: bytes) -> bytes:
    """Return a database as one without a log beside it, which memory has none of; the log is a file of its own, searched as it is."""
    return data[:18] + b"\1\1" + data[20:]


def _rocksdb(folder: Path, shown: str) -> Iterator[tuple[str, bytes]]:
    """Yield keys and values of a RocksDB, from a copy, which an open one does not mind."""
    import rocksdict

    with tempfile.TemporaryDirectory() as home:
        copy = shutil.copytree(folder, Path(home) / "copy", ignore=shutil.ignore_patterns("LOCK"))
        options = rocksdict.Options(raw_mode=True)
        families = rocksdict.Rdict.list_cf(str(copy))
        for family in families:
            of_family = {name: rocksdict.Options(raw_mode=True) for name in families}
            database = rocksdict.Rdict(str(copy), options, of_family)
            rows = database.get_column_family(family).items()
            yield f"{shown} (family {family})", b"\n".join(part for row in rows for part in row)
            database.close()


@dataclass(frozen=True)
class Container:
    """A kind of container.

    Args:
        name: Its name.
        begins: Its first bytes.
        unpack: Yields its content.
        is_certain: Nothing else begins so.
    """

    name: str
    begins: bytes | tuple[bytes, ...]
    unpack: Callable[[bytes], Iterator[Content]]
    is_certain: bool = False


CONTAINERS = [
    Container("parquet", b"PAR1", _parquet, is_certain=True),
    Container("arrow", b"ARROW1", _arrow_file, is_certain=True),
    Container("arrow stream", b"\xff\xff\xff\xff", _arrow_stream),
    Container("gzip", b"\x1f\x8b", _decompressing(lambda: zlib.decompressobj(31))),
    Container("zlib", (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), _decompressing(zlib.decompressobj)),
    Container("zstd", b"\x28\xb5\x2f\xfd", _streaming("zstd"), is_certain=True),
    Container("bzip2", b"BZh", _decompressing(bz2.BZ2Decompressor)),
    Container("xz", b"\xfd7zXZ", _decompressing(lzma.LZMADecompressor), is_certain=True),
    Container("lz4", b"\x04\x22\x4d\x18", _streaming("lz4"), is_certain=True),
    Container("lz4 blocks", b"LZ4Block", _lz4_blocks, is_certain=True),
    Container("snappy", b"\xff\x06\x00\x00sNaPpY", _snappy_frames, is_certain=True),
    Container("snappy blocks", b"\x82SNAPPY\0", _snappy_blocks, is_certain=True),
    Container("zip", b"PK\x03\x04", _zip, is_certain=True),
    Container("tar", b"", _tar),
    Container("sqlite", b"SQLite format 3\0", _sqlite, is_certain=True),
]
NOT_ONE = (
    *(pa.ArrowException, OSError, EOFError, ValueError, KeyError, IndexError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, sqlite3.Error, struct.error),
)
"""Raised where bytes only begin like a container, or one was cut off: what was found in it before that counts."""
